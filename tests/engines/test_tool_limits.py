"""`limits` of tools of a server. Others are in `tool_limits.cases.yaml`."""

from __future__ import annotations

import sys
from pathlib import Path

from flowengine import Engine

SERVER = Path(__file__).parents[1] / "envs" / "mcp" / "nasty_server.py"
FLOW = """
flowengine: 1
id: f
tools: {box: {mcp: {command: COMMAND}, limits: {output: 5}}}
steps: [{id: a, call: box.big, with: {size: 6}}]
"""


def test_tools_of_a_server_have_them_as_well(folder: Path) -> None:
    Path("flow.yaml").write_text(FLOW.replace("COMMAND", f"{[sys.executable, str(SERVER)]}"))
    with Engine("store") as engine:
        result = engine.run("flow.yaml")
    assert result.error is not None
    assert result.error["type"] == "LimitExceeded"
