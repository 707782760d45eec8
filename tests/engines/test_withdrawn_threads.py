"""Functions that had returned on a thread before their withdrawal cause no question."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from flowengine.engines.engine import Engine
from flowengine.engines.results import Update
from flowengine.engines.running import work
from flowengine.sdk.python.user_code import on_thread
from tests.engines import world
from tests.replacing import Limits

MODULE = '''
import asyncio
import threading

begun, may_end, undone = threading.Event(), threading.Event(), []


def pay() -> int:
    begun.set()
    assert may_end.wait(60)
    return 7


async def refuse() -> None:
    """Hold the loop until the other function has returned, so that it is withdrawn after that."""
    while not begun.is_set():
        await asyncio.sleep(0.001)
    loop, ended = asyncio.get_running_loop(), threading.Event()
    tell = loop.call_soon_threadsafe
    loop.call_soon_threadsafe = lambda *words: (tell(*words), ended.set())
    may_end.set()
    assert ended.wait(60)
    loop.call_soon_threadsafe = tell
    raise ValueError("refused")


def give_back(amount: int) -> None:
    undone.append(amount)
'''
SAGA = """
steps:
  - id: both
    parallel:
      - {id: paid, python: "saga:pay", compensate: {python: "saga:give_back", with: {amount: "${{ output }}"}}}
      - {id: refused, python: "saga:refuse"}
    on_error: [{compensate: true}]
"""  # noqa: E501


def test_what_a_withdrawn_function_returned_is_undone_and_nobody_is_asked(
    tmp_path: Path, limits: Limits
) -> None:
    limits(work, LATE_SECONDS=3600.0)  # no time limit, even on a busy machine
    flow = world.make(tmp_path, SAGA)
    (tmp_path / "saga.py").write_text(MODULE)
    with Engine(None, user="user:me") as engine:
        result = engine.run(flow)
        history = engine.executions.show(result.execution)["steps"]

    assert result.status == "failed"
    assert result.error is not None
    assert result.error["message"] == "refused"
    assert ("both/paid/compensate", "succeeded") in [(s["address"], s["status"]) for s in history]


LATE = """
import threading

from flowengine.sdk import StepContext

begun, may_end = threading.Event(), threading.Event()


def pay(context: StepContext) -> int:
    begun.set()
    assert context.cancelled.wait(60)
    END


def refuse() -> None:
    assert begun.wait(60)
    raise ValueError("refused")


class Panic(BaseException):
    pass


def give_back(amount: int) -> None:
    pass
"""
ENDS = {
    "returns": ("return 7", True),
    "fails": ("raise OSError('not paid')", False),
    "panics": ("raise Panic('not paid')", False),
}


@pytest.mark.parametrize("way", ENDS)
def test_what_a_function_does_soon_after_it_was_withdrawn_is_known(
    tmp_path: Path, limits: Limits, way: str
) -> None:
    limits(work, LATE_SECONDS=3600.0)
    flow = world.make(tmp_path, SAGA)
    ends, undone = ENDS[way]
    (tmp_path / "saga.py").write_text(LATE.replace("END", ends))
    with Engine(None, user="user:me") as engine:
        told: list[Update] = []
        engine.subscribe(told.append)
        result = engine.run(flow)
        history = engine.executions.show(result.execution)["steps"]
        events = list(engine.executions.events(result.execution))

    assert (result.status, result.waits) == ("failed", [])
    assert result.error is not None
    assert result.error["message"] == "refused"
    assert any(one["address"] == "both/paid/compensate" for one in history) is undone
    assert not any(one["type"] == "decided" for one in events)
    asked = [one.data for one in told if one.kind == "wait" and "how" not in one.data]
    assert asked == [], "nobody was asked"


def hanging(folder: Path) -> Path:
    """Write a flow whose withdrawn function ends once the file `go` exists."""
    flow = world.make(folder, SAGA)
    wait = "import time\n    from pathlib import Path\n    "
    wait += f"while not Path({str(folder / 'go')!r}).exists(): time.sleep(0.01)\n    return 7"
    (folder / "saga.py").write_text(LATE.replace("END", wait))
    return flow


def test_a_function_that_does_not_end_is_asked_about(tmp_path: Path, limits: Limits) -> None:
    limits(work, LATE_SECONDS=0.05)
    with Engine(None, user="user:me") as engine:
        told: list[Update] = []
        engine.subscribe(told.append)
        result = engine.run(hanging(tmp_path))
        (tmp_path / "go").touch()
        asked = [one.data["kind"] for one in told if one.kind == "wait" and "how" not in one.data]
        assert asked == ["question"]
        assert [wait["kind"] for wait in result.waits] == ["question"]
        done = engine.approvals.decide(result.waits[0]["id"], "fail").result
        assert done is not None
        assert done.status == "failed"


def test_who_stops_driving_does_not_wait_for_a_withdrawn_function(
    tmp_path: Path, limits: Limits
) -> None:
    limits(work, LATE_SECONDS=3600.0)
    flow = hanging(tmp_path)

    async def stopped() -> str:
        async with Engine(None, user="user:me") as engine:
            running = asyncio.create_task(engine.run_async(flow, id="it"))
            while not engine.approvals.list().items:  # noqa: ASYNC110 - no event to await
                await asyncio.sleep(0.01)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            [wait] = engine.executions.result("it").waits
            return str(wait["kind"])

    assert asyncio.run(asyncio.wait_for(stopped(), 60)) == "question"
    (tmp_path / "go").touch()


def test_what_runs_on_is_withdrawn() -> None:
    may_end = threading.Event()

    async def withdrawn() -> None:
        task = asyncio.get_running_loop().create_task(on_thread(lambda: may_end.wait(60)))
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(withdrawn())
    may_end.set()
