"""Moves executions: apply what happened, commit, carry out what follows, and again.

One `turn` takes all executions that something has happened to, puts what they did into one
transaction, and only then does what follows from it. A driver by itself runs what ends at once:
steps marked as quick, and all that needs no step. What has to be awaited is left to `Local`, so an
execution without such steps needs no event loop.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING

from flowengine.engines.executions.execution import ENDED, Execution, Preview, Told
from flowengine.engines.executions.views import entry_view, result_of, wait_view
from flowengine.engines.results import Update
from flowengine.engines.running.carrying import Carrier
from flowengine.engines.running.quick_steps import may_run_ahead, run_ahead, run_quick
from flowengine.engines.running.recovery import fire, recover, take_message
from flowengine.errors import Conflict, StoreError
from flowengine.garbage import CollectedLater
from flowengine.journal.records import Append, Wait
from flowengine.journal.shapes import unpack_message
from flowengine.kernel.commands import Consult, ReleaseRegion, Run, Send, Stop
from flowengine.kernel.notation.ids import wait_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flowengine.engines.host import Host
    from flowengine.engines.running.carrying import Notice
    from flowengine.execution_environment import NotReleased
    from flowengine.kernel.events import Event

QUICK_SECONDS = 0.005
"""How long quick steps may run before what they gave is committed. Those that are pure run one
after the other meanwhile, each before the result of the one before it is on disk."""
TURNS_SECONDS = 0.005
"""How long executions that never wait may run before others get a turn."""


class Driver(Carrier):
    """Drives executions synchronously, as long as nothing has to be awaited.

    Args:
        host: What they share.

    Attributes:
        executions: Those that are driven here, by id.
        ready: Those that have events to be applied, or are to be looked at.
        ahead: Those that run ahead when it is their turn, first come, first served.
        left: Attempts, previews, and questions to policies, that have to be awaited.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self.executions: dict[str, Execution] = {}
        self.ready: list[Execution] = []
        self.ahead: deque[Execution] = deque()
        self.left: list[tuple[Execution, Run | Consult | Preview]] = []
        self._quick_until = 0.0
        host.on_not_released = self.not_released

    def add(self, execution: Execution) -> None:
        """Drive an execution from now on; it has a lease."""
        self.executions[execution.id] = execution

    def post(self, execution: Execution, event: Event) -> None:
        """Let something have happened to an execution."""
        execution.queue.append(event)
        self.look(execution)

    def look(self, execution: Execution) -> None:
        """Look at an execution in the next turn: events to apply, or it may be let go."""
        if not execution.queued:
            execution.queued = True
            self.ready.append(execution)

    def has_turns(self) -> bool:
        """Return whether a turn would find something to do."""
        return bool(self.ready or self.ahead)

    def turns(self) -> None:
        """Take turns for a few milliseconds, or until nothing is ready or something is left."""
        until = monotonic() + TURNS_SECONDS
        with CollectedLater():
            while (self.ready or self.ahead) and not self.left:
                self.turn()
                if monotonic() > until:
                    break

    def turn(self) -> list[Execution]:
        """Apply, commit and carry out for all executions that are ready.

        Returns:
            Those that moved.
        """
        ready, self.ready = self.ready, []
        going = [execution for execution in ready if self._moves(execution)]
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
        """Commit what has been applied, and carry out what follows from it."""
        appends = []
        for execution in going:
            rests = execution.state["status"] != "running" and self._may_rest(execution)
            appends.append(execution.take(release=rests))
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
                if verdict is None and (append.claims or append.head is not None):
                    self._claimed(execution, append)
            except Exception as error:
                self.halt(execution, error)

    def _moves(self, execution: Execution, until: float | None = None) -> bool:
        """Apply what has happened to an execution, or run ahead where nothing has.

        Args:
            execution: One that was ready.
            until: When quick steps are to stop for the commit; None: it has to queue before it runs
                ahead.

        Returns:
            Whether it is to be committed.
        """
        if self.executions.get(execution.id) is not execution:
            execution.queued = False
            return False
        runs_ahead = not execution.queue and may_run_ahead(self.host, execution)
        if runs_ahead and until is None:
            self.ahead.append(execution)
            return False
        execution.queued = False
        try:
            execution.told = Told([], [], []) if self.host.subscribers else None
            execution.apply_queue()
            if runs_ahead and until is not None:
                run_ahead(self.host, execution, until)
        except Exception as error:
            self.halt(execution, error)
            return False
        return True

    def commit(self, execution: Execution) -> None:
        """Apply, commit and report what is in the queue of an execution, and release its lease.

        Args:
            execution: Held by this engine; it is not driven.

        Raises:
            Conflict: Somebody else holds it now.
        """
        execution.told = Told([], [], []) if self.host.subscribers else None
        execution.apply_queue()
        [verdict] = self.host.journals.commit([execution.take(release=True)])
        if verdict is not None:
            raise verdict
        self.carry_out(execution)

    def start(self, execution: Execution, run: Run) -> None:
        """Begin an attempt that has to be awaited."""
        self.left.append((execution, run))

    def stop(self, execution: Execution, stop: Stop) -> None:
        """Cancel an attempt; here, it can only be one that has not started."""
        self.left = [
            (other, run)
            for other, run in self.left
            if other is not execution or run.unit != stop.unit
        ]

    def alarm(self, execution: Execution) -> None:
        """Leave the timers to an event loop: what waits for time here is let go."""

    def consult(self, execution: Execution, command: Consult | Preview) -> None:
        """Compute the preview of a call, and ask whoever may answer at once: both are awaited."""
        self.left.append((execution, command))

    def release_region(self, execution: Execution, command: ReleaseRegion) -> None:
        """Give back what belongs to a region that has ended; steps with such run on a loop."""

    def rested(self, execution: Execution) -> None:
        """Handle that an execution has ended or waits; its lease is released."""
        if self.may_have_environments(execution):
            import asyncio

            asyncio.run(self.give_back(execution))

    def may_have_environments(self, execution: Execution) -> bool:
        """Return whether an execution has, or may have had, any environment."""
        return self.host.may_have_environments(execution.context, execution.linked.compiled)

    async def give_back(self, execution: Execution) -> None:
        """Release the environments that an execution no longer needs: it has ended or waits."""
        environments = self.host.environments
        if execution.ended:
            await environments.finish(execution.context, execution.linked.compiled)
        else:
            await environments.suspend(execution.context)

    def not_released(self, execution: str, failed: Sequence[NotReleased]) -> None:
        """Write into the journal of an execution what of its environments could not be closed."""
        from flowengine.engines.running.warnings import not_released, warn

        events = not_released(failed, self.host.clock.now())
        here = self.executions.get(execution)
        if here is None:
            warn(self.host, execution, events, self.commit)
            return
        for event in events:
            self.post(here, event)

    def halt(self, execution: Execution, error: Exception) -> None:
        """Stop driving an execution that cannot go on in this process; it is saved as it was."""
        execution.error = error
        self.executions.pop(execution.id, None)
        self.release(execution)

    def release(self, execution: Execution) -> None:
        """Give back the lease of an execution, if the store can still be written."""
        with suppress(StoreError):
            self.host.keeper.release(execution.leases)

    def read_inbox(self, execution: Execution) -> None:
        """Take what others have sent to an execution."""
        now = self.host.clock.now()
        for message in self.host.store.inbox(execution.id):
            if take_message(execution, message, now):
                self.look(execution)

    def fire_timers(self, execution: Execution) -> None:
        """Let the timers of an execution fire that are due; decisions made before come first."""
        now = self.host.clock.now()
        timers = execution.timers.due(now)
        if not timers:
            return
        try:
            self.read_inbox(execution)
        except StoreError as error:
            self.halt(execution, error)
            return
        for _, timer in timers:
            fire(execution, timer, now)
        self.look(execution)

    def _may_rest(self, execution: Execution) -> bool:
        """Return whether nothing will happen here until a time, a message or a person."""
        status = execution.state["status"]
        if execution.work or status == "running" or self._consults(execution):
            return False
        if "claims" in execution.state and self._stays_for_lock(execution):
            return False
        until = self.host.clock.now() + self.host.stay
        return execution.ended or not execution.timers.stays(until)

    def _consults(self, execution: Execution) -> bool:
        """Return whether this process has to do with a question that has just been asked."""
        if any(isinstance(command, Preview) for command in execution.commands):
            return True
        asked = [command for command in execution.commands if isinstance(command, Consult)]
        if not asked:
            return False
        if any(command.environment is None for command in asked):
            return True  # something is to be told of the call, or a rule answers
        return self.host.may_consult()

    def _stays_for_lock(self, execution: Execution) -> bool:
        """Return whether to stay for a lock that others have, as for a time that is near."""
        if execution.claims:
            return True  # it may be granted with this very commit
        if self.host.woken:
            return False  # it may be one of these that gives it back, once this process drives it
        now, stay = monotonic(), self.host.stay
        if execution.waited_until is None:
            if stay and not self.look_later(execution, stay):
                return True
            execution.waited_until = now + stay / 1000
        return now < execution.waited_until

    def _claimed(self, execution: Execution, append: Append) -> None:
        """Handle the locks that were granted with a commit, and who else got one."""
        over = append.head is not None and append.head.status in ENDED
        if not append.claims and not (over and "bound" in execution.state):
            return
        freed = any(claim.then in ("give", "cancel") for claim in append.claims)
        told = {
            message.execution: True
            for message in self.host.store.arrived(0)
            if (message.execution == execution.id or freed or over)  # else who made it happen does
            and unpack_message(message)["type"] in ("granted", "cancel")
        }
        for id in told:
            other = self.executions.get(id)
            if other is None:
                self.host.woken[id] = True
            else:
                other.waited_until = None
                self.read_inbox(other)  # what came before it is taken before it
        if execution.id in self.executions and "claims" in execution.state:
            self.look(execution)

    def look_later(self, execution: Execution, delay: int) -> bool:
        """Look at an execution again after some milliseconds, and return whether that can be done.

        Args:
            execution: The execution.
            delay: Milliseconds.

        Returns:
            False: nothing can be awaited here; the next driver on an event loop does it.
        """
        return False

    def _refused(self, execution: Execution, append: Append, verdict: Conflict) -> None:
        """Go back to the stored state if a decision was first; otherwise it was taken over."""
        if append.new is not None:
            execution.epoch = 0  # whoever created it holds its lease
        if not isinstance(verdict.standing, Wait):
            self.halt(execution, verdict)
            return
        execution.load_again(self.host.store.load(execution.id))
        self.read_inbox(execution)
        self.look(execution)

    def _rest(self, execution: Execution) -> None:
        """Let go of an execution; a message that came in the same moment is still taken."""
        execution.epoch = 0
        self.host.keeper.released(execution.id)
        self.carry_out(execution)
        store = self.host.store
        if not execution.ended and store.inbox(execution.id):
            with suppress(Conflict):
                execution.epoch = self.host.keeper.acquire(execution.id)
                execution.load(store.load(execution.id))
                recover(execution, store.inbox(execution.id), self.host.clock.now())
                self.look(execution)
                return
        del self.executions[execution.id]
        if execution.ended:
            self.host.forget(execution.id)
        if self.host.subscribers:
            self.host.tell(Update(execution.id, "end", result_of(execution)))
        self.rested(execution)

    def report(self, execution: Execution, told: Told) -> None:
        """Tell subscribers what is on disk now."""
        tell = self.host.tell
        for seq, event, address, why in told.entries:
            tell(Update(execution.id, "event", entry_view(seq, event, address, why)))
        for step in told.steps:
            tell(Update(execution.id, "step", None, step))
        flow = execution.context.flow
        for record, how in told.waits:
            if how is None and record["id"] not in execution.waits:
                continue  # it was over before anybody could answer it
            if how is None and _may_settle(execution, record["id"]):
                continue  # it is told if the attempt ends without an answer
            tell(Update(execution.id, "wait", wait_view(execution.id, flow, record, how)))

    def begin_attempt(self, execution: Execution, run: Run) -> bool:
        """Begin an attempt, unless it must not begin; a quick step is run here and now."""
        is_open = self.host.is_open(run, execution)
        context, runner = execution.context, execution.linked.runner
        if not is_open and (gated := self._look(execution, run)):
            self.post(execution, gated)
        elif execution.linked.compiled["steps"][run.step].get("kind") == "flow":
            self.post(execution, self._begin_detached(execution, run))
        elif context.environments or context.missing or (call := runner.quick(run.step)) is None:
            self.start(execution, run)
        elif is_open and not execution.queue and runner.pure(run.step) is not None:
            execution.commands.appendleft(run)
            self.look(execution)  # it runs ahead in the next turn
            return False
        else:
            execution.queue.append(run_quick(self.host, execution, run, call))  # as `post` does
            self.look(execution)
            return monotonic() <= self._quick_until
        return True

    def _look(self, execution: Execution, run: Run) -> Event | None:
        """Return what takes the place of an attempt that must not begin; None: it may."""
        from flowengine.engines.running.gate import look

        return look(self.host, execution, run)

    def _begin_detached(self, execution: Execution, run: Run) -> Event:
        """Begin an execution for a step that does not wait for it."""
        from flowengine.engines.running.detached import begin_detached

        return begin_detached(self.host, execution, run)

    def tell(self, execution: Execution, command: Notice) -> None:
        """Tell whom it concerns what has happened."""
        if isinstance(command, Consult):
            if command.environment is None and self._answered(execution, command):
                self.read_inbox(execution)
                return
            if self.host.may_consult() or _has_preview(execution, command.step):
                self.consult(execution, command)
            else:
                self.look(execution)  # it stayed for an answer, and may rest now
        elif isinstance(command, Preview):
            self.consult(execution, command)
        elif isinstance(command, Send):
            self._deliver()
        elif isinstance(command, ReleaseRegion):
            self.release_region(execution, command)
        else:
            self.host.tell(Update(execution.id, "notify", command._asdict()))

    def _answered(self, execution: Execution, asked: Consult) -> bool:
        """Tell what only the engine knows of a call; return whether rules or grants answer."""
        if self.host.policies.there():
            from flowengine.engines.running.gate import answer

            if answer(self.host, execution, asked):
                return True
        from flowengine.engines.running.call_descriptions import described, said_by_server

        said = said_by_server(self.host, execution, asked.step)
        event = described(execution, asked.wait, asked.step, self.host.clock.now(), said)
        source = None
        if event is not None:
            source = event["source"]
            self.post(execution, event)
        if not self.host.store.grants(execution.context.flow):
            return False
        from flowengine.engines.running import flow_grants

        wait = self.host.store.wait(wait_id(execution.id, asked.wait))
        return flow_grants.answer(self.host, wait, source)

    def _deliver(self) -> None:
        """Take what executions have sent to whom it is for; those that are driven here read it."""
        from flowengine.engines.messages.delivery import deliver

        deliver(self.host)
        for id in [id for id in self.host.woken if id in self.executions]:
            del self.host.woken[id]
            self.read_inbox(self.executions[id])


def _has_preview(execution: Execution, step: int) -> bool:
    from flowengine.engines.executions.calls import has_preview  # few steps are asked about

    return has_preview(execution.linked.compiled["steps"][step])


def _may_settle(execution: Execution, wait: int) -> bool:
    """Return whether a question is about an attempt that is still being ended here."""
    found = execution.state["waits"].get(wait)
    return found is not None and found.get("cut") in execution.work
