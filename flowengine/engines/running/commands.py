"""Carrying out commands in the process that writes the journal.

Only commands that end at once are carried out here. Awaited work is left for an event loop, so an
execution without such work needs none.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from time import monotonic
from typing import TypeAlias

from flowengine.engines.attempts.outcome import ASKING, AttemptFailed, QuickCall, failed, succeeded
from flowengine.engines.attempts.printed import PRINTING, is_heard
from flowengine.engines.executions.calls import has_preview
from flowengine.engines.executions.execution import DriveChild, Execution, Preview
from flowengine.engines.executions.outer_attempts import OUTER
from flowengine.engines.host import Host
from flowengine.engines.messages import deliver
from flowengine.engines.running.answers import answer_by_grant
from flowengine.engines.running.call_descriptions import described, server_description
from flowengine.engines.running.carrying import Carrier, Notice, report_notice
from flowengine.engines.running.gate import answer, asked_instead, check
from flowengine.engines.running.recovery import begin_detached
from flowengine.errors import Conflict, StoreError
from flowengine.journal.encoding import pack
from flowengine.journal.records import Append
from flowengine.journal.shapes import unpack_message
from flowengine.kernel.commands import Consult, ReleaseRegion, Run, Send, Stop
from flowengine.kernel.events import Event
from flowengine.kernel.notation.addresses import separate_id, wait_id

Left: TypeAlias = list[tuple[Execution, Run | Consult | Preview | DriveChild]]
"""Attempts, previews, started executions and questions to rules that must be awaited, with their
executions."""
PASSED_ON = frozenset({"succeeded", "failed", "warning"})
"""Types of events that another process can record, too."""


class HostCarrier(Carrier):
    """Carries out the commands of the executions of a host.

    Args:
        host: Shared context of the executions.

    Attributes:
        executions: The executions driven here, by id.
        left: The work that must be awaited.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self.store, self.now, self.on_update = host.store, host.clock.now, host.notify
        self.executions: dict[str, Execution] = {}
        self.left: Left = []
        self.quick_until = 0.0
        """Until when quick steps may run before their results are committed."""

    def begin_attempt(self, execution: Execution, run: Run) -> bool:
        """Begin an attempt if permitted. A quick step runs immediately."""
        if self.host.draining or execution.wanted:
            return True  # the next process begins it
        is_open = self.host.is_open(run, execution)
        context, runner = execution.context, execution.linked.runner
        if not is_open and (gated := check(self.host, execution, run)) is not None:
            self.post(execution, gated)
            return True
        if execution.linked.compiled["steps"][run.step].get("kind") == "flow":
            begun = begin_detached(self.host, execution, run)
            self.post(execution, begun)
            if run.child is not None and begun["type"] == "succeeded":
                execution.commands.append(DriveChild(separate_id(context.identity, run.address)))
        elif context.environments or context.missing or (call := runner.quick(run.step)) is None:
            self.left.append((execution, run))
        elif is_open and not execution.queue and runner.ahead(run.step) is not None:
            execution.commands.appendleft(run)
            self.enqueue(execution)  # runs ahead in the next turn
            return False
        else:
            runs = run_heard if is_heard() else run_quick
            execution.queue.append(runs(self.host, execution, run, call))  # like `post`
            self.enqueue(execution)
            return monotonic() <= self.quick_until
        return True

    def stop(self, execution: Execution, stop: Stop) -> None:
        """Do nothing: what must be awaited has not begun, and other work ends at once."""

    def notify(self, execution: Execution, command: Notice) -> None:
        """Notify the receivers of a command."""
        if isinstance(command, Consult):
            if command.wait not in execution.waits:
                self.enqueue(execution)  # it has been answered
                return
            if self._answered(execution, command):
                self.read_inbox(execution)
                return
            step = execution.linked.compiled["steps"][command.step]
            if self.host.consultant is not None or has_preview(step):
                self.left.append((execution, command))
            else:
                self.enqueue(execution)  # it stayed for an answer, and may now be released
        elif isinstance(command, Preview | DriveChild):
            if execution.wanted is None or isinstance(command, Preview):  # workers find children
                self.left.append((execution, command))
        elif isinstance(command, Send):
            self._deliver()
            if command.to in execution.state.get("children", ()):  # it rests if it waited
                execution.commands.append(DriveChild(command.to))
        elif isinstance(command, ReleaseRegion):
            self.release_region(execution, command)
        else:
            report_notice(self.on_update, execution, command)
            if command.flows:
                self._deliver()

    def _answered(self, execution: Execution, asked: Consult) -> bool:
        """Record the description of a call, and return whether rules or grants answer it."""
        at = asked.wait, asked.step
        if self.host.rules.there() and answer(self.host, execution, *at, required=asked.required):
            return True

        source = execution.waits[asked.wait].get("source")
        if source is None:
            text = server_description(self.host, execution, asked.step)
            event = described(execution, asked.wait, asked.step, self.now(), text)
            if event is not None:
                source = event["source"]
                self.post(execution, event)
        if not self.store.grants(execution.context.flow):
            return False

        wait = self.store.wait(wait_id(execution.id, asked.wait))
        return answer_by_grant(self.host, wait, source)

    def _deliver(self) -> None:
        """Deliver messages between executions. Executions driven here read theirs."""
        deliver(self.host)
        for id in [id for id in self.host.woken if id in self.executions]:
            del self.host.woken[id]
            self.read_inbox(self.executions[id])

    def release_region(self, execution: Execution, command: ReleaseRegion) -> None:
        """Release the environments of an ended region, which only exist on an event loop."""

    def may_have_environments(self, execution: Execution) -> bool:
        """Return whether an execution has, or may have had, any environment."""
        return self.host.may_have_environments(execution.context, execution.linked.compiled)

    async def give_back(self, execution: Execution) -> None:
        """Release the environments that an ended or waiting execution no longer needs."""
        environments = self.host.environments
        if environments is None:
            return
        if execution.ended:
            await environments.finish(execution.context, execution.linked.compiled)
        else:
            await environments.suspend(execution.context)

    def hand_on_locks(self, execution: Execution, append: Append) -> None:
        """Have executions take the locks that a commit of one has granted them."""
        over = append.release and execution.ended
        if not append.claims and not (over and "bound" in execution.state):
            return
        freed = any(claim.then in ("give", "cancel") for claim in append.claims)
        claimants = {
            message.execution: True
            for message in self.store.arrived(0)
            # Other messages are handled by their sender.
            if (message.execution == execution.id or freed or over)
            and unpack_message(message)["type"] in ("granted", "cancel")
        }
        for id in claimants:
            other = self.executions.get(id)
            if other is None:
                self.host.woken[id] = True
            else:
                other.stays_until = None
                self.read_inbox(other)  # its earlier messages are read first
        if execution.id in self.executions and "claims" in execution.state:
            self.enqueue(execution)

    def pass_on(self, execution: str, events: Sequence[Event]) -> None:
        """Send events to the process that holds an execution now, as far as it takes them.

        By the outcome of an attempt, an open question about it has an answer.
        """
        for event in events:
            if event["type"] not in PASSED_ON:
                continue
            with suppress(Conflict, StoreError):  # it has ended, or is gone
                self.store.send(execution, pack(event), event["at"], self.host.ids.message())


# Quick steps, which run synchronously, some of them before earlier results are on disk.


def may_run_ahead(host: Host, execution: Execution) -> bool:
    """Return whether the next command runs a quick step that may run ahead of its commit."""
    commands = execution.commands
    if not commands or execution.context.environments or execution.context.missing:
        return False
    command = commands[0]
    if not isinstance(command, Run) or execution.linked.runner.ahead(command.step) is None:
        return False
    return host.is_open(command, execution)


def run_ahead(host: Host, execution: Execution, until: float) -> None:
    """Run quick steps one after the other whose results are then committed at once.

    The result of a step is applied, and the next step starts, before it is on disk. If the process
    dies, they run again, which is safe because they are pure. In memory, only an interrupt lets
    them run again, which is safe for idempotent steps too. Nothing else may be uncommitted in that
    time. The result of any other step is stored before anything else runs.

    Args:
        host: Shared context of the executions.
        execution: All its events are on disk.
        until: When to stop.
    """
    commands, ahead = execution.commands, execution.linked.runner.ahead
    runs = run_heard if is_heard() else run_quick
    is_time = False
    while commands and not is_time:
        results = []
        while commands and not is_time:
            command = commands[0]
            if type(command) is not Run or (call := ahead(command.step)) is None:
                break
            if command.approved is not None or command.step in execution.linked.ruled:
                break  # it requires a check right before it runs
            commands.popleft()
            results.append(runs(host, execution, command, call))
            is_time = monotonic() > until
        if not results:
            return
        for event in results:
            execution.apply(event)


def run_quick(host: Host, execution: Execution, run: Run, call: QuickCall) -> Event:
    """Run a quick step and return its outcome."""
    token = OUTER.set((execution, run))
    try:
        kept = call(execution.context, run)
    except AttemptFailed as failure:
        return failed_or_asked(host, execution, run, failure)
    finally:
        OUTER.reset(token)
    execution.kept[run.unit] = kept
    return succeeded(run, kept.value, host.clock.now(), log=kept.log)


def run_heard(host: Host, execution: Execution, run: Run, call: QuickCall) -> Event:
    """Run a quick step and return its outcome, with the end of its output if it fails."""
    follower = host.follower(execution.id, run.address, is_quick=True)
    printed = execution.linked.runner.printed(run.step, follower)
    token = PRINTING.set(printed)
    try:
        event = run_quick(host, execution, run, call)
        if event["type"] in ("failed", "lost") and (evidence := printed.evidence()):
            event["evidence"] = {**evidence, **event.get("evidence", {})}
        return event
    finally:
        PRINTING.reset(token)
        printed.close()


def failed_or_asked(host: Host, execution: Execution, run: Run, failure: AttemptFailed) -> Event:
    """Return the event of a failed attempt: a failure, or an approval request."""
    event = None
    if failure.error["type"] in ASKING:
        event = asked_instead(host, execution, run, failure)
    return event or failed(run, failure, host.clock.now())
