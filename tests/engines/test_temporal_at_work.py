# Shows D7
"""Attempts that are at work in a worker, while activities that watch them come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from temporalio.activity import ActivityCancellationDetails
from temporalio.testing import ActivityEnvironment

from flowengine.engines.guard import Pulse
from flowengine.engines.temporal import at_work
from flowengine.engines.temporal.at_work import AttemptAtWork, AtWork
from flowengine.engines.temporal.places import Place
from flowengine.engines.temporal.requests import AT_WORK, QUEUE, left_at_work
from tests.replacing import Limits

HEARTBEAT = 0.15
BEAT = HEARTBEAT / 3
CUT = {"type": "cut"}
DONE = {"type": "succeeded", "value": 1}
PLACE = Place("own", None)
GONE = ActivityCancellationDetails(not_found=True)


class Worker:
    """The attempts of a process, and activities of it."""

    def __init__(self) -> None:
        self.at_work = AtWork(PLACE, Pulse(), "1@here")
        self.entered, self.may_end = asyncio.Event(), asyncio.Event()
        self.is_taken = True
        """Whether the runs of the workflow take events."""
        self.happened: list[str] = []

    async def stay(self, attempt: AttemptAtWork) -> dict[str, Any]:
        """Be at work until the test goes on."""
        self.entered.set()
        try:
            await self.may_end.wait()
            return DONE
        except asyncio.CancelledError:
            await asyncio.sleep(2 * BEAT)
            self.happened.append("cleaned up")
            raise

    async def left(self, queue: str = QUEUE) -> str:
        """Begin an attempt whose activity has left it at work, and return its key."""
        result = await self.begun(queue).result
        where = (PLACE.watch_queue, "own", HEARTBEAT, "1@here")
        assert result == left_at_work(result["key"], *where)
        return str(result["key"])

    def begun(self, queue: str = QUEUE) -> Activity:
        async def begin() -> dict[str, Any]:
            return await self.at_work.begun(self.stay)

        return Activity(begin(), queue)

    def watched(self, key: str, *, stop: bool = False) -> Activity:
        """Watch an attempt. The result is its event."""
        events: list[dict[str, Any]] = []

        async def give(event: dict[str, Any]) -> bool:
            events.append(event)
            return self.is_taken

        async def watch() -> Any:
            await self.at_work.watch(key, give, stop=stop)
            return events.pop()

        return Activity(watch(), "own")


class Activity:
    """An activity at work."""

    def __init__(self, work: Coroutine[Any, Any, Any], queue: str) -> None:
        self.environment = ActivityEnvironment()
        self.environment.info = replace(
            self.environment.info,
            workflow_run_id=f"run {id(self)}",
            task_queue=queue,
            heartbeat_timeout=timedelta(seconds=HEARTBEAT),
        )
        self.beats: list[tuple[Any, ...]] = []
        self.environment.on_heartbeat = lambda *details: self.beats.append(details)

        async def run() -> Any:
            return await work

        self.result: asyncio.Task[Any] = asyncio.create_task(self.environment.run(run))

    async def received(self, beats: int) -> None:
        while len(self.beats) < beats:  # noqa: ASYNC110 - no event to await
            await asyncio.sleep(0.01)

    async def ended(self, why: ActivityCancellationDetails) -> None:
        """Cancel the activity, and wait for its end."""
        self.environment.cancel(why)
        with pytest.raises(asyncio.CancelledError):
            await self.result


class Clock:
    """A clock by which heartbeats are only late if a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def read(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch, limits: Limits) -> Clock:
    """The clock of the worker, by which attempts are long after one heartbeat of three."""
    clock = Clock()
    monkeypatch.setattr(at_work, "_now", clock.read)
    limits(at_work, LONG=-1)
    return clock


def run(test: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await test

    asyncio.run(bounded())


def test_an_attempt_outlives_its_activities_and_gives_its_event_to_each() -> None:
    async def test() -> None:
        worker = Worker()
        key = await worker.left()
        first = worker.watched(key)
        await first.received(1)
        assert len(first.beats[0]) == 2  # without a log, too: it says that it has arrived
        await first.ended(GONE)
        second = worker.watched(key)
        await second.received(2)
        worker.may_end.set()
        assert await second.result == DONE
        assert await worker.watched(key).result == DONE  # the answer before may be lost
        assert worker.happened == []
        await worker.at_work.close()

    run(test())


def test_an_attempt_without_watches_is_cut_off(limits: Limits) -> None:
    async def test() -> None:
        worker = Worker()
        key = await worker.left()
        watch = worker.watched(key)
        await watch.received(3)  # longer than the time that one may be without
        await watch.ended(GONE)
        late = worker.watched(key)
        await late.received(1)
        await late.ended(GONE)
        [attempt] = worker.at_work._left.values()
        await asyncio.wait([attempt.task])
        assert worker.happened == ["cleaned up"]
        assert await worker.watched(key).result == CUT
        while worker.at_work._left:  # noqa: ASYNC110 - no event to await
            await asyncio.sleep(0.01)
        assert not worker.at_work._attempts

    limits(at_work, UNWATCHED=0.5)
    run(test())


def test_an_attempt_that_may_count_as_interrupted_does_not_go_on(clock: Clock) -> None:
    """The process was held up, so that the server may not have received heartbeats in time."""

    async def test() -> None:
        worker = Worker()
        key = await worker.left()
        watch = worker.watched(key)
        await watch.received(2)
        clock.now += HEARTBEAT
        await watch.received(3)
        watch.environment.cancel(GONE)
        assert await watch.result == CUT
        assert worker.happened == ["cleaned up"]
        await worker.at_work.close()

    run(test())


@pytest.mark.parametrize("how", ["flag", "cancellation"])
def test_a_stopped_attempt_has_ended_before_its_activity(how: str) -> None:
    async def test() -> None:
        worker = Worker()
        key = await worker.left()
        watch = worker.watched(key, stop=how == "flag")
        if how == "flag":
            assert await watch.result == CUT
        else:
            await watch.received(1)
            await watch.ended(ActivityCancellationDetails(cancel_requested=True))
        assert worker.happened == ["cleaned up"]
        await worker.at_work.close()

    run(test())


def test_a_worker_that_shuts_down_leaves_no_attempt_at_work() -> None:
    async def test() -> None:
        worker = Worker()
        watched, unwatched = await worker.left(), await worker.left()
        watch, begun = worker.watched(watched), worker.begun()
        stopping = asyncio.create_task(worker.at_work.drain())
        await begun.received(2)
        stopping.cancel()
        assert not begun.result.done()  # nothing could watch it
        for activity in (watch, begun):
            activity.environment.cancel(ActivityCancellationDetails(worker_shutdown=True))
            assert await activity.result == CUT
        worker.at_work._left[unwatched].lose()
        await asyncio.sleep(BEAT)  # it cleans up
        await worker.at_work.close()
        assert len(worker.happened) == 3
        assert worker.at_work._left[unwatched].task.done()

    run(test())


def test_a_worker_that_shuts_down_returns_what_has_ended_unwatched() -> None:
    async def test() -> None:
        worker = Worker()
        key, stopped = await worker.left(), await worker.left()
        assert await worker.watched(stopped, stop=True).result == CUT
        watched = asyncio.create_task(worker.at_work.drain())
        over = asyncio.create_task(worker.at_work.all_over())
        worker.may_end.set()
        await asyncio.wait([attempt.task for attempt in worker.at_work._left.values()])
        await asyncio.sleep(BEAT)
        assert not watched.done()
        assert not over.done()  # the result would be lost
        worker.is_taken = False  # its run has been continued
        assert await worker.watched(key).result == DONE
        await asyncio.sleep(BEAT)
        assert not over.done()
        worker.is_taken = True
        assert await worker.watched(key).result == DONE
        await asyncio.gather(watched, over)
        await worker.at_work.close()

    run(test())


def test_long_attempts_do_not_take_a_worker_beyond_twice_its_capacity(limits: Limits) -> None:
    async def test() -> None:
        worker = Worker()
        await worker.left()
        await worker.left("own")  # not counted
        await worker.left()
        more = worker.begun()
        await more.received(2)
        assert not more.result.done()
        worker.may_end.set()
        assert (await more.result)["type"] != AT_WORK
        await worker.at_work.close()

    limits(at_work, PLACES=2)
    run(test())
