# Shows V51
"""Lines that steps log: their times, bounds and forms (also `step_logs.cases.yaml`)."""

from __future__ import annotations

from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from flowengine import Engine
from flowengine.engines.attempts.lines_at_work import LONGEST, MOST_BYTES, MOST_LINES, LogLines
from flowengine.errors import StoreError
from flowengine.journal.encoding import pack
from flowengine.journal.shapes import unpack_event
from flowengine.sdk.steps.step_log import StepLog

MODULE = """\
from pathlib import Path

from flowengine.sdk import StepContext


def say(context: StepContext) -> None:
    context.log.info("said")


async def slow(context: StepContext, mark: str) -> int:
    import asyncio

    context.log.info("began")
    Path(mark).touch()
    await asyncio.sleep(600)
"""
HEAD = "flowengine: 1\nid: logs\nsteps:\n"
pytestmark = pytest.mark.usefixtures("folder")
FILES = {"logging_steps.py": MODULE}


def write(steps: str) -> Path:
    path = Path("flow.yaml")
    path.write_text(HEAD + steps)
    return path


def tries(engine: Engine, id: str, step: str) -> list[Any]:
    [shown] = engine.executions.show(id, step=step)["steps"]
    return list(shown["tries"])


def texts(attempt: Any) -> list[tuple[str, str]]:
    return [(line["level"], line["text"]) for line in attempt["log"]["lines"]]


def test_an_attempt_that_times_out_has_its_lines(folder: Path) -> None:
    for seconds in (1, 20):  # a busy machine may take longer until the step begins
        mark = folder / f"mark{seconds}"
        flow = write(
            f"  - {{id: slow, timeout: {seconds}s, "
            f'python: "logging_steps:slow", with: {{mark: "{mark}"}}}}\n'
        )
        with Engine("store") as engine:
            id = engine.run(flow).execution
            if mark.exists():
                [attempt] = tries(engine, id, "slow")
                break
    assert attempt["error"]["type"] == "Timeout"
    assert texts(attempt) == [("INFO", "began")]


class Hostile:
    def __str__(self) -> str:
        raise RuntimeError("no text")


def step_log(lines: LogLines) -> StepLog:
    return StepLog("e1", "step", lambda value: value, keep=lines.append)


def test_hostile_lines_are_data() -> None:
    lines = LogLines()
    log = step_log(lines)
    hostile = "\x1b[2J\x00<script>alert(1)</script>\r\n\u202e"
    log.info(hostile)
    log.info("half \ud800 of a character")
    log.info("%d things", "no")
    log.info("%s", Hostile())
    log.info(Hostile())
    log.log(31, "own level")
    log.error("with a given one", exc_info=ValueError("given"))
    log.error("without one", exc_info=True)
    kept: Any = lines.log()
    assert [(level, text) for _, level, text in kept["lines"]] == [
        ("INFO", hostile),
        ("INFO", "half ? of a character"),
        ("INFO", "a line that cannot be made: TypeError"),
        ("INFO", "a line that cannot be made: RuntimeError"),
        ("INFO", "a line that cannot be made: RuntimeError"),
        ("Level 31", "own level"),
        ("ERROR", "with a given one\nValueError: given"),
        ("ERROR", "without one"),
    ]
    event = {"type": "succeeded", "at": 1, "unit": 1, "attempt": 1, "value": None, "log": kept}
    assert unpack_event(pack(event), "it") == event


def test_lines_are_bounded_in_number_and_size() -> None:
    lines = LogLines()
    log = step_log(lines)
    for number in range(MOST_LINES + 5):
        log.info("line %d", number)
    kept: Any = lines.log()
    assert (len(kept["lines"]), kept["left_out"]) == (MOST_LINES, 5)
    assert kept["lines"][0][2] == "line 5"

    log.info("ä" * 10_000_000)
    kept = lines.log()
    assert kept["lines"][-1][2] == "ä" * LONGEST + "…"
    assert kept["lines"][-2][2] == f"line {MOST_LINES + 4}"
    for _ in range(10):
        log.info("€" * LONGEST)
    kept = lines.log()
    assert len(kept["lines"]) == MOST_BYTES // (3 * LONGEST + 3)
    assert kept["left_out"] == MOST_LINES + 5 + 1 + 10 - len(kept["lines"])
    assert len(pack(kept)) < MOST_BYTES + 100


def test_a_secret_at_the_cut_is_masked_before_it() -> None:
    lines = LogLines()
    log = StepLog(
        "e1", "step", lambda value: str(value).replace("hunter2", "***"), keep=lines.append
    )
    for at in range(8):
        log.info("x" * (LONGEST - at) + "hunter2")
    assert "hunt" not in str(lines.log())


def test_several_threads_log_at_the_same_time() -> None:
    lines = LogLines()
    log = step_log(lines)

    def work() -> None:
        for _ in range(500):
            log.info("a line")

    threads = [Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept: Any = lines.log()
    assert len(kept["lines"]) + kept["left_out"] == 2000


@pytest.mark.parametrize(
    "log", [1, {}, {"lines": 1}, {"lines": [1]}, {"lines": [[1, "INFO"]]}, {"lines": [["a"] * 3]}]
)
def test_a_damaged_log_is_named(log: Any) -> None:
    event = {"type": "succeeded", "at": 1, "unit": 1, "attempt": 1, "value": None, "log": log}
    with pytest.raises(StoreError, match="it is damaged"):
        unpack_event(pack(event), "it")
