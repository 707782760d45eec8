"""Cost of a step in Python function calls, a figure that does not depend on the machine's load."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections import Counter
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from types import FrameType

import pytest

import flowengine
from flowengine.engines.running import driver, driving
from flowengine.journal.sqlite.store import SqliteStore

MODULE = """\
from flowengine import quick

@quick
def nothing() -> int:
    return 1

@quick
def change(value: dict) -> dict:
    return {**value, "number": 1}

async def ended() -> int:
    return 1

def threaded() -> int:
    return 1
"""
HEAD = """\
flowengine: 1
id: cost
tools:
  nothing: {python: "cost_tools:nothing", args: {type: object}, effect: pure}
  change: {python: "cost_tools:change", args: {type: object}, effect: pure}
  put: {python: "cost_tools:change", args: {type: object}, effect: idempotent}
  ended: {python: "cost_tools:ended", args: {type: object}, effect: pure}
  threaded: {python: "cost_tools:threaded", args: {type: object}, effect: pure}
limits: {steps: 100000}
inputs: {count: {type: integer}}
"""
CHAIN = "steps:\n" + "".join(f"  - {{id: s{n}, call: nothing}}\n" for n in range(200))
CHANGING = "steps:\n  - {id: s0, call: change, with: {value: {number: 0}}}\n" + "".join(
    f"  - {{id: s{n}, call: change, with: {{value: '${{{{ steps.s{n - 1}.output }}}}'}}}}\n"
    for n in range(1, 200)
)
LOOP = """\
state: {last: {type: object, default: {number: 0}}}
steps:
  - id: again
    call: change
    with: {value: "${{ state.last }}"}
    set: {last: "${{ output }}"}
    loop: {until: "${{ round.number >= inputs.count }}", max: 1000}
"""
ITEMS = "steps:\n  - {id: each, call: nothing, map: '${{ inputs.count }}'}\n"


@pytest.mark.parametrize(
    ("body", "most"),
    [
        pytest.param(CHAIN, 37, id="chain of trivial steps"),
        pytest.param(CHANGING, 51, id="chain of steps that use the one before"),
        pytest.param(
            CHANGING.replace("change", "put"), 51, id="chain of idempotent steps, in memory"
        ),
        pytest.param(LOOP, 81, id="round of a loop"),
        pytest.param(ITEMS, 42, id="item of a map"),
        pytest.param(CHAIN.replace("nothing", "ended"), 130, id="chain of coroutines"),
        pytest.param(
            CHAIN.replace("nothing", "threaded"), 166, id="chain of functions on a thread"
        ),
    ],
)
def test_a_step_makes_few_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, most: int
) -> None:
    monkeypatch.setattr(driver, "QUICK_SECONDS", 60)  # a busy machine would stop more often
    monkeypatch.setattr(driving, "SYNC_SECONDS", 60)
    (tmp_path / "cost_tools.py").write_text(MODULE)
    path = tmp_path / "cost.yaml"
    path.write_text(HEAD + body)
    flow = flowengine.load(path)
    with flowengine.Engine(None) as engine:
        engine.run(flow, {"count": 200})  # links the flow
        calls = calls_of(lambda: engine.run(flow, {"count": 200}))
    assert calls.total() / 200 <= most, calls.most_common(60)


@pytest.mark.parametrize(("watched", "most"), [(False, 68), (True, 96)])
def test_a_step_that_acts_and_its_commit_make_few_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, watched: bool, most: int
) -> None:
    monkeypatch.setattr(driver, "TURNS_SECONDS", 60)
    monkeypatch.setattr(driving, "SYNC_SECONDS", 60)
    (tmp_path / "cost_tools.py").write_text(MODULE)
    path = tmp_path / "cost.yaml"
    path.write_text((HEAD + CHANGING).replace("effect: pure", "effect: idempotent"))
    flow = flowengine.load(path)
    with flowengine.Engine(tmp_path / "store", durability="process") as engine:
        if watched:
            engine.subscribe(lambda update: None)
        engine.run(flow, {"count": 200})
        calls = calls_of(lambda: engine.run(flow, {"count": 200}))
    assert calls.total() / 200 <= most, calls.most_common(60)


def test_a_coroutine_that_ends_at_once_takes_two_rounds_of_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs in one. In the other, its result is committed and the next step starts."""
    monkeypatch.setattr(driver, "TURNS_SECONDS", 60)
    (tmp_path / "cost_tools.py").write_text(MODULE)
    path = tmp_path / "cost.yaml"
    path.write_text(HEAD + CHAIN.replace("nothing", "ended"))
    flow = flowengine.load(path)
    rounds = 0

    async def count() -> None:
        nonlocal rounds
        while True:
            await asyncio.sleep(0)
            rounds += 1

    async def main() -> None:
        nonlocal rounds
        async with flowengine.Engine(None) as engine:
            await engine.run_async(flow, {"count": 0})  # links the flow
            counting = asyncio.create_task(count())
            result = await engine.run_async(flow, {"count": 0})
            counting.cancel()
        assert result.status == "succeeded"

    asyncio.run(main())
    assert rounds <= 2 * 200 + 5


@pytest.mark.endurance
def test_executions_at_once_cost_as_much_as_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executions that must wait for their turn are not polled."""
    monkeypatch.setattr(driver, "QUICK_SECONDS", 0)  # one step per turn, as on a busy machine
    (tmp_path / "cost_tools.py").write_text(MODULE)
    path = tmp_path / "cost.yaml"
    path.write_text(
        HEAD + "steps:\n" + "".join(f"  - {{id: s{n}, call: nothing}}\n" for n in range(5))
    )
    flow = flowengine.load(path)

    async def at_once(count: int) -> flowengine.ExecutionResult:
        async with flowengine.Engine(None) as engine:
            runs = (engine.run_async(flow, {"count": 0}) for _ in range(count))
            return (await asyncio.gather(*runs))[-1]

    asyncio.run(at_once(1))  # links the flow
    few = calls_of(lambda: asyncio.run(at_once(20))).total()
    many = calls_of(lambda: asyncio.run(at_once(160))).total()

    assert many / few < 8 * 1.25


def calls_of(work: Callable[[], flowengine.ExecutionResult]) -> Counter[str]:
    """Return the Python functions called while `work` runs, and how often."""
    gc.collect()  # asyncio looks at all tasks of the process, also at those of earlier tests
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            calls[frame.f_code.co_qualname] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        result = work()
    finally:
        sys.setprofile(before)
    assert result.status == "succeeded"
    return calls


def test_an_execution_takes_few_statements(tmp_path: Path) -> None:
    """Three statements create an execution and five end it, besides those that open the commits.

    Triggers, which keep the counts of lists, are traced as repetitions of their statement.
    """
    (tmp_path / "cost_tools.py").write_text(MODULE)
    path = tmp_path / "cost.yaml"
    path.write_text(
        HEAD + "steps:\n" + "".join(f"  - {{id: s{n}, call: nothing}}\n" for n in range(5))
    )
    flow = flowengine.load(path)
    statements: list[str] = []

    async def at_once(count: int) -> None:
        store = SqliteStore(tmp_path / "flowengine.db", "process")
        async with flowengine.Engine(store) as engine:
            await engine.run_async(flow, {"count": 0})  # stores the flow
            store._database.connection().set_trace_callback(statements.append)
            await asyncio.gather(*(engine.run_async(flow, {"count": 0}) for _ in range(count)))

    asyncio.run(at_once(100))
    own = Counter(" ".join(text.split()[:3]) for text, _ in groupby(statements))
    for opening in ("BEGIN", "BEGIN IMMEDIATE", "COMMIT", "PRAGMA data_version"):
        own.pop(opening, None)
    events = own.pop("INSERT INTO events")
    assert events == 100 * 6
    assert own.total() / 100 <= 6.5, own
