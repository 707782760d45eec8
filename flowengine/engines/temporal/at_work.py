"""Attempts at work in this process, and the activities that watch them.

Temporal forgets the activities of a run when the workflow continues in another one. So the activity
of a long attempt ends before the attempt does, and the workflow begins another activity at this
process, which watches it. Each run can begin one. An attempt that no activity watches is cut off.

An attempt is lost once it may begin again elsewhere. Its work here is then ended: its task
and its programs, its functions on threads, and if one of those continues, the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from temporalio import activity
from temporalio.client import AsyncActivityCancelledError
from temporalio.service import RPCError, RPCStatusCode

from flowengine.engines.attempts.printed import Printed
from flowengine.engines.guard import BEATS, END, Pulse, Slot
from flowengine.engines.guard import now as _now
from flowengine.engines.temporal.heartbeat import LONG, UNWATCHED
from flowengine.engines.temporal.places import Place
from flowengine.engines.temporal.requests import PLACES, QUEUE, beat_of, cut, left_at_work
from flowengine.kernel.events import Log
from flowengine.sdk.python.user_code import Calls

GRACE = 1.0
"""Seconds that the functions of a lost attempt have to end."""


class AttemptAtWork:
    """An attempt at work in this process.

    Args:
        work: Does its work, and returns the event. Called with the attempt.
        may_begin: Returns whether it is still this process's own.
    """

    def __init__(
        self,
        work: Callable[[AttemptAtWork], Coroutine[Any, Any, dict[str, Any]]],
        may_begin: Callable[[], bool] = lambda: True,
    ) -> None:
        self.printed: Printed | None = None
        """Its output, as soon as that is known."""
        self.calls = Calls(may_begin)
        """Its functions on threads."""
        self.execution = ""
        self.timeout = 0.0
        """Seconds without a heartbeat after which it may begin again elsewhere."""
        self.slot = -1
        """Its place in the shared memory of this process and its guard."""
        self.lost_at: float | None = None
        """When it was lost."""
        self.task = asyncio.create_task(work(self))
        self.is_counted = False
        """Whether it has left its place on the shared task queue."""
        self.watches = 0
        self.is_watched = asyncio.Event()
        """Set while there are any, and after the end."""
        self.is_over = asyncio.Event()
        """Set once a run of its workflow has taken its event, or none needs it any more."""
        self.cutting: asyncio.Task[None] | None = None
        """Cuts it off, while no activity watches it."""

    @property
    def log(self) -> Log | None:
        lines = None if self.printed is None else self.printed.lines
        return None if lines is None else lines.log()

    def event(self) -> dict[str, Any]:
        """Return its event, after it has ended.

        Raises:
            Exception: It has failed in an unforeseen way.
        """
        return cut(self.log) if self.task.cancelled() else self.task.result()

    def cut(self) -> None:
        """Cut it off, once: another cancellation would interrupt its cleanup."""
        if not self.task.cancelling():
            self.task.cancel()

    def lose(self) -> None:
        """Cut it off, because it may begin again elsewhere."""
        self.cut()
        self.calls.interrupt()
        if self.lost_at is None:
            self.lost_at = _now()

    def end(self) -> None:
        """Note that it needs no activity any more."""
        self.is_watched.set()
        self.is_over.set()


class AtWork:
    """The attempts of this process.

    Args:
        place: Of this process.
        pulse: Of this process.
        who: The identity of this process in Temporal.
    """

    def __init__(self, place: Place, pulse: Pulse, who: str) -> None:
        self._place = place
        self._who = who
        self._pulse = pulse
        self._attempts: set[AttemptAtWork] = set()
        self._lost: set[AttemptAtWork] = set()
        """Lost attempts whose functions on threads are still at work."""
        self._left: dict[str, AttemptAtWork] = {}
        """Key → attempt that its first activity has left at work. It remains for some time after
        its end: no run of its workflow has taken its event if one was continued at that moment."""
        self._is_draining = False

    def has_any(self, execution: str) -> bool:
        """Return whether an attempt of an execution is at work here."""
        return any(attempt.execution == execution for attempt in self._attempts)

    def cut_lost(self) -> list[AttemptAtWork]:
        """Cut off the attempts that may begin again elsewhere soon.

        Returns:
            Those whose functions are still at work, although they had time to end.
        """
        for attempt in [*self._attempts]:
            if self._pulse.is_lost(attempt.timeout):
                attempt.lose()
        for attempt in [*self._lost]:
            if not attempt.calls.at_work:
                self._lost.discard(attempt)
                self._pulse.free(attempt.slot)
        return [
            attempt
            for attempt in self._lost
            if _now() - (attempt.lost_at or 0.0) > GRACE
            or self._pulse.is_lost(attempt.timeout, END)
        ]

    async def close(self) -> None:
        """Cut off all attempts, and wait until they have ended."""
        for attempt in self._attempts:
            attempt.cut()
        tasks: list[asyncio.Task[Any]] = [attempt.task for attempt in self._attempts]
        for attempt in self._left.values():
            if attempt.cutting is not None:
                attempt.cutting.cancel()
                tasks.append(attempt.cutting)
        if tasks:
            await asyncio.wait(tasks)

    async def drain(self) -> None:
        """Let no attempt leave its activity any more, and wait until those that have are watched.

        After its end, too, an attempt needs an activity that returns its event. If none comes, it
        is cut off or forgotten after some time, so this takes no longer.
        """
        self._is_draining = True
        while unwatched := [left for left in self._left.values() if not left.is_watched.is_set()]:
            await unwatched[0].is_watched.wait()

    async def all_over(self) -> None:
        """Wait until no attempt that has left its activity needs another one."""
        for attempt in [*self._left.values()]:
            await attempt.is_over.wait()

    async def begun(
        self, work: Callable[[AttemptAtWork], Coroutine[Any, Any, dict[str, Any]]]
    ) -> dict[str, Any]:
        """Begin an attempt, in its activity.

        Returns:
            Its event. If it is still at work after a long time: see `left_at_work`.

        Raises:
            asyncio.CancelledError: The workflow has stopped it.
        """
        info, timeout = activity.info(), _timeout()
        attempt = AttemptAtWork(work, lambda: not self._pulse.is_lost(timeout))
        attempt.execution, attempt.timeout = info.workflow_id or "", timeout
        attempt.slot = self._pulse.claim(Slot(timeout, True, info.task_token))
        self._attempts.add(attempt)
        attempt.task.add_done_callback(lambda _: self._ended(attempt))
        event = await _Watch(attempt, self._pulse, self._may_leave).event()
        return self._leave(attempt) if event is None else event

    def _ended(self, attempt: AttemptAtWork) -> None:
        """Note that the task of an attempt has ended."""
        self._attempts.discard(attempt)
        if attempt.lost_at is not None and attempt.calls.at_work:
            self._lost.add(attempt)
            self._beat_for(attempt, b"")
        else:
            self._pulse.free(attempt.slot)

    def _beat_for(self, attempt: AttemptAtWork, token: bytes) -> None:
        """Have the guard send heartbeats for another activity of an attempt, or for none."""
        if attempt in self._attempts or attempt in self._lost:
            self._pulse.put(attempt.slot, Slot(attempt.timeout, True, token))

    def _may_leave(self) -> bool:
        """Return whether the activity of a long attempt may end before it.

        As many attempts as there are places on the shared task queue can leave theirs to others.
        """
        if self._is_draining:
            return False
        counted = sum(
            attempt.is_counted and not attempt.task.done() for attempt in self._left.values()
        )
        return activity.info().task_queue != QUEUE or counted < PLACES

    def _leave(self, attempt: AttemptAtWork) -> dict[str, Any]:
        info, timeout = activity.info(), _timeout()
        key = f"{info.workflow_run_id}/{info.activity_id}"
        attempt.is_counted = info.task_queue == QUEUE
        self._left[key] = attempt
        self._beat_for(attempt, b"")
        attempt.cutting = asyncio.create_task(self._cut_unwatched(key, UNWATCHED * timeout))
        place = self._place
        return left_at_work(key, place.watch_queue, place.queue, timeout, self._who)

    async def watch(
        self, key: str, give: Callable[[dict[str, Any]], Awaitable[bool]], *, stop: bool
    ) -> None:
        """Watch an attempt to its end, in another activity.

        Args:
            key: Of the attempt.
            give: Completes the activity with an event, and returns whether its run has taken it. If
                it was continued, another run needs it.
            stop: Whether to stop the attempt.

        Raises:
            asyncio.CancelledError: The workflow has stopped it, or has been continued.
        """
        attempt = self._left.get(key)
        if attempt is None:
            attempt = AttemptAtWork(_ended)
            stop = False
        if attempt.cutting is not None:
            attempt.cutting.cancel()
        attempt.watches += 1
        attempt.is_watched.set()
        self._beat_for(attempt, activity.info().task_token)
        if stop:
            attempt.cut()
        try:
            event = await _Watch(attempt, self._pulse).event()
            assert event is not None
            if await give(event):
                attempt.end()
        finally:
            attempt.watches -= 1
            if attempt.task.cancelled():
                attempt.end()
            if attempt.watches == 0:
                self._beat_for(attempt, b"")
                if not attempt.is_over.is_set():
                    attempt.is_watched.clear()
                if key in self._left:
                    unwatched = self._cut_unwatched(key, UNWATCHED * _timeout())
                    attempt.cutting = asyncio.create_task(unwatched)

    async def _cut_unwatched(self, key: str, seconds: float) -> None:
        """Cut off and forget an attempt that no activity watches."""
        attempt = self._left[key]
        await asyncio.sleep(seconds)
        if not attempt.task.done():
            attempt.lose()
            await asyncio.wait([attempt.task])
            attempt.end()
            await asyncio.sleep(seconds)
        if not attempt.task.cancelled():
            attempt.task.exception()  # else it is logged
        del self._left[key]
        attempt.end()


class _Watch:
    """An activity that waits for the end of an attempt.

    Args:
        attempt: The attempt.
        pulse: Of this process.
        may_leave: Whether the activity may end before a long attempt. None: it does not, since an
            activity of another run may watch it.
    """

    def __init__(
        self,
        attempt: AttemptAtWork,
        pulse: Pulse,
        may_leave: Callable[[], bool] | None = None,
    ) -> None:
        self._attempt = attempt
        self._pulse = pulse
        self._may_leave = may_leave
        self._begun = _now()
        self._last = self._begun
        """When the last heartbeat was sent."""
        self._late: float | None = None
        """When one was so late that the server may have counted the attempt as interrupted."""
        self._is_stopped = False
        self._beating: asyncio.Task[None] | None = None
        """Sends heartbeats, once the library does not any more."""

    async def event(self) -> dict[str, Any] | None:
        """Wait for the end of the attempt.

        Returns:
            Its event. None if the activity may leave it at work.

        Raises:
            asyncio.CancelledError: The workflow has stopped it, or another run of it may watch it.
        """
        attempt, timeout = self._attempt, _timeout()
        is_ending = False
        if self._may_leave is None:
            self._beat(timeout)  # it has arrived
        while not attempt.task.done():
            try:
                await asyncio.wait([attempt.task], timeout=timeout / BEATS)
            except asyncio.CancelledError:
                if self._goes_on(timeout):
                    continue
                if self._is_abandoned(timeout):
                    raise
                is_ending = True
                if _details().not_found:
                    attempt.lose()
                attempt.cut()
                continue
            if attempt.task.done():
                break
            self._beat(timeout)
            if self._is_long(timeout) and not is_ending:
                return None
        if self._is_stopped and attempt.task.cancelled():
            raise asyncio.CancelledError
        return attempt.event()

    def _goes_on(self, timeout: float) -> bool:
        """Return whether only the library counts the activity as interrupted, by its own clock.

        The process was held up, and the guard has sent heartbeats. From now on, they are sent here.
        """
        if not _details().timed_out or self._pulse.is_lost(timeout):
            return False
        if self._beating is None:
            self._beating = asyncio.create_task(self._beat_alone(timeout / BEATS))
            self._attempt.task.add_done_callback(lambda _: self._end_beating())
        return True

    def _end_beating(self) -> None:
        assert self._beating is not None
        self._beating.cancel()

    async def _beat_alone(self, pause: float) -> None:
        """Send heartbeats without the library."""
        client, token = activity.client(), activity.info().task_token
        handle = client.get_async_activity_handle(task_token=token)
        while True:
            try:
                await handle.heartbeat(*beat_of(self._attempt.log))
            except AsyncActivityCancelledError:
                self._is_stopped = True
                self._attempt.cut()
                return
            except RPCError as error:
                if error.status == RPCStatusCode.NOT_FOUND:
                    self._attempt.lose()
                    return
            await asyncio.sleep(pause)

    def _is_abandoned(self, timeout: float) -> bool:
        """Return whether the activity was cancelled because its run has ended.

        Another run may watch the attempt. If heartbeats were late, the attempt may count as
        interrupted instead, and has to end.
        """
        details = _details()
        self._is_stopped = self._is_stopped or details.cancel_requested
        is_late = self._late is not None and _now() - self._late < timeout
        return details.not_found and self._may_leave is None and not is_late

    def _is_long(self, timeout: float) -> bool:
        """Return whether the activity can leave the attempt at work."""
        if self._may_leave is None:
            return False
        since, now = self._begun if self._late is None else self._late, _now()
        is_heard = now - self._pulse.heard < timeout / BEATS  # else this might not arrive in time
        return now - since > LONG * timeout and is_heard and self._may_leave()

    def _beat(self, timeout: float) -> None:
        """Send a heartbeat."""
        now = _now()
        if now - self._last > timeout * (BEATS - 1) / BEATS:
            self._late = now
        self._last = now
        log = self._attempt.log
        # A first activity sends as little as possible. One that watches reports its arrival.
        activity.heartbeat(*([] if log is None and self._may_leave else beat_of(log)))


async def _ended(_: AttemptAtWork) -> dict[str, Any]:
    """Stand for an attempt of an earlier process, until its programs have surely ended."""
    ended = asyncio.create_task(asyncio.sleep(_timeout()))
    while not ended.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([ended])
    return cut(None)


def _timeout() -> float:
    """Return the seconds without a heartbeat after which the activity counts as interrupted."""
    timeout = activity.info().heartbeat_timeout
    assert timeout is not None
    return timeout.total_seconds()


def _details() -> activity.ActivityCancellationDetails:
    """Return why the current activity was cancelled."""
    details = activity.cancellation_details()
    return details or activity.ActivityCancellationDetails(cancel_requested=True)
