"""The loop of a worker: look for due executions, take them, sleep until more may be due."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import select
import tempfile
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import NamedTuple

from flowengine.engines.engine import Engine
from flowengine.engines.infos import ScheduledStart
from flowengine.engines.results import ExecutionResult
from flowengine.errors import Conflict, InputError, StoreError
from flowengine.journal.records import Due
from flowengine.journal.store import Store
from flowengine.worker.backlog import CONCURRENCY, Backlog

_log = logging.getLogger("flowengine.worker")
_DELAYS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.04, 0.08)
"""Seconds between the looks after a report."""
_CREATED, _WRITTEN, _MOVED_HERE = 0x100, 0x2, 0x80
_CLOSE_ON_EXEC, _NON_BLOCKING = os.O_CLOEXEC, os.O_NONBLOCK
_READ = 65_536


def reports_of(folder: str) -> int | None:
    """Return a file descriptor that is readable after writes to a directory, or None.

    None: the operating system does not report writes, or refuses another receiver.
    """
    try:
        library = ctypes.CDLL(None, use_errno=True)
        descriptor: int = library.inotify_init1(_CLOSE_ON_EXEC | _NON_BLOCKING)
    except (OSError, AttributeError):
        return None
    if descriptor < 0:
        return None
    wanted = _CREATED | _WRITTEN | _MOVED_HERE
    if library.inotify_add_watch(descriptor, os.fsencode(folder), wanted) < 0:
        os.close(descriptor)
        return None
    return descriptor


def are_reported(folder: str) -> bool:
    """Return whether writes to a directory are reported, by writing a file there."""
    descriptor = reports_of(folder)
    if descriptor is None:
        return False
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"?")
            file.flush()
            return bool(select.select([descriptor], [], [], 0.2)[0])
    except OSError:
        return False
    finally:
        os.close(descriptor)


class Wakeups:
    """Calls a function when another process has changed a store.

    Args:
        store: The store.
        loop: The event loop that runs.
        wake: The function.

    Attributes:
        by_reports: Whether the operating system reports writes.
    """

    def __init__(self, store: Store, loop: AbstractEventLoop, wake: Callable[[], None]) -> None:
        self._store = store
        self._loop = loop
        self._wake = wake
        self._changes = store.changes()
        self._pending: TimerHandle | None = None
        folder = os.path.dirname(os.path.abspath(store.location))
        self._descriptor = reports_of(folder) if os.path.exists(store.location) else None
        self.by_reports = self._descriptor is not None
        self._listen()

    def close(self) -> None:
        """Stop waking."""
        if self._pending is not None:
            self._pending.cancel()
        if self._descriptor is not None:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None

    def _listen(self) -> None:
        if self._descriptor is not None:
            self._loop.add_reader(self._descriptor, self._reported)

    def _reported(self) -> None:
        """Poll soon. Reports that arrive until then add nothing."""
        assert self._descriptor is not None
        self._loop.remove_reader(self._descriptor)
        self._poll_after(0)

    def _poll_after(self, tries: int) -> None:
        self._pending = self._loop.call_later(_DELAYS[tries], self._poll, tries + 1)

    def _poll(self, tries: int) -> None:
        self._pending = None
        assert self._descriptor is not None
        with suppress(BlockingIOError):
            os.read(self._descriptor, _READ)
        changes = self._store.changes()
        changed, self._changes = changes != self._changes, changes
        if changed:
            self._wake()
        if changed or tries == len(_DELAYS):
            self._listen()
        else:
            self._poll_after(tries)


LOOK = 1.0
"""Seconds after which a worker looks even if nothing was reported: a process may have died."""
_REST = 10.0
"""A look that took this many seconds is followed by ten times as long without one."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 300.0
"""Seconds before an execution is taken again that this process cannot run."""
_LONGEST_SCHEDULE_PAUSE = 60.0
"""Seconds before a schedule is tried again. Later, its time would count as missed."""


class TakenExecution(NamedTuple):
    """The outcome of an execution that a worker took."""

    due: Due
    """Why it was taken."""
    result: ExecutionResult | None = None
    """Its state when it ended or had to wait. None: it has just been taken."""
    error: Exception | None = None
    """Why this process cannot run it. It is tried again later."""


class Worker:
    """Takes the executions of a store that are due, until it is stopped.

    These are executions whose timers are due, for which a decision or a message was recorded, which
    were recorded and not begun, and whose process died. An execution whose processes died three
    times in a row is left alone. It also starts the executions of schedules that are due.

    Args:
        engine: Drives them. `linger=0` makes room for others while an execution waits.
        concurrency: How many executions run at once.
        per_flow: How many executions of one flow run at once. None: as many as `concurrency`.
        tell: Called when an execution was taken, and again when it ended or had to wait.
        tell_start: Called when a schedule has started an execution, or could not.

    Attributes:
        backlog: What is due and what runs.
        is_ready: Whether it accepts work.
        taken: How many executions it has taken.
        failed: How many of them have failed here.
        refused: How many executions this process could not run.
        by_reports: Whether the operating system reports writes to the store. Otherwise they are
            noticed within a second.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        concurrency: int = CONCURRENCY,
        per_flow: int | None = None,
        tell: Callable[[TakenExecution], None] = lambda taken: None,
        tell_start: Callable[[ScheduledStart], None] = lambda start: None,
    ) -> None:
        self.backlog = Backlog(concurrency, per_flow)
        self.by_reports = self.is_ready = False
        self.taken = self.failed = self.refused = 0
        self._engine = engine
        self._tell = tell
        self._tell_start = tell_start
        self._tasks: set[asyncio.Task[None]] = set()
        self._pauses: dict[str, tuple[float, float]] = {}
        """Execution → how long it is left alone (s), and until when."""
        self._wake = asyncio.Event()
        self._is_stale = True
        self._looked = self._took = 0.0
        self._left_schedules: dict[tuple[str, str], tuple[float, float]] = {}
        """The same for schedules that could not be started: by flow and schedule."""

    async def work(
        self,
        stopping: asyncio.Event,
        *,
        drain: float,
        on_start: Callable[[], None] = lambda: None,
    ) -> None:
        """Take due executions until stopped, then let running ones come to a safe point.

        Args:
            stopping: Stops it when set.
            drain: Seconds that running attempts have to end. Longer ones are interrupted.
            on_start: Called when it starts to accept work.
        """
        wakeups = Wakeups(self._engine.store, asyncio.get_running_loop(), self._note_changes)
        self.by_reports = wakeups.by_reports
        on_start()
        stop = asyncio.ensure_future(stopping.wait())
        stop.add_done_callback(lambda _: self._wake.set())
        try:
            while not stopping.is_set():
                self._wake.clear()
                try:
                    self.poll()
                    self.is_ready = True
                    await self._sleep()
                except StoreError as error:
                    if not self._looked:
                        raise
                    if self.is_ready:  # what refuses one look, such as a full disk, may end
                        _log.warning("looking for work failed: %s", error.with_hint)
                    self.is_ready = False
                    await asyncio.sleep(LOOK)
        finally:
            self.is_ready = False
            stop.cancel()
            wakeups.close()
            await self._engine.drain_async(drain)
            if self._tasks:
                await asyncio.wait(self._tasks)

    def poll(self) -> None:
        """Look for due executions, if it is time to, and begin as many as may run."""
        now = monotonic()
        self._start_due(now)
        may_look = self._is_stale and now >= self._looked + self._took * _REST
        if not self.backlog.is_full and (may_look or now >= self._looked + LOOK):
            self._is_stale = False
            self._engine.hear()
            self.backlog.fill(due for due in self._engine.due() if not self._is_paused(due, now))
            self._engine.want()
            self._looked = monotonic()
            self._took = self._looked - now
        while (due := self.backlog.next(now)) is not None:
            task = asyncio.create_task(self._run_due(due))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _start_due(self, now: float) -> None:
        """Start the executions of schedules that are due.

        A schedule that cannot be started is left alone for a while, and longer each time. Refused
        inputs and too many open executions are those of one time only, so the next time is tried.
        """
        left = self._left_schedules
        for start in self._engine.flows.start_due(
            leave={k for k, (_, end) in left.items() if now < end}
        ):
            key = start.flow, start.schedule
            self.refused += start.error is not None
            self._is_stale = self._is_stale or start.execution is not None
            if start.error is None or isinstance(start.error, InputError | Conflict):
                left.pop(key, None)
            else:
                before, _ = left.get(key, (_FIRST_PAUSE / 2, 0.0))
                pause = min(before * 2, _LONGEST_SCHEDULE_PAUSE)
                left[key] = pause, now + pause
            self._tell_start(start)

    async def _run_due(self, due: Due) -> None:
        """Run one execution until it ends or has to wait."""
        try:
            result = await self._engine.take_async(due.execution, partial(self._note_taken, due))
            self._pauses.pop(due.execution, None)
            if result is not None:
                self.failed += result.status == "failed"
                self._tell(TakenExecution(due, result))
        except Exception as error:  # also of a plug-in: the others continue
            self.refused += 1
            before, _ = self._pauses.get(due.execution, (_FIRST_PAUSE / 2, 0.0))
            pause = min(before * 2, _LONGEST_PAUSE)
            self._pauses[due.execution] = pause, monotonic() + pause
            self._tell(TakenExecution(due, error=error))
        finally:
            self.backlog.done(due.execution)
            if not self.backlog:
                self._is_stale = True
            self._wake.set()

    def _note_taken(self, due: Due) -> None:
        self.taken += 1
        self._tell(TakenExecution(due))

    def _is_paused(self, due: Due, now: float) -> bool:
        pause = self._pauses.get(due.execution)
        return pause is not None and now < pause[1]

    def _note_changes(self) -> None:
        """Note that another process has written to the store."""
        self._engine.hear()
        self._is_stale = True
        self._wake.set()

    async def _sleep(self) -> None:
        """Sleep until something may be due, for at most the time between two looks."""
        now = monotonic()
        longest = LOOK
        if not self.backlog.is_full:
            timer = self._engine.next_due()
            probation = self.backlog.wait(now)
            stale = self._looked + self._took * _REST - now if self._is_stale else None
            longest = min(item for item in (LOOK, timer, probation, stale) if item is not None)
            if timer is not None and timer <= LOOK:
                self._is_stale = True
        if longest > 0:
            handle = asyncio.get_running_loop().call_later(longest, self._wake.set)
            await self._wake.wait()
            handle.cancel()
        else:
            await asyncio.sleep(0)
