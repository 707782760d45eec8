"""Questions about interrupted calls show the tool and its arguments, without secrets."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from tests.command_line import compile_flow
from tests.stored_data import stored_in

DIES = """
import os, signal
def send(to, **more):
    os.kill(os.getpid(), signal.SIGKILL)
def boom():
    raise ValueError("boom")
"""
FLOW = """
flowengine: 1
id: it
secrets: {KEY: {env: SOME_KEY}}
tools:
  send: {python: "dies:send", with: {key: "Bearer ${{ secrets.KEY }}"}, effect: once}
"""
pytestmark = pytest.mark.usefixtures("folder")
FILES = {"dies.py": DIES}
VARIABLES = {"SOME_KEY": "c4n4ry"}


def flowengine(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flowengine", "--store", "store", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def killed(steps: str) -> dict[str, Any]:
    """Run a flow whose step kills its process, resume it, and return the question."""
    Path("flow.yaml").write_text(FLOW + steps)
    compile_flow("flow.yaml")
    assert flowengine("run", "flow.yaml").returncode == -signal.SIGKILL
    with Engine("store") as engine:
        [found] = engine.executions.list().items
        result = engine.resume(found["execution"])
        assert result.status == "stalled"
        [wait] = result.waits
        assert engine.approvals.show(wait["id"])["subject"] == wait["subject"]
    return {**wait}


@pytest.mark.endurance
# Shows T61
def test_it_shows_tool_and_arguments_with_secrets_masked() -> None:
    wait = killed("steps: [{id: a, call: send, with: {to: ben}}]\n")
    assert (wait["kind"], wait["tool"]) == ("question", "send")
    assert wait["subject"] == {"to": "ben", "key": "Bearer ***"}
    shown = flowengine("show", wait["id"]).stdout
    assert "call " in shown
    assert "Bearer ***" in shown
    assert "c4n4ry" not in shown
    stored = b"".join(stored_in("store").values())
    assert b"c4n4ry" not in stored


@pytest.mark.endurance
def test_it_shows_what_an_inline_step_and_a_command_run() -> None:
    wait = killed('steps: [{id: a, python: "dies:send", with: {to: zoe}}]\n')
    assert (wait["tool"], wait["subject"]) == ("dies:send", {"to": "zoe"})


# Shows T61
def test_an_attempt_that_was_stopped_is_shown_before_it_is_undone() -> None:
    """Whether the stopped attempt took effect is unknown, and so is whether it must be undone."""
    Path("flow.yaml").write_text(
        FLOW
        + """
  wait:
    shell: [sleep, "${{ args.seconds }}"]
    args: {properties: {seconds: {type: string}}}
    effect: once
steps:
  - id: p
    parallel:
      - {id: a, call: wait, with: {seconds: "60"}, compensate: {python: "dies:boom"}}
      - {id: b, group: [{id: w, wait: {for: 100ms}}, {id: c, python: "dies:boom"}]}
on_error: compensate
"""
    )
    with Engine("store") as engine:
        [wait] = engine.run("flow.yaml").waits
    assert (wait["tool"], wait["subject"]) == ("wait", {"seconds": "60"})
