"""Driving executions to rest, in one process: those that are asked for, and those they wake.

Each verb of the public engine that may drive comes here, from plain code or from an event loop.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from flowengine.engines.attempts.runtime_resources import check_names
from flowengine.engines.executions.outer_attempts import outer_attempt
from flowengine.engines.executions.views import result_of
from flowengine.engines.running.driver import Driver
from flowengine.engines.running.recovery import recover, take_hands
from flowengine.errors import Conflict, NotFound, UsageError
from flowengine.kernel.notation.ids import wait_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from flowengine.engines.executions.execution import Execution
    from flowengine.engines.host import Host
    from flowengine.engines.results import ExecutionResult
    from flowengine.engines.running.local import Local
    from flowengine.engines.starting.beginning import Starting

SYNC_SECONDS = 0.1
"""How long an execution is driven without an event loop before other processes are listened to."""
LOOK_SECONDS = 0.005
"""How often it is looked whether an execution is free that nobody drives although it is held."""
LOOKS = 200
AT_REST = ("waiting", "stalled")


class Driving:
    """What one engine drives, and how it comes to it.

    Args:
        host: What its executions share.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._local: Local | None = None
        self._sent_out = False
        self._noting: dict[str, int] = {}
        """Executions that are held only to journal something → the thread that does."""

    async def close(self) -> None:
        """Stop what is driven on the event loop; all executions are saved."""
        if self._local is not None:
            await self._local.close()

    # Executions

    def new(self, starting: Starting) -> Execution:
        """Return a new execution, or the one that has this id already, with its lease.

        Raises:
            Conflict: The execution of that id runs another flow, or has other inputs.
        """
        from flowengine.engines.starting.beginning import begin, exists, record

        _refuse_while_imported()
        self._host.policies.check()
        if (outer := outer_attempt()) is not None:
            outer.check_depth()
            starting = starting._replace(outer=outer)
        if starting.id is not None and exists(self._host, starting.id):
            from flowengine.engines.flows import as_loaded
            from flowengine.engines.starting.same_start import check_same_start

            flow = as_loaded(self._host.store, starting.flow)
            check_same_start(self._host, starting.id, flow, starting.inputs)
            return self.loaded(starting.id, starting.resources)
        if starting.files:
            return self.loaded(record(self._host, starting), starting.resources)
        execution = begin(self._host, starting)
        _enter(execution)
        execution.linked.look_ahead(starting.labels)
        return execution

    def loaded(self, execution: str, resources: Mapping[str, Any] | None = None) -> Execution:
        """Return an execution with its lease, and what happened meanwhile in its queue.

        Args:
            execution: Its id, or an unambiguous prefix of it.
            resources: Objects of the caller for it, by name.
        """
        _refuse_while_imported()
        self._host.policies.check()
        host, id = self._host, self._host.store.find_execution(execution)
        if self._local is not None and self._local.drives_here(id):
            found = self._local.executions[id]
            self._bring(found, resources)
            return found
        epoch = host.keeper.acquire(id)
        try:
            found = host.stored(id, epoch)
            self._bring(found, resources)
            self._answer_open(found)
            recover(found, host.store.inbox(id), host.clock.now())
            _enter(found)
            found.look_ahead()
        except BaseException:
            host.keeper.release([(id, epoch)])
            raise
        return found

    def _answer_open(self, execution: Execution) -> None:
        """Answer what a process asked that died before a grant could answer it."""
        asked = [number for number, record in execution.waits.items() if "digest" in record]
        if not asked or not self._host.store.grants(execution.context.flow):
            return
        from flowengine.engines.running.flow_grants import answer

        for number in asked:
            wait = self._host.store.wait(wait_id(execution.id, number))
            answer(self._host, wait, wait.record.get("source"))

    # To rest

    def drive(self, execution: Execution) -> ExecutionResult:
        """Drive an execution, and then those to which it has sent something."""
        try:
            _refuse_on_loop()
        except UsageError:
            if self._local is None or self._local.executions.get(execution.id) is not execution:
                self._host.keeper.release(execution.leases)
            raise
        self._send_out()
        self._drive_one(execution)
        rests = not self._host.woken
        for other in self._woken():
            with suppress(Conflict, NotFound):
                self._drive_one(other)
        return result_of(execution if rests else self._host.stored(execution.id, 0))

    async def drive_async(self, execution: Execution) -> ExecutionResult:
        """Like `drive`, on the running event loop."""
        from flowengine.engines.running.local import Local

        if self._local is None or not self._local.is_here():
            self._local = Local(self._host)
        self._send_out()
        await self._local.drive(execution)
        rests = not self._host.woken
        for other in self._woken():
            with suppress(Conflict, NotFound):
                await self._local.drive(other)
        return result_of(execution if rests else self._host.stored(execution.id, 0))

    def go_on(self, execution: str, *, resume: bool = True) -> ExecutionResult | None:
        """Resume an execution that was sent something, if nobody else does.

        Args:
            execution: Full id.
            resume: Whether to.

        Returns:
            The state of the execution; None: it is not driven here.
        """
        for _ in range(LOOKS if resume else 0):
            try:
                return self.drive(self.loaded(execution))
            except Conflict as held:
                if not self._lets_go(execution, held):
                    break
            sleep(LOOK_SECONDS)
        return None

    async def go_on_async(self, execution: str, *, resume: bool = True) -> ExecutionResult | None:
        """Like `go_on`; an execution that is driven here takes it and is not waited for."""
        import asyncio

        if self._taken_here(execution):
            return None
        for _ in range(LOOKS if resume else 0):
            try:
                return await self.drive_async(self.loaded(execution))
            except Conflict as held:
                if not self._lets_go(execution, held):
                    break
            await asyncio.sleep(LOOK_SECONDS)
        return None

    def _lets_go(self, execution: str, held: Conflict) -> bool:
        """Return whether who holds an execution might let go of it without a look at its inbox.

        Whoever only journals something does, as `take_hands`, or finds nothing to do. Who drives it
        either has not let it rest, or takes what it is sent before long.
        """
        from threading import get_ident

        if held.standing == self._host.keeper.owner:
            return self._noting.get(execution) not in (None, get_ident())
        store = self._host.store
        return store.execution(execution).status in AT_REST and bool(store.inbox(execution))

    def take_hands(self, execution: str) -> None:
        """Journal what people did with the approvals of an execution, without driving it."""
        from threading import get_ident

        if self._taken_here(execution):
            return
        host = self._host
        try:
            epoch = host.keeper.acquire(execution)
        except Conflict:
            return  # who holds it takes it
        self._noting[execution] = get_ident()
        try:
            found = host.stored(execution, epoch)
            take_hands(found, host.store.inbox(execution), host.clock.now())
            Driver(host).commit(found)
        except Conflict:
            pass  # somebody took it meanwhile; it is in the inbox
        finally:
            del self._noting[execution]
            host.keeper.release([(execution, epoch)])

    # Inside

    def _bring(self, execution: Execution, resources: Mapping[str, Any] | None) -> None:
        """Give an execution objects of the caller."""
        if resources:
            compiled = execution.linked.compiled
            check_names(compiled, resources, execution.context.environments)
            self._host.bring(execution.id, resources)
            execution.take_resources(self._host.resources_of(execution.id))

    def _taken_here(self, execution: str) -> bool:
        """Deliver what an execution was sent, if it is driven here; return whether it is."""
        if self._local is None or not self._local.drives_here(execution):
            return False
        self._local.read_inbox(self._local.executions[execution])
        return True

    def _send_out(self) -> None:
        """Send on its way what was still to be sent when a process died; once is enough."""
        if not self._sent_out:
            self._sent_out = True
            if self._host.store.outbox():
                from flowengine.engines.messages.delivery import deliver

                deliver(self._host)

    def _woken(self) -> Iterator[Execution]:
        """Yield the executions to which something was sent, until there are no more."""
        while self._host.woken:
            try:
                other = self.loaded(self._host.woken.popitem()[0])
            except (Conflict, NotFound):  # who holds it reads it
                continue
            yield other

    def _drive_one(self, execution: Execution) -> None:
        """Drive an execution without an event loop as long as possible, then on one of its own."""
        driver = Driver(self._host)
        driver.add(execution)
        driver.look(execution)
        until = monotonic() + SYNC_SECONDS
        try:
            while driver.has_turns() and not driver.left and monotonic() <= until:
                driver.turns()
        except BaseException:
            driver.release(execution)
            raise
        if execution.error is None and driver.executions:
            from flowengine.engines.running.alone import drive_alone

            drive_alone(self._host, execution, [command for _, command in driver.left])
        if execution.error is not None:
            raise execution.error


def _enter(execution: Execution) -> None:
    """Note in which attempt of another execution an execution is driven, if in one.

    What is around the attempt binds it if it was begun in an attempt of that execution.
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
    """Refuse to drive an execution from a module that is imported for a step of one."""
    modules = _imported("flowengine.python_modules")  # else it imports nothing
    names = modules.importing() if modules is not None else []
    if modules is not None and names:
        raise UsageError(
            f"the module {modules.public_name(names[-1])!r} runs a flow while it is imported for a "
            "step of one",
            hint="move that code under: if __name__ == '__main__':",
        )


def _imported(name: str) -> Any:
    """Return a module that somebody has imported; None: nobody has, or a thread is just at it."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    return None if getattr(spec, "_initializing", False) else module


def _refuse_on_loop() -> None:
    """Refuse to block an event loop that runs in this thread.

    Raises:
        UsageError: One does.
    """
    asyncio = _imported("asyncio")
    if asyncio is not None and asyncio._get_running_loop() is not None:
        raise UsageError(
            "an event loop is running in this thread, and this call would block it",
            hint="await the method with the same name ending in _async",
        )
