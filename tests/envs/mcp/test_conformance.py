# Shows G15
"""The protocol's conformance tool against sessions with servers (G15)."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from tests.conformance import REVISIONS, failed_checks, required
from tests.envs.mcp.conftest import HERE

CLIENT = shlex.join([sys.executable, str(HERE / "conformance_client.py")])
BY_DESIGN = {
    # A call that requests input ends with a refusal, and is made again with the answer.
    "elicitation-sep1034-client-defaults": {"client-elicitation-sep1034-general"},
    # The answer may come days later, in a new session that numbers its requests anew.
    "sep-2322-client-request-state": {"sep-2322-client-jsonrpc-id-different"},
    # No user is sent to a server that publishes no metadata: its support of PKCE is unknown.
    "auth/2025-03-26-oauth-endpoint-fallback": {
        "client-registration",
        "authorization-request",
        "token-request",
    },
}
"""Scenario → its checks that fail."""
ON_SLOW_MACHINES = {"client-sse-retry-timing"}
"""Checks that measure time."""
OPTIONAL = ("json-schema-2020-12-preservation", "auth/client-credentials-basic")
"""Scenarios that no revision requires."""
REMOVED = [
    ("2025-03-26", f"auth/2025-03-26-oauth-{name}")
    for name in ("metadata-backcompat", "endpoint-fallback")
]
"""Scenarios about logins that later revisions removed."""
SCENARIOS = [
    (revision, scenario)
    for revision in REVISIONS
    for scenario in [*required("client", revision), *OPTIONAL]
]


@pytest.mark.endurance
@pytest.mark.parametrize(("revision", "scenario"), [*SCENARIOS, *REMOVED])
def test_the_client_conforms(revision: str, scenario: str, tmp_path: Path) -> None:
    found = failed_checks(
        tmp_path,
        *("client", "--command", CLIENT, "--timeout", "300000"),
        *("--scenario", scenario, "--spec-version", revision, "--force"),
    )
    assert found[scenario] - ON_SLOW_MACHINES == BY_DESIGN.get(scenario, set())
