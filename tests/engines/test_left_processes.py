# Shows E77
"""Processes that a script leaves running are ended, and cause a warning or an error (E77)."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.engines.results import ExecutionResult, Update
from tests.alive import alive


@pytest.fixture
def note(folder: Path) -> Path:
    """The file where scripts record the processes they start."""
    return folder / "note"


def run(step: str, *, strict: bool = False) -> tuple[ExecutionResult, list[dict[str, Any]]]:
    """Run a step, and return the result and the warnings."""
    Path("leaving.yaml").write_text(f"flowengine: 1\nid: leaving\nsteps:\n{step}")
    warnings: list[dict[str, Any]] = []

    def hear(update: Update) -> None:
        if update.kind == "warning":
            warnings.append(update.data)

    if strict:
        Path(".flowengine").mkdir(exist_ok=True)
        Path(".flowengine/settings.yaml").write_text("strict: true\n")
    with Engine() as engine:
        engine.subscribe(hear)
        return engine.run("leaving.yaml"), warnings


def goes_on(pid: int) -> bool:
    """Return whether a process survives. A killed one may take a moment to end."""
    until = time.monotonic() + 60
    while alive(pid):
        if time.monotonic() > until:
            return True
        time.sleep(0.01)
    return False


SCRIPT = "  - {id: script, run: \"setsid -f bash -c 'echo $$ >> NOTE; exec sleep 7014'\"}\n"


@pytest.mark.parametrize("strict", [False, True])
def test_of_a_script_even_a_daemon_is_ended_and_told_of(note: Path, strict: bool) -> None:
    script = SCRIPT.replace("NOTE", str(note))
    fifo = note.with_name("fifo")
    os.mkfifo(fifo)
    script = script.replace("exec sleep", f"echo > {fifo}; exec sleep")
    script = script.replace('"}', f'; read < {fifo}"}}')  # keeps it alive until the script ends

    result, warnings = run(script, strict=strict)

    pid = int(note.read_text())
    assert not goes_on(pid)
    assert result.status == ("failed" if strict else "succeeded")
    if strict:
        assert result.error is not None
        assert result.error["type"] == "LeftRunning"
    else:
        assert [(each["address"], each["ended"]) for each in warnings] == [("script", True)]
        assert pid in [each["pid"] for each in warnings[0]["left"]]


def test_a_script_that_leaves_nothing_is_not_warned_of(note: Path) -> None:
    script = '  - {id: script, run: "exec > >(cat); echo told; sleep 0"}\n'

    result, warnings = run(script, strict=True)

    assert (result.status, warnings) == ("succeeded", [])
