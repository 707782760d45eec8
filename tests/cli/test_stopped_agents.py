# Shows M26
"""An agent is stopped during a tool call: previous work is kept, and it can be resumed."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import CommandLine

FLOW = """\
flowengine: 1
id: stopped
defaults: {model: scripted/replies.yaml}
environments:
  box: {kind: bash, scope: execution}
tools:
  note: {description: Takes a note, shell: {argv: [echo, noted]}}
  work:
    description: Works
    shell:
      argv: [sh, -c, "cd FOLDER; echo $$ >> began; test -f quick || exec sleep 600; echo done"]
      in: host
    effect: idempotent
agents:
  worker: {instructions: Work., tools: [note, work], environments: [box]}
steps:
  - {id: job, agent: worker, with: {prompt: go}}
outputs: {said: "${{ steps.job.output }}"}
"""
REPLIES = """\
- calls: [{name: note, id: c1}]
- calls: [{name: work, id: c2}]
- text: It is done.
"""
TOOL = "job/worker.calls#2[1]/work"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "stopped.yaml").write_text(FLOW.replace("FOLDER", str(tmp_path)))
    (tmp_path / "replies.yaml").write_text(REPLIES)
    return tmp_path


def began(folder: Path) -> list[int]:
    """Wait for the tool's processes, and return them."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        file = folder / "began"
        if file.exists() and file.read_text().endswith("\n"):
            return [int(pid) for pid in file.read_text().split()]
        time.sleep(0.02)
    raise AssertionError("the tool has not begun")


def working(folder: Path, flowengine: CommandLine) -> subprocess.Popen[str]:
    """A run with a running tool."""
    process = flowengine.spawn("run", "stopped.yaml", start_new_session=True)
    began(folder)
    return process


def nothing_runs(folder: Path, flowengine: CommandLine) -> None:
    for pid in began(folder):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert flowengine("--json", "envs", "list").json() == []


def steps(flowengine: CommandLine) -> dict[str, dict[str, Any]]:
    shown = flowengine("--json", "show", flowengine.newest()).json()
    return {step["address"]: step for step in shown["steps"]}


@pytest.mark.endurance
def test_ctrl_c_saves_the_run_and_a_resume_goes_on_at_the_call(
    folder: Path, flowengine: CommandLine
) -> None:
    process = working(folder, flowengine)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)

    assert process.returncode == 130
    assert "interrupted; saved as" in err
    nothing_runs(folder, flowengine)
    assert steps(flowengine)["job/worker.calls[1]/note"]["status"] == "succeeded"
    (folder / "quick").touch()
    done = flowengine("resume", flowengine.newest())

    assert "said: It is done." in done.out
    assert len(began(folder)) == 2
    after = steps(flowengine)
    attempts = {address: step["attempts"] for address, step in after.items()}
    assert attempts == dict.fromkeys(after, 1) | {TOOL: 2}
    assert after[TOOL]["status"] == "succeeded"
