"""The local engine: drives many executions concurrently on one event loop, in this process."""

from __future__ import annotations

import asyncio
import signal
import threading
from contextlib import suppress
from functools import partial
from typing import Any

from flowengine.engines.executions.execution import Execution
from flowengine.engines.executions.reducers import Reductions, reducers_of
from flowengine.engines.host import Host
from flowengine.engines.running.carrying import take_message
from flowengine.engines.running.commands import Left
from flowengine.engines.running.driver import Driver
from flowengine.engines.running.work import Work
from flowengine.errors import LeaseLost, StoreError
from flowengine.kernel.commands import ReleaseRegion, Stop
from flowengine.util.blocking import run_on_new_loop

POLL_SECONDS = 0.1
"""Seconds between checks for messages of other processes."""
UNKNOWN = -1
"""Initial value of the number of changes seen."""
LONGEST_SLEEP = 30.0
"""Seconds after which the clock is read again before a timer, because it may have been set. A
process that stays for less than that reads it sooner."""
SHORTEST_STAY = 1.0
"""Minimum seconds between two such readings."""


class Local(Driver):
    """Drives executions on the running event loop.

    Executions that become ready in the same round of the loop are committed together. Each attempt
    is a task. All timers share one alarm, set for the earliest.

    Args:
        host: Shared context of the executions.
    """

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._loop = asyncio.get_running_loop()
        self._rests: dict[str, asyncio.Future[None]] = {}
        self._awaited: dict[str, int] = {}
        self._scheduled = False
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_due = 0
        self._poller: asyncio.TimerHandle | None = None
        self._endings: dict[asyncio.Task[None], str] = {}
        """Tasks that release environments of ended regions → their executions."""
        self._work = Work(self, self.drive)
        self._changes = 0
        self._arrived = 0
        host.keeper.on_late = self._suspect
        host.keeper.keep()

    # For callers

    async def drive(self, execution: Execution, left: Left | None = None) -> None:
        """Drive an execution until it ends or only waits.

        Cancel the awaiting task to stop. Running attempts are then ended and the lease is released.
        The execution itself continues when it is resumed.

        Args:
            execution: With its lease. An execution already driven here is awaited.
            left: Commands that a synchronous driver has left to be awaited.

        Raises:
            CancelledError: The awaiting task was cancelled.
        """
        id = execution.id
        if id not in self._rests:
            self._rests[id] = self._loop.create_future()
            self.add(execution)
            if left is not None:
                self._work.begin(left)
            # The other driver was about to process it.
            if left is None or execution.queued:
                execution.queued = False
                self.enqueue(execution)
            self.alarm(execution)
        self._awaited[id] = self._awaited.get(id, 0) + 1
        try:
            await asyncio.shield(self._rests[id])
        except asyncio.CancelledError:
            if self._awaited[id] == 1:
                await self._leave(execution)
            raise
        finally:
            self._awaited[id] -= 1
            if not self._awaited[id]:
                del self._awaited[id]

    def is_here(self) -> bool:
        """Return whether it drives on the running event loop."""
        return self._loop is asyncio.get_running_loop()

    def drives_here(self, execution: str) -> bool:
        """Return whether it drives an execution, unless another thread runs its event loop."""
        if execution not in self.executions:
            return False
        return not self._loop.is_running() or asyncio._get_running_loop() is self._loop

    async def close(self) -> None:
        """Stop driving. All executions are saved."""
        self.host.keeper.on_late = None
        for execution in list(self.executions.values()):
            await self._leave(execution)

    async def drain(self, patience: float) -> None:
        """Let running attempts end, then stop driving.

        Args:
            patience: Seconds until attempts that still run are interrupted.
        """
        for execution in self.executions.values():
            self.enqueue(execution)
        resting = list(self._rests.values())
        if resting:
            await asyncio.wait(resting, timeout=patience)
        await self.close()

    # Driver methods

    def add(self, execution: Execution) -> None:
        """Drive an execution from now on."""
        super().add(execution)
        if reducers_of(execution.linked.compiled):
            execution.reductions = Reductions(partial(self._enqueue_soon, execution))
        if self._poller is None:
            self._changes = UNKNOWN  # messages may have arrived since it was loaded
            self._poller = self._loop.call_later(POLL_SECONDS, self._poll)

    def turn(self) -> list[Execution]:
        """Take a turn, begin what must be awaited, and end the work on answered questions."""
        going = super().turn()
        left, self.left = self.left, []
        self._work.begin(left, going)
        for execution in going:
            self.alarm(execution)
        return going

    def enqueue(self, execution: Execution) -> None:
        """Process an execution in the next round of the loop."""
        super().enqueue(execution)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turns)

    def _moves(self, execution: Execution, until: float | None = None) -> bool:
        # Timers, other threads and other executions wake the loop, in other contexts.
        return execution.around.copy().run(self._applies, execution, until)

    def _applies(self, execution: Execution, until: float | None) -> bool:
        """Apply its events as a driver does, but never wait for a reducer in Python."""
        reductions = execution.reductions
        if reductions is None or not execution.can_go_back:
            return super()._moves(execution, until)
        if reductions.patience():
            execution.queued = False  # it is looked at when that ends
            return False
        with reductions.applying():
            moves = super()._moves(execution, until)
        if seconds := reductions.patience():
            self._loop.call_later(seconds, self._enqueue_soon, execution)
        return moves

    def _enqueue_soon(self, execution: Execution, _: object = None) -> None:
        """Process an execution, if it is still driven here. Any thread may call this."""

        def enqueue() -> None:
            if self.executions.get(execution.id) is execution:
                self.enqueue(execution)

        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(enqueue)

    def alarm(self, execution: Execution) -> None:
        """Have the loop wake for the next timer of an execution, or when it stays no longer."""
        due, stay = execution.timers.next(), execution.stays_until
        if stay:
            due = stay if due is None else min(due, stay)
        if due is None or (self._alarm is not None and self._alarm_due <= due):
            return
        if self._alarm is not None:
            self._alarm.cancel()
        delay = (due - self.host.clock.now()) / 1000
        longest = min(max(self.host.linger / 1000, SHORTEST_STAY), LONGEST_SLEEP)
        self._alarm = self._loop.call_later(min(max(delay, 0.0), longest), self._ring)
        self._alarm_due = due

    def stop(self, execution: Execution, stop: Stop) -> None:
        """Withdraw an attempt."""
        self._work.stop(execution, stop)

    def rested(self, execution: Execution) -> None:
        """Wake its waiting callers once its environments are released."""
        rest = self._rests.pop(execution.id)
        self._work.end(execution)
        has_any = self.may_have_environments(execution)
        _wake(rest, self._loop.create_task(self.give_back(execution)) if has_any else None)

    def release_region(self, execution: Execution, command: ReleaseRegion) -> None:
        """Release the environments of an ended region."""
        if (environments := self.host.environments) is None:
            return
        ending = environments.end_region(execution.context, command.region)
        task = self._loop.create_task(ending)
        self._endings[task] = execution.id
        task.add_done_callback(self._endings.pop)

    def halt(self, execution: Execution, error: Exception) -> None:
        """Stop driving an execution, and pass the error to its callers once its work has ended."""
        rest = self._rests.pop(execution.id, None)
        if rest is None:  # it was stopped before
            return
        super().halt(execution, error)
        # If the lease is lost, the next attempt may be at work in another process.
        work = self._work.end(execution, interrupts=isinstance(error, LeaseLost))
        _wake(rest, asyncio.ensure_future(asyncio.wait(work)) if work else None, error)

    # Internals

    async def give_back(self, execution: Execution) -> None:
        """Release the environments of a resting execution, including those of its last regions."""
        endings = [task for task, id in self._endings.items() if id == execution.id]
        if endings:
            await asyncio.wait(endings)
        await super().give_back(execution)

    def _turns(self) -> None:
        """Take turns while executions are ready, yielding to the loop in between."""
        try:
            self.turns()
        # The process is about to exit, so no caller may wait forever.
        except BaseException as error:
            for rest in self._rests.values():
                rest.set_exception(error)
            self._rests.clear()
            return
        self._scheduled = self.has_turns()
        if self._scheduled:
            self._loop.call_soon(self._turns)

    async def _leave(self, execution: Execution) -> None:
        """End the work of an execution here and release its lease."""
        if self.executions.get(execution.id) is not execution:
            return
        del self.executions[execution.id]
        work = self._work.end(execution)
        try:
            if work:
                await asyncio.wait(work)
        finally:
            if self.may_have_environments(execution):
                await asyncio.shield(self.give_back(execution))
            self.release(execution)
            rest = self._rests.pop(execution.id, None)
            if rest is not None:
                rest.cancel()

    def _ring(self) -> None:
        """Fire due timers, and set the alarm for the next one."""
        self._alarm = None
        for execution in list(self.executions.values()):
            try:
                self.fire_timers(execution)
            except StoreError as error:
                self.halt(execution, error)
                continue
            if execution.stays_until is not None and execution.stays_until <= self.now():
                execution.stays_until = 0  # it stayed, and is not woken for that again
            if not execution.work and not self.stays(execution):
                # No lock was granted, or the clock was set back, so that the timer is too far away.
                self.enqueue(execution)
            self.alarm(execution)

    def _poll(self) -> None:
        """Read the messages of other processes to the executions driven here."""
        self._poller = None
        if not self.executions:
            return
        self._poller = self._loop.call_later(POLL_SECONDS, self._poll)
        self.hear()

    def hear(self) -> None:
        """Read new messages to the executions driven here."""
        changes = self.host.store.changes()
        if changes == self._changes or not self.executions:
            return
        for message in self.host.store.arrived(self._arrived):
            self._arrived = message.number
            execution = self.executions.get(message.execution)
            if execution is not None and take_message(execution, message, self.host.clock.now()):
                self.enqueue(execution)
        self._changes = changes

    def _suspect(self) -> None:
        """Handle a late heartbeat, from the keeper's thread: leases may be lost."""
        with suppress(RuntimeError):  # the loop is closed, so nothing is driven here
            self._loop.call_soon_threadsafe(self._check_leases)

    def _check_leases(self) -> None:
        """Commit for every execution, which reveals lost leases."""
        for execution in self.executions.values():
            self.enqueue(execution)


def _wake(
    rest: asyncio.Future[None], after: asyncio.Future[Any] | None, error: Exception | None = None
) -> None:
    """Wake the callers of an execution that is not driven any more.

    Args:
        rest: Awaited by the callers.
        after: Must end first. If it fails, that is their error. None: nothing.
        error: Why the execution cannot continue.
    """

    def wake(ended: asyncio.Future[Any] | None) -> None:
        fault: BaseException | None = error
        if fault is None and ended is not None and not ended.cancelled():
            fault = ended.exception()
        if rest.done():
            return
        if fault is None:
            rest.set_result(None)
        else:
            rest.set_exception(fault)

    if after is None:
        wake(None)
    else:
        after.add_done_callback(wake)


def drive_alone(host: Host, execution: Execution, left: Left) -> None:
    """Drive an execution on its own event loop until it ends or only waits.

    SIGINT, SIGTERM and SIGHUP stop it gracefully: running attempts are ended, the execution is
    saved. Signals that the process ignores (`nohup`) remain ignored.

    Args:
        host: Shared context of the executions.
        execution: With its lease.
        left: Commands that a synchronous driver has left to be awaited.

    Raises:
        KeyboardInterrupt: It was stopped.
    """

    async def drive() -> None:
        task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        if threading.current_thread() is threading.main_thread() and task is not None:
            for number in (signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    loop.add_signal_handler(number, task.cancel)
        local = Local(host)
        try:
            await local.drive(execution, left)
        finally:
            await local.close()

    try:
        run_on_new_loop(drive())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
