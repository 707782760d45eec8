"""The local engine: drives many executions concurrently on one event loop, in this process."""

from __future__ import annotations

import asyncio
import signal
import threading
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

from flowengine.engines.attempts.outcome import AttemptFailed, measured, succeeded
from flowengine.engines.attempts.printed import PRINTING
from flowengine.engines.executions.execution import Preview
from flowengine.engines.executions.outer_attempts import OUTER, OuterAttempt
from flowengine.engines.executions.views import wait_view
from flowengine.engines.results import Update
from flowengine.engines.running.carrying import take_message
from flowengine.engines.running.driver import Driver
from flowengine.engines.running.quick_steps import failed_or_asked
from flowengine.engines.running.recovery import with_warning
from flowengine.errors import LeaseLost, StoreError
from flowengine.kernel.commands import Consult, Run
from flowengine.sdk.user_code import CALLS, Calls, uncut

if TYPE_CHECKING:
    from contextvars import Context

    from flowengine.engines.executions.execution import Execution
    from flowengine.engines.host import Host
    from flowengine.engines.running.driver import Left
    from flowengine.kernel.commands import ReleaseRegion, Stop
    from flowengine.kernel.events import Event
    from flowengine.sdk.user_code import Shown

POLL_SECONDS = 0.1
"""Seconds between checks for messages of other processes."""
UNKNOWN = -1
"""Initial value of the number of changes seen."""
LONGEST_SLEEP = 30.0
"""Seconds after which the clock is read again before a timer, because it may have been set. A
process that stays for less than that reads it sooner."""
SHORTEST_STAY = 1.0
"""Minimum seconds between two such readings."""
LATE_SECONDS = 10.0
"""How long a cancelled function may take to end, so that its result shows whether it took
effect."""


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
        self._consulting: dict[str, dict[int, asyncio.Task[None]]] = {}
        """Execution → number of a question → the task that consults about it and computes its
        preview."""
        self._calls: dict[str, Calls] = {}
        """Execution → the functions on threads of its attempts."""
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
                self.left += left
                self._begin_left()
            # The other driver was about to process it.
            if left is None or execution.queued:
                execution.queued = False
                self.look(execution)
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
            self.look(execution)
        resting = list(self._rests.values())
        if resting:
            await asyncio.wait(resting, timeout=patience)
        await self.close()

    # Driver methods

    def add(self, execution: Execution) -> None:
        """Drive an execution from now on."""
        super().add(execution)
        if self._poller is None:
            self._changes = UNKNOWN  # messages may have arrived since it was loaded
            self._poller = self._loop.call_later(POLL_SECONDS, self._poll)

    def turn(self) -> list[Execution]:
        """Take a turn, begin what must be awaited, and end the work on answered questions."""
        going = super().turn()
        if self.left:
            self._begin_left()
        for execution in going:
            self.alarm(execution)
            for wait, task in self._consulting.get(execution.id, {}).items():
                if wait not in execution.waits:
                    task.cancel()
        return going

    def look(self, execution: Execution) -> None:
        """Process an execution in the next round of the loop."""
        super().look(execution)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turns)

    def alarm(self, execution: Execution) -> None:
        """Have the loop wake for the next timer of an execution, or when it stays no longer."""
        due, stay = execution.timers.next(), execution.stays_until
        if stay is not None and stay > self.now():
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
        """Withdraw an attempt: its task is cancelled, and with it its processes."""
        task = execution.work.get(stop.unit)
        if task is not None:
            task.cancel()
            task.add_done_callback(partial(self._ended, execution, stop.unit))

    def rested(self, execution: Execution) -> None:
        """Wake its waiting callers once its environments are released."""
        rest = self._rests.pop(execution.id)
        self._calls.pop(execution.id, None)
        if not self.may_have_environments(execution):
            rest.set_result(None)
            return
        giving_back = self._loop.create_task(self.give_back(execution))

        def tell(done: asyncio.Task[None]) -> None:
            error = None if done.cancelled() else done.exception()
            if rest.done():
                return
            if error is None:
                rest.set_result(None)
            else:
                rest.set_exception(error)

        giving_back.add_done_callback(tell)

    def release_region(self, execution: Execution, command: ReleaseRegion) -> None:
        """Release the environments of an ended region."""
        ending = self.host.environments.end_region(execution.id, command.region)
        task = self._loop.create_task(ending)
        self._endings[task] = execution.id
        task.add_done_callback(self._endings.pop)

    def halt(self, execution: Execution, error: Exception) -> None:
        """Stop driving an execution, and pass the error to its callers once its work has ended."""
        rest = self._rests.pop(execution.id, None)
        if rest is None:  # it was stopped before
            return
        super().halt(execution, error)
        calls = self._calls.pop(execution.id, None)
        if calls is not None and isinstance(error, LeaseLost):
            calls.interrupt()  # the next attempt may be at work in another process
        work = list(execution.work.values())
        for task in work:
            task.cancel()
        if not work:
            rest.set_exception(error)
            return
        ending = asyncio.ensure_future(asyncio.wait(work))

        def tell(_: object) -> None:
            if not rest.done():
                rest.set_exception(error)

        ending.add_done_callback(tell)

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

    async def _attempt_in_task(
        self, execution: Execution, run: Run, before: asyncio.Task[None] | None, around: Context
    ) -> None:
        """Run an attempt, and process its outcome.

        A callback of the task would do so one round of the loop later.

        Args:
            execution: The execution of the attempt.
            run: The attempt.
            before: The previous attempt, if it is still being ended.
            around: The context that it began in. The outcome is processed in it, and so is what the
                runs that it starts have used.
        """
        outcome: Event | Exception | None
        try:
            outcome = await self._attempt(execution, run, before, around)
        except Exception as error:
            outcome = error
        around.run(self._over, execution, run.unit, asyncio.current_task(), outcome)

    async def _attempt(
        self, execution: Execution, run: Run, before: asyncio.Task[None] | None, around: Context
    ) -> Event | None:
        """Run an attempt and return its outcome. A withdrawn attempt has none."""
        try:
            if before is not None:
                # The previous attempt is still being ended. Even if this one is withdrawn too,
                # the execution does not rest before that.
                await uncut(asyncio.wait([before]))
            if not self.host.keeper.has(execution.id):
                return None  # the next commit says so
            runner = execution.linked.runner
            follower = self.host.follower(execution.id, run.address, is_quick=False)
            printed = execution.printed[run.unit] = runner.printed(run.step, follower)
            CALLS.set(self._calls_of(execution.id))
            PRINTING.set(printed)  # in the context of this task and its children
            look = partial(around.run, self.look, execution)  # not in the context of the function
            OUTER.set(OuterAttempt(execution, run, self._loop, look))
            if run.measures:
                needs = await runner.needs(execution.context, run, printed)
                return measured(run, needs, self.host.clock.now())
            kept = await runner.attempt(
                execution.context,
                run,
                self.host.environments,
                printed,
                partial(self._patience, execution, run),
            )
        except AttemptFailed as failure:
            return failed_or_asked(self.host, execution, run, failure)
        except asyncio.CancelledError:
            return None
        execution.kept[run.unit] = kept
        return succeeded(run, kept.value, self.host.clock.now(), kept.openings, kept.log)

    def _calls_of(self, execution: str) -> Calls:
        if execution not in self._calls:
            self._calls[execution] = Calls(partial(self.host.keeper.has, execution))
        return self._calls[execution]

    def _patience(self, execution: Execution, run: Run) -> float:
        """Return how long to wait for the function of an attempt that has been withdrawn.

        Its effect must be known if its step may have to be undone and no other attempt can
        determine it, such as a later one or a probe.
        """
        state = execution.state
        cut = state["cuts"].get(run.unit)
        if cut is None or cut["attempt"] != run.attempt or cut["phase"] == "run":
            return 0.0
        stays = self.executions.get(execution.id) is execution and not execution.ended
        return LATE_SECONDS if stays and run.unit not in state["units"] else 0.0

    def _consulted(self, execution: Execution, wait: int, task: asyncio.Task[None]) -> None:
        """Process the end of a task that consulted about a question."""
        tasks = self._consulting.get(execution.id, {})
        if tasks.get(wait) is task:
            del tasks[wait]
            if not tasks:
                del self._consulting[execution.id]
        self._ended(execution, -wait, task)

    def _ended(self, execution: Execution, number: int, task: asyncio.Task[None]) -> None:
        """Process the end of a task unless done, as a withdrawn task may never have begun."""
        if execution.work.get(number) is task:
            error = None if task.cancelled() else task.exception()
            self._over(execution, number, task, error)

    def _over(
        self,
        execution: Execution,
        unit: int,
        task: asyncio.Task[None] | None,
        outcome: Event | BaseException | None,
    ) -> None:
        """Process the outcome of an attempt."""
        self.host.policies.look_again()
        if execution.work.get(unit) is task:
            del execution.work[unit]
            execution.printed.pop(unit, None)
        if self.executions.get(execution.id) is not execution:
            if isinstance(execution.error, LeaseLost) and isinstance(outcome, dict):
                self.pass_on(execution, [outcome])
            return
        if isinstance(outcome, Exception):  # an error of the engine or the store, not of the step
            self.halt(execution, outcome)
        elif outcome is None or isinstance(outcome, BaseException):
            self._tell_questions(execution, unit)
            self.look(execution)
        else:
            execution.queue += with_warning(execution, outcome)
            self.look(execution)

    def _tell_questions(self, execution: Execution, unit: int) -> None:
        """Report questions about an attempt that has ended without an outcome to subscribers."""
        for number, wait in execution.state["waits"].items() if self.host.subscribers else ():
            if wait.get("cut") == unit and number in execution.waits:
                view = wait_view(execution.id, execution.context.flow, wait["record"], None)
                self.host.tell(Update(execution.id, "wait", view))

    def _begin_left(self) -> None:
        """Begin in tasks what was left to be awaited: attempts, previews, and consultations."""
        left, self.left = self.left, []
        for execution, command in left:
            if self.executions.get(execution.id) is not execution:
                continue  # it was halted
            if isinstance(command, Run):
                before = execution.work.get(command.unit)
                attempt = self._attempt_in_task(execution, command, before, copy_context())
                execution.work[command.unit] = self._loop.create_task(attempt)
                continue
            task = self._loop.create_task(self._consult(execution, command))
            execution.work[-command.wait] = task
            self._consulting.setdefault(execution.id, {})[command.wait] = task
            task.add_done_callback(partial(self._consulted, execution, command.wait))

    async def _consult(self, execution: Execution, command: Consult | Preview) -> None:
        """Compute the preview of a call, consult its policies, and record their decision."""
        preview, answered = None, False
        is_call = isinstance(command, Preview) or command.environment is None
        try:
            if is_call:
                preview = self._loop.create_task(self._add_preview(execution, command))
            if isinstance(command, Consult) and self.host.may_consult():
                from flowengine.engines.running.answers import consult

                answered = await consult(self.host, execution, command, preview)
            if preview is not None and not answered:
                await preview
        except asyncio.CancelledError:
            return
        finally:
            if preview is not None:
                preview.cancel()
        if answered and self.executions.get(execution.id) is execution:
            self.read_inbox(execution)

    async def _add_preview(self, execution: Execution, command: Consult | Preview) -> Shown:
        """Add the tool's preview of a call to its open question, and return it."""
        from flowengine.engines.running.call_descriptions import previewed

        shown = await previewed(self.host, execution, command.wait, command.step)
        texts = {key: text for key, text in shown._asdict().items() if text is not None}
        record = execution.waits.get(command.wait)
        here = self.executions.get(execution.id) is execution
        if here and record is not None and texts and texts.keys().isdisjoint(record):
            event: Any = {"type": "described", "at": self.host.clock.now(), "wait": command.wait}
            self.post(execution, event | texts)
        return shown

    async def _leave(self, execution: Execution) -> None:
        """End the work of an execution here and release its lease."""
        if self.executions.get(execution.id) is not execution:
            return
        del self.executions[execution.id]
        self._calls.pop(execution.id, None)
        work = list(execution.work.values())
        for task in work:
            task.cancel()
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
            if not execution.work and not self.stays_for_timer(execution):
                # The clock was set back, and the timer is too far away to stay for.
                self.look(execution)
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
                self.look(execution)
        self._changes = changes

    def _suspect(self) -> None:
        """Handle a late heartbeat, from the keeper's thread: leases may be lost."""
        with suppress(RuntimeError):  # the loop is closed, so nothing is driven here
            self._loop.call_soon_threadsafe(self._check_leases)

    def _check_leases(self) -> None:
        """Commit for every execution, which reveals lost leases."""
        for execution in self.executions.values():
            self.look(execution)


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
        asyncio.run(drive())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
