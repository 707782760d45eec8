"""Runs the protocol's conformance tool against a client or a server."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

REVISIONS = ("2025-11-25", "2026-07-28")
"""The revisions of the protocol, one of each generation."""
_FOLDER = Path(__file__).parent / "mcp_servers"
_PACKAGE = _FOLDER / "node_modules/@modelcontextprotocol/conformance"
_TIME = re.compile(r"-\d{4}-\d\d-\d\dT[\w-]+$")
"""The time in the name of a folder with results, after the scenario."""


def required(role: str, revision: str) -> list[str]:
    """Return the scenarios that a revision requires.

    Args:
        role: `client` or `server`.
        revision: The revision.
    """
    if not _PACKAGE.exists():
        return []
    text = (_PACKAGE / "requirements" / f"{revision}.yaml").read_text()
    names: list[str] = yaml.safe_load(text)[role]
    return names


def failed_checks(folder: Path, *args: str) -> dict[str, set[str]]:
    """Run the tool and return, for each scenario, its checks that failed or gave a warning.

    Args:
        folder: Receives the results.
        args: The arguments of the tool.
    """
    if not _PACKAGE.exists():
        pytest.skip("no conformance tool: npm ci --prefix tests/mcp_servers")
    command = ["node", str(_FOLDER / "conformance.mjs"), *args, "-o", str(folder)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    found: dict[str, set[str]] = {}
    for path in folder.rglob("checks.json"):
        checks: list[dict[str, Any]] = json.loads(path.read_text())
        name = str(path.parent.relative_to(folder)).removeprefix(f"{args[0]}-")
        name = _TIME.sub("", name)
        found[name] = {check["id"] for check in checks if check["status"] in ("FAILURE", "WARNING")}
    assert found, done.stdout + done.stderr
    # Otherwise a client that stopped too early would pass the checks that it reached.
    assert done.returncode == 0 or any(found.values()), done.stdout + done.stderr
    return found
