"""The synchronous driver: apply events, commit, carry out the resulting commands, repeat.

One `turn` processes all executions with new events, commits their changes in one transaction, and
only then carries out the resulting commands. The driver itself runs only synchronous work: steps
marked as quick, and commands without a step. Work that must be awaited is left to `Local`, so an
execution without such work needs no event loop.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING

from flowengine.engines.attempts.printed import is_heard
from flowengine.engines.executions.execution import Execution, Preview
from flowengine.engines.executions.views import result_of
from flowengine.engines.results import Update
from flowengine.engines.running.carrying import Carrier, notification
from flowengine.engines.running.quick_steps import may_run_ahead, run_ahead, run_heard, run_quick
from flowengine.errors import Conflict, InputError, LeaseLost, StoreError
from flowengine.journal.encoding import pack, unpack
from flowengine.journal.records import Append, ListedWait
from flowengine.journal.shapes import unpack_message
from flowengine.kernel.commands import Consult, ReleaseRegion, Run, Send, Stop
from flowengine.util.garbage import CollectedLater

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flowengine.engines.host import Host
    from flowengine.engines.running.carrying import Notice
    from flowengine.execution_environment import NotReleased
    from flowengine.kernel.events import Event

QUICK_SECONDS = 0.005
"""How long quick steps may run before their results are committed. Pure quick steps run one after
the other in that time, each before the previous result is on disk."""
TAKEOVER = 2_000
"""Milliseconds that an execution is left to the worker that wants it, before any may take it."""
TURNS_SECONDS = 0.005
"""How long executions that never wait may run before others get a turn."""


class Driver(Carrier):
    """Drives executions synchronously, as long as nothing must be awaited.

    Args:
        host: Shared context of the executions.

    Attributes:
        executions: The executions driven here, by id.
        ready: Executions with events to apply, or to be checked.
        ahead: Executions that may run ahead in their turn, first come, first served.
        left: Attempts, previews, and questions to policies that must be awaited.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self.on_update = host.tell
        self.executions: dict[str, Execution] = {}
        self.ready: list[Execution] = []
        self.ahead: deque[Execution] = deque()
        self.left: list[tuple[Execution, Run | Consult | Preview]] = []
        self._quick_until = 0.0
        host.on_not_released = self.not_released

    def add(self, execution: Execution) -> None:
        """Drive an execution from now on. It has a lease."""
        self.executions[execution.id], execution.offers = execution, self.host.offers

    def post(self, execution: Execution, event: Event) -> None:
        """Queue an event of an execution."""
        execution.queue.append(event)
        self.look(execution)

    def look(self, execution: Execution) -> None:
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
                    self._quick_until = monotonic() + QUICK_SECONDS
                    self.carry_out(execution)
                if execution.recovered is not None and execution.seq > execution.recovered:
                    self._got_further(execution)
                if verdict is None and (append.claims or append.release):
                    self._claimed(execution, append)
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
                self.look(execution)  # it has just ended
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

    def start(self, execution: Execution, run: Run) -> None:
        """Begin an attempt that must be awaited."""
        self.left.append((execution, run))

    def stop(self, execution: Execution, stop: Stop) -> None:
        """Cancel an attempt, which here can only be one that has not started."""
        self.left = [
            (other, run)
            for other, run in self.left
            if other is not execution or run.unit != stop.unit
        ]

    def alarm(self, execution: Execution) -> None:
        """Leave the timers to an event loop. Executions that wait for a timer are released here."""

    def consult(self, execution: Execution, command: Consult | Preview) -> None:
        """Compute the preview of a call and consult its policies. Both must be awaited."""
        self.left.append((execution, command))

    def release_region(self, execution: Execution, command: ReleaseRegion) -> None:
        """Release the environments of an ended region, which only exist on an event loop."""

    def rested(self, execution: Execution) -> None:
        """Handle that an execution has ended or waits, and that its lease is released."""
        if self.may_have_environments(execution):
            import asyncio

            asyncio.run(self.give_back(execution))

    def may_have_environments(self, execution: Execution) -> bool:
        """Return whether an execution has, or may have had, any environment."""
        return self.host.may_have_environments(execution.context, execution.linked.compiled)

    async def give_back(self, execution: Execution) -> None:
        """Release the environments that an ended or waiting execution no longer needs."""
        environments = self.host.environments
        if execution.ended:
            await environments.finish(execution.context, execution.linked.compiled)
        else:
            await environments.suspend(execution.context)

    def not_released(self, execution: str, failed: Sequence[NotReleased]) -> None:
        """Record in the journal which environments of an execution could not be closed."""
        from flowengine.engines.running.recovery import not_released, warn

        events = not_released(failed, self.host.clock.now())
        here = self.executions.get(execution)
        if here is None:
            warn(self.host, execution, events, self.commit)
            return
        for event in events:
            self.post(here, event)

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

    def read_inbox(self, execution: Execution) -> None:
        """Read the messages to an execution."""
        from flowengine.engines.running.recovery import take_message

        now = self.host.clock.now()
        for message in self.host.store.inbox(execution.id):
            if take_message(execution, message, now):
                self.look(execution)

    def fire_timers(self, execution: Execution) -> None:
        """Fire the due timers of an execution, after the decisions made before."""
        now = self.host.clock.now()
        timers = execution.timers.due(now)
        if not timers:
            return
        try:
            self.read_inbox(execution)
        except StoreError as error:
            self.halt(execution, error)
            return
        from flowengine.engines.running.recovery import fire

        for _, timer in timers:
            fire(execution, timer, now)
        self.look(execution)

    def _may_rest(self, execution: Execution) -> bool:
        """Return whether nothing will happen here until a timer, a message or a decision."""
        is_running = execution.state["status"] == "running"
        if execution.work or self._consults(execution):
            return False
        if self.host.draining or execution.wanted:
            execution.put_off = is_running
            if execution.wanted:
                execution.put_off_until = self.host.clock.now() + TAKEOVER
            return True
        if is_running:
            return False
        if "claims" in execution.state and self._stays_for_lock(execution):
            return False
        return execution.ended or not self.stays_for_timer(execution)

    def stays_for_timer(self, execution: Execution) -> bool:
        """Return whether a timer is due so soon that this process waits for it.

        It does not wait to send a notification again, because that would delay the caller.
        """
        if not execution.timers.stays(self.host.clock.now() + self.host.linger):
            return False
        from flowengine.kernel.notation.addresses import NOTIFIES

        return not execution.context.flow.startswith(NOTIFIES)

    def _got_further(self, execution: Execution) -> None:
        """Note that an execution whose last process died has got further in this one."""
        execution.recovered = None
        self.host.keeper.calm(execution.leases)

    def _consults(self, execution: Execution) -> bool:
        """Return whether this process must handle a question that was just opened."""
        if any(isinstance(command, Preview) for command in execution.commands):
            return True
        asked = [command for command in execution.commands if isinstance(command, Consult)]
        if not asked:
            return False
        if any(command.environment is None for command in asked):
            return True  # the call needs a description, or a rule may answer
        return self.host.may_consult()

    def _stays_for_lock(self, execution: Execution) -> bool:
        """Return whether to stay for a lock held elsewhere, as for a timer that is due soon."""
        if execution.claims:
            return True  # this commit may grant it
        if self.host.woken:
            return False  # one of these executions may release it once this process drives it
        now, linger = monotonic(), self.host.linger
        if execution.waited_until is None:
            if linger and not self.look_later(execution, linger):
                return True
            execution.waited_until = now + linger / 1000
        return now < execution.waited_until

    def _claimed(self, execution: Execution, append: Append) -> None:
        """Process the locks granted by a commit, to this and other executions."""
        over = append.release and execution.ended
        if not append.claims and not (over and "bound" in execution.state):
            return
        freed = any(claim.then in ("give", "cancel") for claim in append.claims)
        claimants = {
            message.execution: True
            for message in self.host.store.arrived(0)
            # Other messages are handled by their sender.
            if (message.execution == execution.id or freed or over)
            and unpack_message(message)["type"] in ("granted", "cancel")
        }
        for id in claimants:
            other = self.executions.get(id)
            if other is None:
                self.host.woken[id] = True
            else:
                other.waited_until = None
                self.read_inbox(other)  # its earlier messages are read first
        if execution.id in self.executions and "claims" in execution.state:
            self.look(execution)

    def look_later(self, execution: Execution, delay: int) -> bool:
        """Schedule another check of an execution, and return whether that is possible.

        Args:
            execution: The execution.
            delay: Milliseconds.

        Returns:
            False: nothing can be awaited here. The next driver on an event loop does it.
        """
        return False

    def _refused(self, execution: Execution, append: Append, verdict: Conflict) -> None:
        """Reload the execution if a decision was recorded first.

        Otherwise stop, as it was taken over.
        """
        if append.new is not None:
            execution.epoch = 0  # the process that created it holds its lease
        if not isinstance(verdict.standing, ListedWait):
            if isinstance(verdict, LeaseLost):
                self.pass_on(execution, [unpack(event) for _, event in append.events])
            self.halt(execution, verdict)
            return
        execution.load_again(self.host.store.load(execution.id))
        self.read_inbox(execution)
        self.look(execution)

    def pass_on(self, execution: Execution, events: Sequence[Event]) -> None:
        """Send the outcomes of attempts to the process that holds an execution now.

        An open question about such an attempt then has an answer.
        """
        host = self.host
        for event in events:
            if event["type"] in ("succeeded", "failed"):
                with suppress(Conflict, StoreError):  # it has ended, or is gone
                    host.store.send(execution.id, pack(event), event["at"], host.ids.message())

    def _rest(self, execution: Execution) -> None:
        """Release an execution, unless a message arrived at the same moment."""
        execution.epoch = 0
        self.host.attempts_ended(execution.id, recorded=True)
        self.host.keeper.released(execution.id)
        self.carry_out(execution)
        store = self.host.store
        if not (execution.ended or self.host.draining) and store.inbox(execution.id):
            with suppress(Conflict):
                execution.epoch = self.host.keeper.acquire(execution.id)
                execution.load(store.load(execution.id))
                from flowengine.engines.running.recovery import recover

                now, inbox = self.host.clock.now(), store.inbox(execution.id)
                recover(execution, inbox, now, offers=self.host.offers)
                self.look(execution)
                return
        del self.executions[execution.id]
        if execution.ended:
            self.host.forget(execution.id)
        if self.host.subscribers:
            self.host.tell(Update(execution.id, "end", result_of(execution)))
        self.rested(execution)

    def begin_attempt(self, execution: Execution, run: Run) -> bool:
        """Begin an attempt if permitted. A quick step runs immediately."""
        if self.host.draining or execution.wanted:
            return True  # the next process begins it
        is_open = self.host.is_open(run, execution)
        context, runner = execution.context, execution.linked.runner
        if not is_open:
            from flowengine.engines.running.gate import look

            if (gated := look(self.host, execution, run)) is not None:
                self.post(execution, gated)
                return True
        if execution.linked.compiled["steps"][run.step].get("kind") == "flow":
            from flowengine.engines.running.recovery import begin_detached

            self.post(execution, begin_detached(self.host, execution, run))
        elif context.environments or context.missing or (call := runner.quick(run.step)) is None:
            self.start(execution, run)
        elif is_open and not execution.queue and runner.ahead(run.step) is not None:
            execution.commands.appendleft(run)
            self.look(execution)  # runs ahead in the next turn
            return False
        else:
            runs = run_heard if is_heard() else run_quick
            execution.queue.append(runs(self.host, execution, run, call))  # like `post`
            self.look(execution)
            return monotonic() <= self._quick_until
        return True

    def tell(self, execution: Execution, command: Notice) -> None:
        """Notify the receivers of a command."""
        if isinstance(command, Consult):
            if command.wait not in execution.waits:
                self.look(execution)  # it has been answered
                return
            if command.environment is None and self._answered(execution, command):
                self.read_inbox(execution)
                return
            from flowengine.engines.executions.calls import has_preview

            step = execution.linked.compiled["steps"][command.step]
            if self.host.may_consult() or has_preview(step):
                self.consult(execution, command)
            else:
                self.look(execution)  # it stayed for an answer, and may now be released
        elif isinstance(command, Preview):
            self.consult(execution, command)
        elif isinstance(command, Send):
            self._deliver()
        elif isinstance(command, ReleaseRegion):
            self.release_region(execution, command)
        else:
            self.on_update(notification(execution, command))
            if command.flows:
                self._deliver()

    def _answered(self, execution: Execution, asked: Consult) -> bool:
        """Record the description of a call, and return whether rules or grants answer it."""
        if self.host.policies.there():
            from flowengine.engines.running.gate import answer

            if answer(self.host, execution, asked.wait, asked.step, required=asked.required):
                return True
        from flowengine.engines.running.call_descriptions import described, server_description

        source = execution.waits[asked.wait].get("source")
        if source is None:
            text = server_description(self.host, execution, asked.step)
            event = described(execution, asked.wait, asked.step, self.host.clock.now(), text)
            if event is not None:
                source = event["source"]
                self.post(execution, event)
        if not self.host.store.grants(execution.context.flow):
            return False
        from flowengine.engines.running import flow_grants
        from flowengine.kernel.notation.addresses import wait_id

        wait = self.host.store.wait(wait_id(execution.id, asked.wait))
        return flow_grants.answer(self.host, wait, source)

    def _deliver(self) -> None:
        """Deliver messages between executions. Executions driven here read theirs."""
        from flowengine.engines.messages import deliver

        deliver(self.host)
        for id in [id for id in self.host.woken if id in self.executions]:
            del self.host.woken[id]
            self.read_inbox(self.executions[id])
