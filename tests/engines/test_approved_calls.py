"""Calls that require approval: of a server, and decided by several processes or a killed one."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine

SERVER = [sys.executable, str(Path(__file__).parents[1] / "envs" / "mcp" / "nasty_server.py")]
FUNCTIONS = """
import json

def transfer(amount: float, to: str, note: str = "", key: str = "", account: str = "main") -> dict:
    with open("sent.txt", "a") as file:
        file.write(json.dumps([amount, to, note, key, account]) + "\\n")
    return {"sent": amount}

def undo(amount: float) -> None:
    with open("sent.txt", "a") as file:
        file.write(json.dumps(["undone", amount]) + "\\n")
"""
TOOL = """
secrets: {KEY: {env: BANK_KEY}}
inputs: {account: {type: string, default: main}}
tools:
  transfer:
    python: bank:transfer
    with: {key: "${{ secrets.KEY }}", account: "${{ inputs.account }}"}
    approval: APPROVAL
"""
STEP = """
steps:
  - {id: pay, call: transfer, with: {amount: 500, to: ana}}
outputs: {o: "${{ steps.pay.output }}"}
"""
pytestmark = pytest.mark.usefixtures("folder")
FILES = {"bank.py": FUNCTIONS}
VARIABLES = {"BANK_KEY": "c4n4ry"}


def write(approval: str, rest: str = STEP) -> str:
    flow = f"flowengine: 1\nid: pay\n{TOOL.replace('APPROVAL', approval)}{rest}"
    Path("flow.yaml").write_text(flow)
    return "flow.yaml"


def sent() -> list[Any]:
    file = Path("sent.txt")
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_every_tool_of_a_server_asks() -> None:
    Path("flow.yaml").write_text(f"""
flowengine: 1
id: it
tools:
  box: {{mcp: {{command: {json.dumps(SERVER)}}}, approval: {{edit: true}}}}
steps: [{{id: a, call: box.count, with: {{text: one}}}}]
outputs: {{o: "${{{{ steps.a.output }}}}"}}
""")
    with Engine("store") as engine:
        [wait] = engine.run("flow.yaml").waits
        assert (wait["tool"], wait["subject"]) == ("box.count", {"text": "one"})
        assert wait["edit"] == ["text"]
        result = engine.approvals.approve(wait["id"], edit={"text": "two"}).result
    assert result is not None
    assert result.outputs is not None
    assert "1" in json.dumps(result.outputs["o"])


TWENTY = """
steps:
  - {id: pay, map: {over: "${{ range(20) }}", concurrency: 2},
     call: transfer, with: {amount: "${{ double(item) }}", to: "${{ string(item) }}"}}
"""
DECIDER = """
import sys
from flowengine import Engine
from flowengine.errors import FlowEngineError
with Engine("store") as engine:
    for wait in sys.argv[1:]:
        try:
            engine.approvals.approve(wait)
        except FlowEngineError as error:
            print(error)
"""


@pytest.mark.endurance
# Shows T91
def test_many_are_answered_in_any_order_by_several_processes() -> None:
    with Engine("store") as engine:
        result = engine.run(write("ask", TWENTY))
        waits = [wait["id"] for wait in result.waits]
        assert len(waits) == 20
        random.Random(7).shuffle(waits)
        deciders = [
            subprocess.Popen([sys.executable, "-c", DECIDER, *waits[n::3], *waits[n + 1 :: 9]])
            for n in range(4)
        ]
        for decider in deciders:
            decider.communicate(timeout=120)
        final = engine.resume(result.execution)

    assert final.status == "succeeded"
    assert sorted(row[0] for row in sent()) == list(range(20))
    assert all(str(int(row[0])) == row[1] for row in sent())


RESUMER = """
import os, signal, sys
from flowengine import Engine
from flowengine.engines.running.work import Work
engine = Engine("store")
if sys.argv[2] == "recorded":
    engine.approvals.approve(sys.argv[1], edit={"amount": 7}, resume=False)
    os.kill(os.getpid(), signal.SIGKILL)
Work.begin = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
engine.approvals.approve(sys.argv[1], edit={"amount": 7})
"""


@pytest.mark.parametrize("when", ["recorded", "journaled"])
# Shows T42
def test_killed_between_decision_and_run_what_was_approved_runs_once(when: str) -> None:
    with Engine("store") as engine:
        path = write("{edit: true}")
        text = (
            Path(path).read_text().replace("    approval", "    effect: idempotent\n    approval")
        )
        Path(path).write_text(text)
        [wait] = engine.run(path).waits
    words = [sys.executable, "-c", RESUMER, wait["id"], when]
    killed = subprocess.run(words, check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert sent() == []

    with Engine("store") as engine:
        result = engine.resume(wait["execution"])

    assert result.status == "succeeded"
    assert sent() == [[7, "ana", "", "c4n4ry", "main"]]
