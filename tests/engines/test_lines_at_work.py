# Shows V51
"""Files of what running attempts have logged, which the next process records if theirs dies."""

from __future__ import annotations

import json
import logging
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.engines.attempts.lines_at_work import LARGEST, LONGEST, LinesAtWork, LogLines
from tests.command_line import compile_flow

MODULE = """\
import os
import time
from pathlib import Path

from flowengine import quick
from flowengine.sdk import StepContext


def late(context: StepContext, mark: str) -> int:
    if Path(mark).exists():
        context.log.info("again")
        return 2
    context.log.info("first")
    context.log.warning("with key %s", os.environ["TOKEN"])
    Path(mark).touch()
    time.sleep(600)


@quick
def quick_and_late(context: StepContext, mark: str) -> int:
    return late(context, mark)
"""
HEAD = "flowengine: 1\nid: logs\nsecrets: {TOKEN: {env: TOKEN}}\nsteps:\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOKEN", "correct-horse-battery")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "logging_steps.py").write_text(MODULE)
    return tmp_path


def write(steps: str) -> Path:
    path = Path("flow.yaml")
    path.write_text(HEAD + steps)
    return path


def tries(engine: Engine, id: str) -> list[Any]:
    [shown] = engine.executions.show(id, step="late")["steps"]
    return list(shown["tries"])


def texts(attempt: Any) -> list[tuple[str, str]]:
    return [(line["level"], line["text"]) for line in attempt["log"]["lines"]]


def killed(folder: Path, effect: str = "idempotent", function: str = "late") -> None:
    """Kill a process whose attempt has logged."""
    mark = folder / "mark"
    flow = write(
        f'  - {{id: late, python: "logging_steps:{function}", effect: {effect}, '
        f'with: {{mark: "{mark}"}}}}\n'
    )
    compile_flow(flow)
    program = "from flowengine import Engine\nEngine('store').run('flow.yaml', id='it')"
    child = subprocess.Popen([sys.executable, "-c", program])
    while not mark.exists():
        assert child.poll() is None
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    child.wait()


def files_of_lines(folder: Path) -> list[Path]:
    return sorted(folder.glob("state/flowengine/stores/*/logs/*"))


@pytest.mark.endurance
def test_the_lines_of_a_killed_process_are_recorded_by_the_next_one(folder: Path) -> None:
    killed(folder)
    [file] = files_of_lines(folder)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert b"horse" not in file.read_bytes()
    with Engine("store") as engine:
        assert engine.resume("it").outputs is not None
        first, second = tries(engine, "it")
    assert (first["status"], texts(first)) == (
        "interrupted",
        [("INFO", "first"), ("WARNING", "with key ***")],
    )
    assert texts(second) == [("INFO", "again")]
    assert files_of_lines(folder) == []


@pytest.mark.endurance
@pytest.mark.parametrize("function", ["late", "quick_and_late"])
def test_who_decides_about_an_interrupted_attempt_sees_its_lines(
    folder: Path, function: str
) -> None:
    killed(folder, "once", function)
    with Engine("store") as engine:
        assert engine.resume("it").status == "stalled"
        [attempt] = tries(engine, "it")
    assert texts(attempt)[0] == ("INFO", "first")
    assert files_of_lines(folder) == []


@pytest.mark.endurance
@pytest.mark.parametrize("damage", ["torn", "garbage", "large", "hostile", "link"])
def test_a_damaged_file_of_lines_costs_no_more_than_lines(folder: Path, damage: str) -> None:
    killed(folder)
    [file] = files_of_lines(folder)
    whole, other = file.read_bytes(), folder / "other"
    found: list[tuple[str, str]] = [("INFO", "first"), ("WARNING", "with key ***")]
    if damage == "torn":
        file.write_bytes(whole[:-1] + whole)
    elif damage == "garbage":
        file.write_bytes(whole + os.urandom(30_000) + b"\n" + whole)
        found *= 2
    elif damage == "large":
        unit, attempt, at, level, _ = json.loads(whole.splitlines()[0])
        lines = [[unit, attempt, at, level, "x" * size] for size in (LONGEST + 1, LONGEST + 2)]
        file.write_text("\n".join(map(json.dumps, lines)) + "\n" + "[" * 10_000_000)
        found = [("INFO", "x" * (LONGEST + 1))]
    elif damage == "hostile":
        bad: list[Any] = [
            None,
            [],
            [1],
            ["1", 1, 1, "INFO", "a"],
            [1, 1, 1, "I" * 100, "a"],
            {"unit": 1},
        ]
        bad += [[1, 1, 1, "INFO", None], [True, 1, 1, "INFO", "a"], [1, 1, 1e9, "INFO", "a"]]
        file.write_text("".join(f"{json.dumps(one)}\n" for one in bad) + whole.decode())
    else:
        other.write_bytes(whole)
        file.unlink()
        file.symlink_to(other)
        found = []
    with Engine("store") as engine:
        assert engine.resume("it").outputs is not None
        first, second = tries(engine, "it")
    assert (texts(first) if "log" in first else []) == found
    assert texts(second) == [("INFO", "again")]
    assert files_of_lines(folder) == []
    assert not other.exists() or other.read_bytes() == whole


def test_a_file_of_lines_keeps_those_of_running_attempts(folder: Path) -> None:
    """Lines of ended attempts are removed from it when it is large."""
    file, running = LinesAtWork("store", "it"), LogLines()
    Engine("store").close()
    file.append((1, 1), running, running.append(logging.INFO, "at work"))
    for number in range(2, 600):
        ended = LogLines()
        for _ in range(3):
            file.append((number, 1), ended, ended.append(logging.INFO, "x" * LONGEST))
        del ended
    running.append(logging.INFO, "still")
    [path] = files_of_lines(folder)
    assert path.stat().st_size < 2 * LARGEST
    left = LinesAtWork("store", "it").read()
    assert [text for _, _, text in left[1, 1]["lines"]] == ["at work"]
    assert len(left) < 300
    file.close(is_over=False)
    assert path.exists()
    file.close(is_over=True)
    assert not path.exists()


def test_an_attempt_that_cannot_write_its_lines_is_not_affected(folder: Path) -> None:
    with Engine("store") as engine:
        [private] = folder.glob("state/flowengine/stores/*")
        (private / "logs").write_text("in the way")
        Path("mark").touch()
        flow = write('  - {id: late, python: "logging_steps:late", with: {mark: mark}}\n')
        assert engine.run(flow, id="it").status == "succeeded"
        [attempt] = tries(engine, "it")
    assert texts(attempt) == [("INFO", "again")]
