"""The protocol's conformance tool against sessions with servers (G15)."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from tests.conformance import REVISIONS, failed_checks, required
from tests.envs.mcp.conftest import HERE

CLIENT = shlex.join([sys.executable, str(HERE / "conformance_client.py")])
TOO_EARLY = {
    # The client asks no user.
    "elicitation-sep1034-client-defaults": {
        "client-elicitation-sep1034-general",
        "client-elicitation-sep1034-string-default",
        "client-elicitation-sep1034-integer-default",
        "client-elicitation-sep1034-number-default",
        "client-elicitation-sep1034-enum-default",
        "client-elicitation-sep1034-boolean-default",
    },
    "sep-2322-client-request-state": {
        "sep-2322-client-request-state-echoed",
        "sep-2322-client-jsonrpc-id-different",
        "sep-2322-client-no-state-omitted",
    },
}
"""Scenario → its checks that the client does not pass yet."""
ON_SLOW_MACHINES = {"client-sse-retry-timing"}
"""Checks that measure time."""
SCENARIOS = [
    (revision, scenario)
    for revision in REVISIONS
    # Authorization with OAuth comes later.
    for scenario in [*required("client", revision), "json-schema-2020-12-preservation"]
    if not scenario.startswith("auth/")
]


@pytest.mark.endurance
@pytest.mark.parametrize(("revision", "scenario"), SCENARIOS)
def test_the_client_conforms(revision: str, scenario: str, tmp_path: Path) -> None:
    found = failed_checks(
        tmp_path,
        *("client", "--command", CLIENT, "--timeout", "300000"),
        *("--scenario", scenario, "--spec-version", revision),
    )
    assert found[scenario] - ON_SLOW_MACHINES == TOO_EARLY.get(scenario, set())
