"""The work of executions on an event loop, each a task: attempts, questions, started executions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any

from flowengine.engines.attempts.outcome import AttemptFailed, measured, succeeded
from flowengine.engines.attempts.printed import PRINTING
from flowengine.engines.executions.execution import DriveChild, Execution, Preview
from flowengine.engines.executions.outer_attempts import OUTER, OuterAttempt
from flowengine.engines.executions.views import wait_view
from flowengine.engines.results import Update
from flowengine.engines.running.answers import consult
from flowengine.engines.running.carrying import with_warning
from flowengine.engines.running.commands import Left, failed_or_asked
from flowengine.engines.running.driver import Driver
from flowengine.engines.running.previews import previewed
from flowengine.engines.running.recovery import taken
from flowengine.errors import Conflict, LeaseLost, NotFound
from flowengine.kernel.commands import Consult, Run, Stop
from flowengine.kernel.events import Event
from flowengine.sdk.python.user_code import CALLS, Calls, uncut
from flowengine.sdk.steps.previews import Shown

LATE_SECONDS = 10.0
"""How long a cancelled function may take to end, so that its result shows whether it took
effect."""


class Work:
    """The tasks of a driver's executions. Their outcomes are queued as events.

    Args:
        driver: Drives the executions on the running event loop.
        drive: Drives one of them until it rests.
    """

    def __init__(self, driver: Driver, drive: Callable[[Execution], Awaitable[None]]) -> None:
        self._driver, self._host = driver, driver.host
        self._drive = drive
        self._loop = asyncio.get_running_loop()
        self._consulting: dict[str, dict[int, asyncio.Task[None]]] = {}
        """Execution → number of a question → the task that consults about it and computes its
        preview."""
        self._calls: dict[str, Calls] = {}
        """Execution → the functions on threads of its attempts."""

    def begin(self, left: Left, going: Iterable[Execution] = ()) -> None:
        """Begin the work that must be awaited, in tasks.

        Args:
            left: The work.
            going: Executions whose tasks for questions that are answered are ended.
        """
        for execution in going if self._consulting else ():
            for wait, task in self._consulting.get(execution.id, {}).items():
                if wait not in execution.waits:
                    task.cancel()
        for execution, command in left:
            if self._driver.executions.get(execution.id) is not execution:
                continue  # it was halted
            if isinstance(command, Run):
                before = execution.work.get(command.unit)
                attempt = self._attempt_in_task(execution, command, before, execution.around.copy())
                task = self._loop.create_task(attempt, context=execution.around.copy())
                execution.work[command.unit] = task
                continue
            if isinstance(command, DriveChild):
                if command.id not in execution.work:
                    child = self._drive_child(execution, command.id)
                    task = self._loop.create_task(child, context=execution.around.copy())
                    execution.work[command.id] = task
                    task.add_done_callback(partial(self._ended, execution, command.id))
                continue
            consulting = self._consult(execution, command)
            task = self._loop.create_task(consulting, context=execution.around.copy())
            execution.work[-command.wait] = task
            self._consulting.setdefault(execution.id, {})[command.wait] = task
            task.add_done_callback(partial(self._consulted, execution, command.wait))

    def stop(self, execution: Execution, stop: Stop) -> None:
        """Withdraw an attempt: its task is cancelled, and with it its processes."""
        task = execution.work.get(stop.unit)
        if task is not None:
            task.cancel()
            task.add_done_callback(partial(self._ended, execution, stop.unit))

    def end(self, execution: Execution, *, interrupts: bool = False) -> list[asyncio.Task[None]]:
        """Withdraw all work of an execution.

        Args:
            execution: The execution.
            interrupts: Whether to interrupt functions on threads, too.

        Returns:
            The tasks, which are still being ended.
        """
        calls = self._calls.pop(execution.id, None)
        if calls is not None and interrupts:
            calls.interrupt()
        work: list[asyncio.Task[None]] = list(execution.work.values())
        for task in work:
            task.cancel()
        return work

    async def _attempt_in_task(
        self, execution: Execution, run: Run, before: asyncio.Task[None] | None, around: Context
    ) -> None:
        """Run an attempt, and process its outcome.

        A callback of the task would do so one round of the loop later.

        Args:
            execution: The execution of the attempt.
            run: The attempt.
            before: The previous attempt, if it is still being ended.
            around: A copy of that of the execution. The outcome is processed in it, and so is the
                use of the runs that it starts.
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
            if not self._host.keeper.has(execution.id):
                return None  # the next commit reports it
            runner = execution.linked.runner
            follower = self._host.follower(execution.id, run.address, is_quick=False)
            printed = execution.printed[run.unit] = runner.printed(run.step, follower)
            if execution.id not in self._calls:
                self._calls[execution.id] = Calls(partial(self._host.keeper.has, execution.id))
            CALLS.set(self._calls[execution.id])
            PRINTING.set(printed)  # in the context of this task and its children
            # Not in the context of the function.
            look = partial(around.run, self._driver.enqueue, execution)
            OUTER.set(OuterAttempt(execution, run, self._loop, look))
            if run.measures:
                needs = await runner.needs(execution.context, run, printed)
                return measured(run, needs, self._driver.now())
            kept = await runner.attempt(
                execution.context,
                run,
                self._host.environments,
                printed,
                partial(self._patience, execution, run),
            )
        except AttemptFailed as failure:
            return failed_or_asked(self._host, execution, run, failure)
        except asyncio.CancelledError:
            return None
        execution.kept[run.unit] = kept
        return succeeded(run, kept.value, self._driver.now(), kept.openings, kept.log)

    async def _drive_child(self, execution: Execution, id: str) -> None:
        """Drive an execution that another one has started, until it ends or only waits."""
        self._host.woken.pop(id, None)
        with suppress(Conflict, NotFound):  # another process drives it
            child = self._driver.executions.get(id)
            if child is None and not self._host.draining:
                self._host.bring(id, self._host.resources_of(execution.id))
                child = taken(self._host, id)
                child.outer, child.depth = execution.outer, execution.depth
            if child is not None:
                await self._drive(child)

    def _patience(self, execution: Execution, run: Run) -> float:
        """Return how long to wait for the function of an attempt that has been withdrawn.

        Its effect must be known if its step may have to be undone and no other attempt can
        determine it, such as a later one or a probe.
        """
        state = execution.state
        cut = state["cuts"].get(run.unit)
        if cut is None or cut["attempt"] != run.attempt or cut["phase"] == "run":
            return 0.0
        stays = self._driver.executions.get(execution.id) is execution and not execution.ended
        return LATE_SECONDS if stays and run.unit not in state["units"] else 0.0

    async def _consult(self, execution: Execution, command: Consult | Preview) -> None:
        """Compute the preview of a call, consult its rules, and record their decision."""
        answered = False
        preview = self._loop.create_task(self._add_preview(execution, command))
        try:
            if isinstance(command, Consult) and self._host.consultant is not None:
                answered = await consult(self._host, execution, command, preview)
            if not answered:
                await preview
        except asyncio.CancelledError:
            return
        finally:
            preview.cancel()
        if answered and self._driver.executions.get(execution.id) is execution:
            self._driver.read_inbox(execution)

    async def _add_preview(self, execution: Execution, command: Consult | Preview) -> Shown:
        """Add the tool's preview of a call to its open question, and return it."""
        shown = await previewed(self._host, execution, command.wait, command.step)
        texts = {key: text for key, text in shown._asdict().items() if text is not None}
        record = execution.waits.get(command.wait)
        here = self._driver.executions.get(execution.id) is execution
        if here and record is not None and texts and texts.keys().isdisjoint(record):
            event: Any = {"type": "described", "at": self._driver.now(), "wait": command.wait}
            self._driver.post(execution, event | texts)
        return shown

    def _consulted(self, execution: Execution, wait: int, task: asyncio.Task[None]) -> None:
        """Process the end of a task that consulted about a question."""
        tasks = self._consulting.get(execution.id, {})
        if tasks.get(wait) is task:
            del tasks[wait]
            if not tasks:
                del self._consulting[execution.id]
        self._ended(execution, -wait, task)

    def _ended(self, execution: Execution, number: int | str, task: asyncio.Task[None]) -> None:
        """Process the end of a task unless done, as a withdrawn task may never have begun."""
        if execution.work.get(number) is task:
            error = None if task.cancelled() else task.exception()
            self._over(execution, number, task, error)

    def _over(
        self,
        execution: Execution,
        unit: int | str,
        task: asyncio.Task[None] | None,
        outcome: Event | BaseException | None,
    ) -> None:
        """Process the outcome of an attempt."""
        self._host.rules.look_again()
        if execution.work.get(unit) is task:
            del execution.work[unit]
            execution.printed.pop(unit, None)  # type: ignore[arg-type]
        if self._driver.executions.get(execution.id) is not execution:
            if isinstance(execution.error, LeaseLost) and isinstance(outcome, dict):
                self._driver.pass_on(execution.id, [outcome])
            return
        if isinstance(outcome, Exception):  # an error of the engine or the store, not of the step
            self._driver.halt(execution, outcome)
        elif outcome is None or isinstance(outcome, BaseException):
            if isinstance(unit, int):
                self._notify_questions(execution, unit)
            self._driver.enqueue(execution)
        else:
            execution.queue += with_warning(execution, outcome)
            self._driver.enqueue(execution)

    def _notify_questions(self, execution: Execution, unit: int) -> None:
        """Report questions about an attempt that has ended without an outcome to subscribers."""
        for number, wait in execution.state["waits"].items() if self._host.subscribers else ():
            if wait.get("cut") == unit and number in execution.waits:
                view = wait_view(execution.id, execution.context.flow, wait["record"], None)
                self._host.notify(Update(execution.id, "wait", view))
