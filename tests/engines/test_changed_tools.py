"""Tools that have changed since their call was approved, with other processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from flowengine import Engine
from flowengine.engines.results import WaitInfo

BEFORE = """
def act(n: int) -> str:
    with open("acted.txt", "a") as file:
        file.write(f"before {n};")
    return "before"
"""
AFTER = BEFORE.replace("before", "after")
FLOW = """
flowengine: 1
id: it
tools: {act: {python: "acts:act", approval: {edit: true}}}
steps: [{id: a, call: act, with: {n: 1}}]
outputs: {o: "${{ steps.a.output }}"}
"""
pytestmark = pytest.mark.usefixtures("folder")
FILES = {"acts.py": BEFORE, "flow.yaml": FLOW}
VARIABLES = {"PYTHONDONTWRITEBYTECODE": "1"}


def acted() -> str:
    file = Path("acted.txt")
    return file.read_text() if file.exists() else ""


def asked(engine: Engine) -> WaitInfo:
    [wait] = engine.run("flow.yaml").waits
    return wait


# Shows T43
def test_another_process_that_decides_looks_at_the_code_as_it_is_there() -> None:
    with Engine("store") as engine:
        wait = asked(engine)
    Path("acts.py").write_text(AFTER)
    command = [sys.executable, "-m", "flowengine", "--store", "store"]
    done = subprocess.run(
        [*command, "approve", wait["id"]], capture_output=True, text=True, timeout=60, check=False
    )
    assert acted() == ""
    assert "has changed" in done.stderr, done.stderr
    with Engine("store") as engine:
        [open_] = engine.approvals.list().items
    shown = subprocess.run(
        [*command, "show", open_["id"]],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert 'file.write(f"after {n};")' in shown.stdout


def test_a_question_whose_process_died_at_once_is_described_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from flowengine.engines.running import commands

    with Engine("store") as engine, monkeypatch.context() as patch:
        patch.setattr(commands, "described", lambda *_: None)
        wait = asked(engine)
        assert "source" not in engine.approvals.show(wait["id"])
    with Engine("store") as engine:
        engine.resume(wait["execution"])
        assert "source" in engine.approvals.show(wait["id"])
    Path("acts.py").write_text(AFTER)
    with Engine("store") as engine:
        result = engine.approvals.approve(wait["id"]).result
        assert result is not None
        assert "difference" in result.waits[0]


# Shows T43
def test_an_approval_of_the_code_holds_over_a_crash_of_the_process_that_took_it() -> None:
    with Engine("store") as engine:
        wait = asked(engine)
    child = subprocess.run([sys.executable, "-c", DIES, wait["id"]], timeout=60, check=False)
    assert child.returncode == -9
    Path("acts.py").write_text(AFTER)
    with Engine("store") as engine:
        [again] = engine.resume(wait["execution"]).waits
    assert "difference" in again
    assert acted() == ""


DIES = """
import os, signal, sys
from flowengine import Engine
engine = Engine("store")
decide = engine.approvals.approve(sys.argv[1], resume=False)
os.kill(os.getpid(), signal.SIGKILL)
"""
