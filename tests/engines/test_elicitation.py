# Shows G15
"""Requested input with the reference server, over a killed process, and as a case."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from flowengine import Engine
from flowengine.testing.recording import record, text_of
from tests.command_line import compile_flow

ROOT = Path(__file__).parents[2]
SERVERS = ROOT / "tests" / "envs" / "mcp"
EVERYTHING = (
    ROOT / "tests/mcp_servers/node_modules/@modelcontextprotocol/server-everything/dist/index.js"
)
pytestmark = pytest.mark.usefixtures("folder")


def write(call: str, *command: str, more: str = "") -> str:
    tools = f"tools: {{shop: {{mcp: {{command: {[*command]}{more}}}}}}}\n"
    step = f"steps: [{{id: a, call: {call}}}]\n"
    outputs = 'outputs: {o: "${{ steps.a.output }}"}\n'
    Path("flow.yaml").write_text(f"flowengine: 1\nid: flow\n{tools}{step}{outputs}")
    return "flow.yaml"


@pytest.mark.endurance
def test_the_form_of_the_reference_server(tmp_path: Path) -> None:
    if not EVERYTHING.exists():
        pytest.skip("no server: npm ci --prefix tests/mcp_servers")
    flow = write("shop.trigger-elicitation-request", "node", str(EVERYTHING), "stdio")

    with Engine("store") as engine:
        [wait] = engine.run(flow, id="it").waits
        fields = wait["form"]["properties"]
        types = {name: field["type"] for name, field in fields.items()}
        assert types["birthdate"] == types["titledSingleSelectEnum"] == "string"
        assert types["untitledMultipleSelectEnum"] == "array"
        assert (types["check"], types["integer"], types["number"]) == (
            "boolean",
            "integer",
            "number",
        )
        assert fields["titledSingleSelectEnum"]["enum"][0] == "hero-1"
        assert "hero-1: Superman" in fields["titledSingleSelectEnum"]["description"]
        engine.approvals.approve(wait["id"], form={"name": "Ana", "integer": 7})
        result = engine.executions.result("it")

    assert result.status == "succeeded"
    assert '"name": "Ana"' in str(result.outputs)
    assert '"firstLine": "It was a dark and stormy night."' in str(result.outputs)


CHILD = """
import sys
sys.path.insert(0, {root!r})
from flowengine import Engine
with Engine("store") as engine:
    engine.subscribe(lambda update: print("wait", flush=True) if update.kind == "wait" else None)
    engine.run("flow.yaml", id="it")
    sys.stdin.read()
"""


def test_a_killed_process_loses_no_question() -> None:
    command = [sys.executable, str(SERVERS / "asking_quickly.py"), "."]
    compile_flow(write("shop.confirm, with: {name: Ana}", *command))
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD.format(root=str(ROOT))],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stdout.readline() == "wait\n"
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdin.close()
    child.stdout.close()

    with Engine("store") as engine:
        [wait] = engine.executions.result("it").waits
        assert wait["request"]["message"] == "Is it Ana?"
        engine.approvals.approve(wait["id"], form={"sure": False})
        assert engine.executions.result("it").outputs == {"o": "Ana False"}
    assert Path("done.txt").read_text() == "confirm Ana\n"


def test_an_execution_with_requests_becomes_a_case() -> None:
    command = [sys.executable, str(SERVERS / "asking_quickly.py"), "."]
    flow = write("shop.act", *command)

    with Engine("store") as engine:
        result = engine.run(flow, id="it")
        for count in ("one", "two"):
            engine.approvals.approve(result.waits[0]["id"], form={"count": count})
            result = engine.executions.result("it")
        assert result.outputs == {"o": "one two"}
        recorded = record(engine, "it", "recorded")

    assert recorded.differences == [], text_of(recorded.case)
    assert "asks" in text_of(recorded.case)
