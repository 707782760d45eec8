"""The common parts of all drivers: queue messages and timers, carry out commands, report.

This module does not depend on the journal's place or on the process that writes it. See
`driver.py` for executions whose journals this process writes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from flowengine.engines.attempts.printed import Printed
from flowengine.engines.executions.execution import DriveChild, Execution, Preview, Told
from flowengine.engines.executions.views import entry_view, wait_view
from flowengine.engines.results import Update
from flowengine.journal.records import InboxMessage
from flowengine.journal.shapes import unpack_message
from flowengine.journal.store import Store
from flowengine.kernel.commands import Consult, Notify, ReleaseRegion, Run, Send, Stop
from flowengine.kernel.events import Event
from flowengine.kernel.notation.addresses import steps_in
from flowengine.kernel.view import View, budgets_around


class Tell(Protocol):
    """Receives updates for subscribers."""

    def __call__(self, *updates: Update) -> None:
        """Receive them in order."""


Notice: TypeAlias = Consult | Preview | DriveChild | Send | ReleaseRegion | Notify
"""Commands without an outcome that the kernel waits for, or whose outcome is a separate event."""


class Carrier(ABC):
    """Queues what happens to executions, and carries out their commands once it is recorded."""

    store: Store
    """Has the inboxes of the executions."""
    now: Callable[[], int]
    """Returns the time (ms)."""
    on_update: Tell
    """Receives updates for subscribers. Only drivers with subscribers have it."""

    @abstractmethod
    def enqueue(self, execution: Execution) -> None:
        """Process an execution in the next turn: apply its events, or release it."""

    @abstractmethod
    def begin_attempt(self, execution: Execution, run: Run) -> bool:
        """Begin an attempt, whose outcome is an event.

        Returns:
            Whether to continue with the next command now.
        """

    @abstractmethod
    def stop(self, execution: Execution, stop: Stop) -> None:
        """Stop an attempt."""

    @abstractmethod
    def notify(self, execution: Execution, command: Notice) -> None:
        """Notify the receivers of a command: a question, a message, the end of a region."""

    def post(self, execution: Execution, event: Event) -> None:
        """Queue an event of an execution."""
        execution.queue.append(event)
        self.enqueue(execution)

    def read_inbox(self, execution: Execution) -> None:
        """Read the messages to an execution."""
        now = self.now()
        for message in self.store.inbox(execution.id):
            if take_message(execution, message, now):
                self.enqueue(execution)

    def fire_timers(self, execution: Execution) -> None:
        """Fire the due timers of an execution, after the decisions made before."""
        now = self.now()
        timers = execution.timers.due(now)
        if timers:
            self.read_inbox(execution)
            for _, timer in timers:
                fire(execution, timer, now)
            self.enqueue(execution)

    def carry_out(self, execution: Execution) -> None:
        """Report recorded events, and carry out the resulting commands in order."""
        if execution.told is not None:
            report(self.on_update, execution, execution.told)
        commands = execution.commands
        while commands:
            command = commands.popleft()
            if type(command) is Run:
                if not self.begin_attempt(execution, command):
                    return
            elif isinstance(command, Stop):
                self.stop(execution, command)
            elif isinstance(command, Notice):
                self.notify(execution, command)


def report(tell: Tell, execution: Execution, news: Told) -> None:
    """Report events that are recorded, the steps that they concern, and the waits."""
    id = execution.id
    updates = [
        Update(id, "event", entry_view(seq, event, address, why))
        for seq, event, address, why in news.entries
    ]
    updates += [Update(id, "step", None, step) for step in news.steps]
    flow = execution.context.flow
    for record, how in news.waits:
        if how is None and record["id"] not in execution.waits:
            continue  # it was closed before it could be answered
        wait = execution.state["waits"].get(record["id"], {})
        if how is None and wait.get("cut") in execution.work:
            continue  # it is about an attempt that is being ended here, perhaps with an outcome
        updates.append(Update(id, "wait", wait_view(id, flow, record, how)))
    tell(*updates)


def report_notice(tell: Tell, execution: Execution, notify: Notify) -> None:
    """Report that users are notified of a wait. The end has a report already."""
    if notify.wait:
        data = {"wait": notify.wait, "why": notify.why, "to": notify.to}
        tell(Update(execution.id, "notify", data))


def take_message(execution: Execution, message: InboxMessage, now: int) -> bool:
    """Queue a message of the inbox, unless it is queued already.

    The event is journaled with the time at which it is taken, so that later times count from then.
    The original time remains in `sent`.

    Args:
        execution: The receiver.
        message: The stored message.
        now: The time (ms).

    Returns:
        Whether it was new.
    """
    if not execution.takes(message.number):
        return False
    event: Any = unpack_message(message)
    if event["type"] == "wanted":
        if execution.wanted is not None:
            execution.wanted = True
        return True
    event["sent"] = event["at"]
    event["at"] = now
    execution.queue.append(event)
    return True


def fire(execution: Execution, timer: int, now: int) -> None:
    """Queue a due timer, with the output and the log of the attempt that it ends."""
    event: dict[str, Any] = {"type": "timer", "at": now, "timer": timer}
    if execution.printed and (printed := _cut_short(execution, timer)) is not None:
        if evidence := printed.evidence():
            event["evidence"] = evidence
        if printed.lines is not None:
            event["log"] = printed.lines.log()
    execution.queue.append(event)  # type: ignore[arg-type] # built key by key


def _cut_short(execution: Execution, timer: int) -> Printed | None:
    """Return the output of the attempt that a timer ends."""
    state = execution.state
    found = state["timers"].get(timer)
    if found is None or found["why"] not in ("timeout", "deadline"):
        return None
    whose = found["ref"]
    units = [whose] if found["why"] == "timeout" else list(state["acts"][whose]["units"])
    at_work = [execution.printed[unit] for unit in units if unit in execution.printed]
    return at_work[0] if len(at_work) == 1 else None


def with_warning(execution: Execution, event: Event) -> list[Event]:
    """Return the event of an attempt, after the warning that it calls for, if any.

    A measurement calls for one if a budget limits an attempt whose cost cannot be predicted. It is
    recorded once for each step of an execution, regardless of the process.

    Args:
        execution: In the state before the event.
        event: The event.
    """
    state = execution.state
    unit = state["units"].get(event["unit"]) if event["type"] == "measured" else None
    if event["type"] != "measured" or unit is None or "cost_usd" in event["needs"]:
        return [event]

    view = View(execution.linked.graph, state)
    around = [*budgets_around(view, view.frame_of(view.act_of(unit)))]
    shared = [limits for _, budget in around for _, _, limits in budget.get("shared", ())]
    if not any("cost_usd" in of for of in [*shared, *(budget["limits"] for _, budget in around)]):
        return [event]
    message = (
        f"{'/'.join(steps_in(view.address(unit)))}: the cost of its calls is not known in advance, "
        "because the price of its model is unknown. 'cost_usd' of the budget counts only the "
        "amount that the provider reports afterwards, possibly none. 'tokens' bounds any model"
    )
    warning: Event = {
        "type": "warning", "at": event["at"], "about": "budget", "message": message
    }  # fmt: skip
    posted = any(
        event["type"] == "warning" and event["message"] == message for event in execution.queue
    )
    return [event] if posted or message in state.get("warned", {}) else [warning, event]
