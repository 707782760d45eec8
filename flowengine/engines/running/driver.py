"""The synchronous driver: apply events, commit, carry out the resulting commands, repeat.

One `turn` processes all executions with new events, commits their changes in one transaction, and
only then carries out the resulting commands. The driver itself runs only synchronous work: steps
marked as quick, and commands without a step. Work that must be awaited is left to `Local`, so an
execution without such work needs no event loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic

from flowengine.engines.executions.execution import DriveChild, Execution, Preview
from flowengine.engines.executions.reducers import Unreduced
from flowengine.engines.executions.views import result_of
from flowengine.engines.host import Host
from flowengine.engines.results import Update
from flowengine.engines.running.commands import HostCarrier, may_run_ahead, run_ahead
from flowengine.engines.running.recovery import not_released, recover
from flowengine.errors import Conflict, InputError, LeaseLost, StoreError
from flowengine.journal.encoding import unpack
from flowengine.journal.records import Append, InboxMessage, ListedWait
from flowengine.kernel.commands import Consult
from flowengine.kernel.notation.addresses import NOTIFIES
from flowengine.sdk.environments import NotReleased
from flowengine.util.blocking import run_on_new_loop
from flowengine.util.garbage import CollectedLater

QUICK_SECONDS = 0.005
"""How long quick steps may run before their results are committed. Pure quick steps run one after
the other in that time, each before the previous result is on disk."""
TAKEOVER = 2_000
"""Milliseconds that an execution is left to the worker that wants it, before any may take it."""
TURNS_SECONDS = 0.005
"""How long executions that never wait may run before others get a turn."""


class Driver(HostCarrier):
    """Drives executions synchronously, as long as nothing must be awaited.

    Args:
        host: Shared context of the executions.

    Attributes:
        ready: Executions with events to apply, or to be checked.
        ahead: Executions that may run ahead in their turn, first come, first served.
    """

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        host.on_not_released = self.not_released
        self.ready: list[Execution] = []
        self.ahead: deque[Execution] = deque()

    def add(self, execution: Execution) -> None:
        """Drive an execution from now on. It has a lease."""
        self.executions[execution.id], execution.offers = execution, self.host.offers

    def enqueue(self, execution: Execution) -> None:
        """Process an execution in the next turn: apply its events, or release it."""
        if not execution.queued:
            execution.queued = True
            self.ready.append(execution)

    def has_turns(self) -> bool:
        """Return whether a turn has anything to do."""
        return bool(self.ready or self.ahead)

    def turns(self) -> None:
        """Take turns for a few milliseconds, or until nothing is ready or only awaiting helps."""
        until = monotonic() + TURNS_SECONDS
        with CollectedLater():
            while (self.ready or self.ahead) and not self.left:
                self.turn()
                if monotonic() > until:
                    break

    def turn(self) -> list[Execution]:
        """Apply, commit and carry out for all executions that are ready.

        Returns:
            The executions that were processed.
        """
        ready, self.ready = self.ready, []
        going = list(filter(self._moves, ready))
        if self.ahead:
            until = monotonic() + QUICK_SECONDS
            while self.ahead:
                execution = self.ahead.popleft()
                if self._moves(execution, until):
                    going.append(execution)
                if monotonic() > until:
                    break
        self._commit(going)
        return going

    def _commit(self, going: list[Execution]) -> None:
        """Commit the applied events, and carry out the resulting commands."""
        appends = self._appends(going)
        if not appends:
            return
        try:
            verdicts = self.host.journals.commit(appends)
        except Exception as error:
            for execution in going:
                self.halt(execution, error)
            return
        for execution, append, verdict in zip(going, appends, verdicts, strict=True):
            try:
                if verdict is None and execution.outer is not None:
                    execution.outer.count(execution)
                if verdict is not None:
                    self._refused(execution, append, verdict)
                elif append.release:
                    self._rest(execution)
                else:
                    self.quick_until = monotonic() + QUICK_SECONDS
                    self.carry_out(execution)
                if execution.recovered is not None and execution.seq > execution.recovered:
                    execution.recovered = None
                    self.host.keeper.calm(execution.leases)
                if verdict is None and (append.claims or append.release):
                    self.hand_on_locks(execution, append)
            except Exception as error:
                self.halt(execution, error)

    def _appends(self, going: list[Execution]) -> list[Append]:
        """Return the changes of executions, without those that cannot continue."""
        appends = []
        for execution in [*going]:
            is_over = execution.state["status"] != "running" or self.host.draining
            is_over = is_over or bool(execution.wanted)
            rests, halted = is_over and self._may_rest(execution), execution.halted
            try:
                append = execution.take(release=rests)
            except InputError as error:
                going.remove(execution)
                self.halt(execution, error)
                continue
            appends.append(append)
            if execution.halted and not halted and not append.release:
                self.enqueue(execution)  # it has just ended
        return appends

    def _moves(self, execution: Execution, until: float | None = None) -> bool:
        """Apply the events of an execution, or run quick steps ahead if it has none.

        Args:
            execution: An execution that was ready.
            until: When quick steps must stop for the commit. None: it must queue before it runs
                ahead.

        Returns:
            Whether it is to be committed.
        """
        if self.executions.get(execution.id) is not execution:
            execution.queued = False
            return False
        runs_ahead = not (execution.queue or self.host.draining or execution.wanted)
        runs_ahead = runs_ahead and may_run_ahead(self.host, execution)
        if runs_ahead and until is None:
            self.ahead.append(execution)
            return False
        execution.queued = False
        try:
            execution.apply_queue(self.host.subscribers)
            if runs_ahead and until is not None:
                run_ahead(self.host, execution, until)
        except Unreduced:
            execution.put_back_events(self.store.load)
            return False
        except Exception as error:
            self.halt(execution, error)
            return False
        return True

    def commit(self, execution: Execution, *, begins: bool = True) -> None:
        """Apply, commit and report the queue of an execution, and release its lease.

        Args:
            execution: Held by this engine, but not driven.
            begins: Whether to carry out its commands. Otherwise another process does.

        Raises:
            Conflict: Another owner holds it now.
        """
        execution.apply_queue(self.host.subscribers)
        if not begins:
            execution.put_off = execution.state["status"] == "running"
        [verdict] = self.host.journals.commit([execution.take(release=True)])
        if verdict is not None:
            raise verdict
        if not begins:
            execution.commands.clear()
        self.carry_out(execution)

    def write(self, execution: str, queue: Callable[[Execution], None]) -> None:
        """Record events of an execution that is not being driven.

        Args:
            execution: Full id.
            queue: Queues the events.

        Raises:
            Conflict: Another owner holds it.
        """
        epoch = self.host.keeper.acquire(execution, is_driving=False)
        try:
            found = self.host.stored(execution, epoch)
            queue(found)
            self.commit(found)
        finally:
            self.host.keeper.release([(execution, epoch)])

    def rested(self, execution: Execution) -> None:
        """Handle that an execution has ended or waits, and that its lease is released."""
        if self.may_have_environments(execution):
            run_on_new_loop(self.give_back(execution))

    def not_released(self, execution: str, failed: Sequence[NotReleased]) -> None:
        """Record in the journal which environments of an execution could not be closed."""
        events = not_released(failed, self.now())
        here = self.executions.get(execution)
        if here is not None:
            here.queue += events
            self.enqueue(here)
            return
        try:
            self.write(execution, lambda found: found.queue.extend(events))
        except Conflict:
            self.pass_on(execution, events)

    def halt(self, execution: Execution, error: Exception) -> None:
        """Stop driving an execution that cannot continue here. Its stored state is unchanged."""
        execution.error = error
        self.executions.pop(execution.id, None)
        self.release(execution)

    def release(self, execution: Execution) -> None:
        """Release the lease of an execution, if the store is still writable."""
        self.host.attempts_ended(execution.id, recorded=False)
        with suppress(StoreError):
            self.host.keeper.release(execution.leases)

    def _may_rest(self, execution: Execution) -> bool:
        """Return whether nothing will happen here until a timer, a message or a decision."""
        is_running = execution.state["status"] == "running"
        if execution.work or self._consults(execution):
            return False
        if self.host.draining or execution.wanted:
            execution.put_off = is_running
            if execution.wanted:
                execution.put_off_until = self.now() + TAKEOVER
            return True
        if is_running:
            return False
        return not self.stays(execution)

    def stays(self, execution: Execution) -> bool:
        """Return whether this process waits for a lock of another, or for a timer due soon.

        It does not wait to send a notification again, because that would delay the caller.
        """
        if "claims" in execution.state and self._stays_for_lock(execution):
            return True
        if execution.ended or not self.host.stays(execution.timers):
            return False

        return not execution.context.flow.startswith(NOTIFIES)

    def _consults(self, execution: Execution) -> bool:
        """Return whether this process must drive a child, or handle a question just opened."""
        if any(isinstance(command, Preview) for command in execution.commands):
            return True
        if any(isinstance(command, DriveChild) for command in execution.commands):
            return execution.wanted is None
        # The call needs a description, or a rule may answer.
        return any(isinstance(command, Consult) for command in execution.commands)

    def _stays_for_lock(self, execution: Execution) -> bool:
        """Return whether to stay for a lock held elsewhere, as for a timer that is due soon."""
        if execution.claims:
            return True  # this commit may grant it
        if self.host.woken:
            return False  # one of these executions may release it once this process drives it
        now, linger = self.now(), self.host.linger
        if execution.stays_until is None:
            execution.stays_until = now + linger
        return now < execution.stays_until <= now + linger  # the clock may be set back

    def _refused(self, execution: Execution, append: Append, verdict: Conflict) -> None:
        """Reload the execution if a decision or message was recorded first.

        Otherwise stop, as it was taken over.
        """
        if append.new is not None:
            execution.epoch = 0  # the process that created it holds its lease
        if not isinstance(verdict.standing, ListedWait | InboxMessage):
            if isinstance(verdict, LeaseLost):
                self.pass_on(execution.id, [unpack(event) for _, event in append.events])
            self.halt(execution, verdict)
            return
        results = execution.load_again(self.store.load(execution.id))
        self.read_inbox(execution)
        execution.queue += results
        self.enqueue(execution)

    def _rest(self, execution: Execution) -> None:
        """Release an execution, unless a message arrived at the same moment."""
        execution.epoch = 0
        self.host.attempts_ended(execution.id, recorded=True)
        self.host.keeper.released(execution.id)
        self.carry_out(execution)
        store = self.store
        if not (execution.ended or self.host.draining) and store.inbox(execution.id):
            with suppress(Conflict):
                execution.epoch = self.host.keeper.acquire(execution.id)
                execution.load(store.load(execution.id))

                recover(self.host, execution)
                self.enqueue(execution)
                return
        del self.executions[execution.id]
        if execution.ended:
            self.host.forget(execution.id)
        if self.host.subscribers:
            self.host.notify(Update(execution.id, "end", result_of(execution)))
        self.rested(execution)
