"""The part of `conformance_client.py` for servers that require a login (`auth/…`).

A flow calls the tool of the scenario twice. When the execution waits for a login, the user follows
the link and approves.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit
from urllib.request import urlopen

from flowengine import Engine
from tests.envs.mcp.notes import Browser

_DOCUMENT = "https://conformance-test.local/client-metadata.json"
"""The client metadata document that the tool expects."""
_SECRET = "CONFORMANCE_SECRET"
_MOST_LOGINS = 6
"""Logins of one execution. The tool permits 3, and counts the others as a failure."""


def log_in(url: str, scenario: str, given: Mapping[str, Any], mode: str) -> bool:
    """Call the tool of a scenario, and return whether that succeeded.

    Args:
        url: The address of the server.
        scenario: The name of the scenario.
        given: What the tool knows about the client: its id, secret and issuer.
        mode: The generation of the protocol.
    """
    server = {"url": url, "mode": mode, "auth": _auth(url, scenario, given)}
    os.environ[_SECRET] = given.get("client_secret", "")
    flow = {
        "flowengine": 1,
        "id": "f",
        "secrets": {"CLIENT": {"env": _SECRET}},
        "tools": {"t": {"mcp": server}},
        "steps": [{"id": f"s{number}", "call": "t.test-tool"} for number in range(2)],
    }
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = str(Path(folder) / "state")
        path = Path(folder) / "flow.yaml"
        path.write_text(json.dumps(flow))
        with Engine(Path(folder) / "store", workdir=folder, user="user:ana") as engine:
            result = engine.run(path)
            for _ in range(_MOST_LOGINS):
                for wait in result.waits:
                    engine.approvals.log_in(wait["id"], Browser())
                    engine.approvals.approve(wait["id"])
                result = engine.executions.result(result.execution)
            sys.stderr.write(f"{result.status} {result.error}\n")
    return result.status == "succeeded"


def _auth(url: str, scenario: str, given: Mapping[str, Any]) -> Any:
    """Return the key `auth` of the server of a scenario."""
    if scenario == "auth/basic-cimd":
        return {"client_id": _DOCUMENT}
    if "client_id" not in given:
        return "oauth"
    auth = {"client_id": given["client_id"], "client_secret": "${{ secrets.CLIENT }}"}
    if "client-credentials" in scenario:
        auth |= {"grant": "client_credentials"}
    return auth | {"issuer": given.get("issuer") or _published(url)}


def _published(url: str) -> str:
    """Return the issuer that a server publishes, which the author of a flow looks up."""
    path = f"/.well-known/oauth-protected-resource{urlsplit(url).path}"
    with urlopen(urljoin(url, path)) as answer:
        return str(json.load(answer)["authorization_servers"][0])
