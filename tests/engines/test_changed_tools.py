"""Calls run as approved. If a tool has changed since, a new approval is requested."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.engines.infos import WaitInfo

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


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    Path("acts.py").write_text(BEFORE)
    Path("flow.yaml").write_text(FLOW)


def acted() -> str:
    file = Path("acted.txt")
    return file.read_text() if file.exists() else ""


def asked(engine: Engine) -> WaitInfo:
    [wait] = engine.run("flow.yaml").waits
    return wait


def test_what_has_not_changed_runs_as_it_was_approved() -> None:
    with Engine("store") as engine:
        wait = engine.approvals.show(asked(engine)["id"])
        assert len(wait["source"]) == 64
        result = engine.approvals.approve(wait["id"]).result
    assert result is not None
    assert result.outputs == {"o": "before"}


def test_code_that_has_changed_is_asked_about_anew_with_the_difference() -> None:
    with Engine("store") as engine:
        first = asked(engine)
        Path("acts.py").write_text(AFTER)
        result = engine.approvals.approve(first["id"], edit={"n": 2}).result
        assert result is not None
        [wait] = result.waits
        assert acted() == ""
        assert wait["id"] != first["id"]
        assert wait["subject"] == {"n": 2}
        assert '-        file.write(f"before {n};")' in wait["difference"].splitlines()
        assert '+        file.write(f"after {n};")' in wait["difference"].splitlines()

        result = engine.approvals.approve(wait["id"]).result
        assert result is not None
        assert result.outputs == {"o": "after"}
    assert acted() == "after 2;"


def test_it_is_asked_again_as_often_as_the_code_changes_and_a_no_is_one() -> None:
    with Engine("store") as engine:
        wait: Any = asked(engine)
        for text in (AFTER, AFTER.replace("after", "later")):
            Path("acts.py").write_text(text)
            result = engine.approvals.approve(wait["id"]).result
            assert result is not None
            [wait] = result.waits
        result = engine.approvals.reject(wait["id"]).result
    assert result is not None
    assert result.error is not None
    assert result.error["type"] == "Rejected"
    assert acted() == ""


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
        [*command, "approvals", "show", open_["id"]],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert 'file.write(f"after {n};")' in shown.stdout


def test_code_that_this_process_has_imported_is_what_runs_whatever_the_file_says_now() -> None:
    text = FLOW.replace("steps: [", 'steps: [{id: z, python: "acts:act", with: {n: 0}}, ')
    Path("flow.yaml").write_text(text)
    with Engine("store") as engine:
        wait = asked(engine)
        assert acted() == "before 0;"
        Path("acts.py").write_text(AFTER)
        result = engine.approvals.approve(wait["id"]).result
    assert result is not None
    assert result.outputs == {"o": "before"}
    assert acted() == "before 0;before 1;"


def test_code_that_is_gone_is_asked_about_and_then_the_step_fails() -> None:
    with Engine("store") as engine:
        wait = asked(engine)
        Path("acts.py").unlink()
        result = engine.approvals.approve(wait["id"]).result
        assert result is not None
        [wait] = result.waits
        assert "cannot be read" in wait["difference"]
        result = engine.approvals.approve(wait["id"]).result
    assert result is not None
    assert result.status == "failed"


def test_a_question_whose_process_died_at_once_is_described_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from flowengine.engines.running import call_descriptions

    with Engine("store") as engine, monkeypatch.context() as patch:
        patch.setattr(call_descriptions, "described", lambda *_: None)
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


def test_only_the_kinds_whose_text_is_known_are_described() -> None:
    Path("flow.yaml").write_text(FLOW.replace('python: "acts:act"', "shell: [echo, x]"))
    with Engine("store") as engine:
        wait = asked(engine)
        assert "source" not in engine.approvals.show(wait["id"])
        assert engine.approvals.approve(wait["id"]).first


def test_an_execution_that_rests_with_a_question_can_be_had_by_others() -> None:
    with Engine("store") as engine:
        wait = asked(engine)
        with Engine("store") as other:
            result = other.approvals.approve(wait["id"]).result
    assert result is not None
    assert result.status == "succeeded"
