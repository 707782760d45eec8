"""MCP tools in flows: called by name, in one session per execution.

See docs/language.md: tools.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.sdk.environments import VARIABLE
from flowengine.sdk.processes import marked
from flowengine_envs.sandboxes.processes import has
from tests.received import RECEIVED

SERVER = Path(__file__).parents[1] / "envs" / "mcp" / "nasty_server.py"
COMMAND = f"{[sys.executable, str(SERVER), 'more']}"
TOOLS = f"tools: {{box: {{mcp: {{command: {COMMAND}}}}}}}\n"
pytestmark = pytest.mark.usefixtures("folder")


def write(flow: str, name: str = "flow") -> None:
    Path(f"{name}.yaml").write_text(f"flowengine: 1\nid: {name}\n{flow}")


def run(flow: str) -> Any:
    """Run a flow in a new engine, and check that no server process survives it."""
    write(flow)
    with Engine("store") as engine:
        result = engine.run("flow.yaml", id="it")
        assert engine.environments.written() == []
    assert [pid for pid in marked(VARIABLE) if _works_here(pid)] == []
    return result


def _works_here(pid: int) -> bool:
    """Return whether a process works in this test's folder, as other tests run servers too."""
    try:
        return Path(f"/proc/{pid}/cwd").resolve() == Path.cwd()
    except OSError:
        return False


def test_steps_of_an_execution_share_one_session() -> None:
    """The server counts its calls, and text, data and binary parts are returned."""
    result = run(
        TOOLS
        + """
steps:
  - {id: one, call: box.data, with: {a: 1, b: [x]}}
  - {id: picture, call: box.picture}
  - id: inner
    group: [{id: count, call: box.count}]
outputs:
  data: "${{ steps.one.output }}"
  picture: "${{ steps.picture.output }}"
  count: "${{ steps.inner.output }}"
"""
    )

    assert result.outputs["data"] == {"a": 1, "b": ["x"]}
    assert result.outputs["count"] == "3"
    text, image = result.outputs["picture"]
    assert text == {"type": "text", "text": "UE5H"}
    assert (image["mimeType"], image["file"]["size"]) == ("image/png", 3)
    assert Path(image["file"]["path"]).read_bytes() == b"PNG"


@pytest.mark.skipif(not has("bwrap"), reason="no bubblewrap")
def test_a_server_in_a_sandbox_sees_the_folders_that_its_tool_mounts(folder: Path) -> None:
    (folder / "own").mkdir()
    shutil.copy(SERVER, folder / "own")
    result = run(
        """
environments: {own: {kind: files, config: {path: own, mode: ro}}}
tools:
  box:
    mcp: {command: [python3, /srv/nasty_server.py], mounts: {own: /srv}, provider: namespace}
steps: [{id: a, call: box.env}]
outputs: {variables: "${{ steps.a.output }}"}
"""
    )

    assert json.loads(result.outputs["variables"])["HOME"] == "/home/flow"


RAW = """
import json, sys

def say(text):
    sys.stdout.buffer.write(text.encode("utf-8") + b"\\n")
    sys.stdout.flush()

tools = [{"name": "raw", "inputSchema": {"type": "object"}}]
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    head = '{"jsonrpc": "2.0", "id": %s, "result": ' % json.dumps(asked["id"])
    if asked["method"] == "initialize":
        about = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
        say(head + json.dumps({**about, "serverInfo": {"name": "raw", "version": "1"}}) + "}")
    elif asked["method"] == "tools/list":
        say(head + json.dumps({"tools": tools}) + "}")
    elif asked["method"] != "tools/call":
        error = {"code": -32601, "message": "no such method"}
        say(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": error}))
    else:
        given = asked["params"]["arguments"]
        text = json.dumps({"type": "text", "text": "done"})
        start = "\\ufeff" if given["marked"] else ""
        say(start + head + '{"content": [%s], "structuredContent": %s}}' % (text, given["body"]))
"""


def test_answers_are_read_as_they_are_meant(folder: Path) -> None:
    (folder / "raw.py").write_text(RAW)
    command = [sys.executable, str(folder / "raw.py")]
    flow = {
        "flowengine": 1,
        "id": "flow",
        "tools": {"box": {"mcp": {"command": command}}},
        "steps": [
            {
                "id": name,
                "call": "box.raw",
                "with": {"body": case.text, "marked": case.encoding == "utf-8-sig"},
            }
            for name, case in RECEIVED.items()
            if "utf_" not in name
        ],
    }
    Path("flow.yaml").write_text(json.dumps(flow))
    with Engine("store") as engine:
        result = engine.run("flow.yaml", id="it")
        assert result.error is None
        for step in engine.executions.show("it")["steps"]:
            case = RECEIVED[step["address"]]
            output = engine.executions.show("it", step=step["address"])["steps"][0]["output"]
            assert output == {"v": case.value}, step["address"]
