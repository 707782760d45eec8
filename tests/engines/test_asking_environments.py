"""Environments that require approval, and processes that are killed meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from tests.command_line import compile_flow
from tests.execution_environment.toy import Toy

FUNCTIONS = """
def use(toy, text="x"):
    with open("used.txt", "a") as file:
        file.write(text)
    return toy.echo(text)

def plain():
    return 1
"""
ASKS = "environments: {toy: {kind: toy, approval: required}}\n"
USE = 'steps: [{id: a, python: "things:use", environments: [toy]}]\n'
OUTPUT = 'outputs: {a: "${{ steps.a.output }}"}\n'


def write(flow: str) -> str:
    Path("flow.yaml").write_text(f"flowengine: 1\nid: it\n{flow}")
    return "flow.yaml"


def used() -> str:
    file = Path("used.txt")
    return file.read_text() if file.exists() else ""


CHILD = """
import sys
sys.path.insert(0, {root!r})
from flowengine import Engine
from flowengine.execution_environment import register_provider
from tests.execution_environment.toy import Toy
register_provider(Toy())
with Engine("store") as engine:
    engine.subscribe(lambda update: print("wait", flush=True) if update.kind == "wait" else None)
    engine.run("flow.yaml", id="it")
    print("over", flush=True)
    sys.stdin.read()
"""


@pytest.mark.endurance
def test_a_process_killed_while_people_are_asked_loses_nothing(toy: Toy) -> None:
    compile_flow(write(ASKS + USE + OUTPUT))
    root = str(Path(__file__).parents[2])
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD.format(root=root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "wait\n"
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()

    with Engine("store") as engine:
        [wait] = engine.approvals.list().items
        result: Any = engine.approvals.approve(wait["id"]).result

    assert result.outputs == {"a": "x"}
    assert (toy.opens, used()) == (1, "x")
