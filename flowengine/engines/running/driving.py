"""Driving of executions in one process: the requested ones, and those that they wake.

All methods of the public engine that may drive an execution use this module, from plain code or
from an event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any

from flowengine.engines import running
from flowengine.engines.attempts.runtime_resources import check_names
from flowengine.engines.executions.execution import Execution
from flowengine.engines.executions.outer_attempts import outer_attempt
from flowengine.engines.executions.views import result_of
from flowengine.engines.host import Host
from flowengine.engines.messages import deliver
from flowengine.engines.results import ExecutionResult
from flowengine.engines.running.driver import Driver
from flowengine.engines.running.recovery import take_hands, taken
from flowengine.engines.starting.beginning import (
    Starting,
    begin,
    check_same_start,
    exists,
    record,
)
from flowengine.errors import Conflict, NotFound, UsageError
from flowengine.sdk.errors import public_name
from flowengine.util.blocking import Either, imported, is_awaited, pause, refuse_on_loop

SYNC_SECONDS = 0.1
"""How long an execution is driven without an event loop before messages of other processes are
read."""
FIRST_SYNC_SECONDS = 0.5
"""The same in a process that has not imported asyncio yet, which would take as long as many steps.
On a busy machine, the imports for the first step alone take longer than `SYNC_SECONDS`."""
LOOK_SECONDS = 0.005
"""Seconds between checks whether a held but idle execution has been released."""
LOOKS = 200
AT_REST = ("waiting", "stalled")


class Driving:
    """The executions that one engine drives.

    Args:
        host: Shared context of the executions.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._local: running.local.Local | None = None
        self._sent_out = False

    async def close(self) -> None:
        """Stop driving on the event loop. All executions are saved."""
        if self._local is not None:
            await self._local.close()

    # Executions

    def new(self, starting: Starting) -> Execution:
        """Return a new execution, or the existing one with this id, with its lease.

        Raises:
            Conflict: The execution with that id runs another flow, or has other inputs, or this
                engine is draining.
        """
        _refuse_while_imported()
        self._refuse_while_draining()
        self._host.rules.check()
        if (outer := outer_attempt()) is not None:
            outer.check_depth()
            starting = starting._replace(outer=outer)
        if starting.id is not None and exists(self._host, starting.id):
            check_same_start(self._host, starting.id, starting.flow["id"], starting.inputs)
            return self.loaded(starting.id, starting.resources)
        if starting.files:
            return self.loaded(record(self._host, starting), starting.resources)
        execution = begin(self._host, starting)
        _enter(execution)
        execution.linked.look_ahead(starting.labels)
        return execution

    def loaded(self, execution: str, resources: Mapping[str, Any] | None = None) -> Execution:
        """Return an execution with its lease and with the events since in its queue.

        Args:
            execution: Its id, or an unambiguous prefix of it.
            resources: Objects of the caller for it, by name.
        """
        _refuse_while_imported()
        self._refuse_while_draining()
        self._host.rules.check()
        host, id = self._host, self._host.store.find_execution(execution)
        if self._local is not None and self._local.drives_here(id):
            driven = self._local.executions[id]
            self._bring(driven, resources)
            return driven

        driven = taken(host, id, partial(self._bring, resources=resources))
        _enter(driven)
        return driven

    def _refuse_while_draining(self) -> None:
        if self._host.draining:
            raise Conflict(
                "this engine is draining: it begins and resumes nothing more",
                hint="record it with Engine.start, for another engine or a worker",
            )

    # Driving

    async def drive(self, execution: Execution) -> ExecutionResult:
        """Drive an execution, and then the executions to which it has sent messages.

        This is an operation, see `flowengine.util.blocking`.
        """
        if not self._sent_out:  # once per engine
            self._sent_out = True
            self._deliver()
        await self._driven(execution)
        rests = not self._host.woken
        while self._host.woken:  # those that received messages, until none are left
            with suppress(Conflict, NotFound):  # its holder reads them
                await self._driven(self.loaded(self._host.woken.popitem()[0]))
        return result_of(execution if rests else self._host.stored(execution.id, 0))

    def leave(self, execution: Execution) -> ExecutionResult:
        """Record the queued messages of an execution, and leave it to another process."""
        try:
            Driver(self._host).commit(execution, begins=False)
        finally:
            self._host.keeper.release(execution.leases)
        return result_of(self._host.stored(execution.id, 0))

    async def take(
        self, execution: str, on_taken: Callable[[], None] = lambda: None
    ) -> ExecutionResult | None:
        """Drive one execution, and leave those to which it sends messages to the next look.

        Args:
            execution: Full id.
            on_taken: Called when no other process can take it, and before anything is done.

        Returns:
            The state of the execution. None: another process has taken it, or this one is draining.
        """
        local = self._here()
        if self._host.draining:
            return None
        try:
            found = self.loaded(execution)
        except Conflict:
            return None
        is_running = "running" in {found.stored_status, found.state["status"]}
        has_work = is_running or found.queue or found.commands
        if not has_work and not self._host.store.inbox(found.id):  # it only waits
            self._host.keeper.release(found.leases)
            return None  # another process has taken it since, and has released it
        on_taken()
        found.wanted = found.wanted or False
        await local.drive(found)
        self._host.woken.clear()  # they are due
        return result_of(found)

    def hear(self) -> None:
        """Read the messages to the executions driven here, and deliver those of dead processes."""
        self._deliver()
        if self._local is not None:
            self._local.hear()

    async def drain(self, patience: float) -> None:
        """Let running attempts end, begin no others, and release all executions.

        Args:
            patience: Seconds until attempts that still run are interrupted.
        """
        self._host.draining = True
        if self._local is not None:
            await self._local.drain(patience)

    async def go_on(self, execution: str, *, resume: bool = True) -> ExecutionResult | None:
        """Resume an execution that received a message, unless another process does.

        On the event loop that drives it, it is only notified, not awaited. This is an operation,
        see `flowengine.util.blocking`.

        Args:
            execution: Full id.
            resume: Whether to resume it.

        Returns:
            The state of the execution. None: it is not driven here.
        """
        if await is_awaited() and self._taken_here(execution):
            return None
        for _ in range(LOOKS if resume and not self._host.draining else 0):
            try:
                return await self.drive(self.loaded(execution))
            except Conflict:
                if not self._lets_go(execution):
                    break
            await pause(LOOK_SECONDS)
        return None

    def _lets_go(self, execution: str) -> bool:
        """Return whether an execution that was held has been or may be released with messages left.

        A holder that only writes to the journal does so, as in `take_hands`, and so does one that
        has nothing to do. A holder that drives it either still has work to do or reads the messages
        soon. The conflict may be over when this is called, so only the present state counts.
        """
        from threading import get_ident

        hold = self._host.keeper.hold(execution)
        if hold is not None and (hold.is_driving or hold.thread == get_ident()):
            return False
        store = self._host.store
        return store.execution(execution).status in AT_REST and bool(store.inbox(execution))

    def take_hands(self, execution: str) -> None:
        """Journal claims and delegations of an execution's approvals, without driving it."""
        if self._taken_here(execution):
            return

        host = self._host
        with suppress(Conflict):  # the messages remain in the inbox, for its holder or the next
            Driver(host).write(execution, partial(take_hands, host))

    # Internals

    def _bring(self, execution: Execution, resources: Mapping[str, Any] | None) -> None:
        """Pass the caller's objects to an execution."""
        if resources:
            compiled = execution.linked.compiled

            check_names(compiled, resources, execution.context.environments)
            self._host.bring(execution.id, resources)
            execution.take_resources(self._host.resources_of(execution.id))

    def _here(self) -> running.local.Local:
        """Return what drives on the running event loop."""
        local = self._local  # another thread may replace it at any time
        if local is None or not local.is_here():
            local = self._local = running.local.Local(self._host)
        return local

    def _taken_here(self, execution: str) -> bool:
        """Deliver the messages of an execution if it is driven here, and return whether it is."""
        if self._local is None or not self._local.drives_here(execution):
            return False
        self._local.read_inbox(self._local.executions[execution])
        return True

    def _deliver(self) -> None:
        """Deliver messages that were pending when their processes died."""
        if self._host.store.outbox():
            deliver(self._host)

    def _driven(self, execution: Execution) -> Either[None]:
        return Either(partial(self._drive_one, execution), lambda: self._here().drive(execution))

    def _drive_one(self, execution: Execution) -> None:
        """Drive an execution without an event loop as long as possible, then on its own loop."""
        try:
            refuse_on_loop()
        except UsageError:
            if self._local is None or self._local.executions.get(execution.id) is not execution:
                self._host.keeper.release(execution.leases)
            raise
        driver = Driver(self._host)
        driver.add(execution)
        driver.enqueue(execution)
        is_imported = imported("asyncio") is not None
        until = monotonic() + (SYNC_SECONDS if is_imported else FIRST_SYNC_SECONDS)
        try:
            while driver.has_turns() and not driver.left and monotonic() <= until:
                driver.turns()
        except BaseException:
            driver.release(execution)
            raise
        if execution.error is None and driver.executions:
            running.local.drive_alone(self._host, execution, driver.left)
        if execution.error is not None:
            raise execution.error


def _enter(execution: Execution) -> None:
    """Record the enclosing attempt of an execution, if it is driven in one.

    The attempt's budgets and rules apply if the execution was started in an attempt of the same
    outer execution.
    """
    outer = outer_attempt()
    if outer is None:
        return
    execution.depth = outer.depth
    started: Any = next((one for one in execution.queue if one["type"] == "started"), None)
    data = execution.state["execution"] if started is None else started["execution"]
    if data.get("outer") == outer.execution:
        execution.outer = outer.binding(execution.id)


def _refuse_while_imported() -> None:
    """Refuse to drive an execution from a module that is being imported for a step."""
    # If it is not loaded, it imports nothing.
    modules = imported("flowengine.sdk.python.imported_modules")
    names = modules.importing() if modules is not None else []
    if modules is not None and names:
        raise UsageError(
            f"the module {public_name(names[-1])!r} runs a flow while it is imported for a "
            "step of one",
            hint="move that code under: if __name__ == '__main__':",
        )
