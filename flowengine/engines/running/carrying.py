"""Carrying out commands, independent of the driver.

This module does not depend on where the journal is, which process may write it, or how messages
arrive. See `driver.py` for executions whose journals this process writes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, TypeAlias

from flowengine.engines.executions.execution import Preview
from flowengine.engines.executions.views import entry_view, wait_view
from flowengine.engines.results import Update
from flowengine.kernel.commands import Consult, Notify, ReleaseRegion, Run, Send, Stop

if TYPE_CHECKING:
    from typing import Protocol

    from flowengine.engines.executions.execution import Execution, Told

    class Tell(Protocol):
        """Receives updates for subscribers."""

        def __call__(self, *updates: Update) -> None:
            """Receive them in order."""


Notice: TypeAlias = Consult | Preview | Send | ReleaseRegion | Notify
"""Commands without an outcome that the kernel waits for, or whose outcome is a separate event."""


class Carrier(ABC):
    """Carries out the commands of executions, after their events are recorded."""

    on_update: Tell
    """Receives updates for subscribers. Only drivers with subscribers have it."""

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
    def alarm(self, execution: Execution) -> None:
        """Have the next timer of an execution fire when it is due."""

    @abstractmethod
    def tell(self, execution: Execution, command: Notice) -> None:
        """Notify the receivers of a command: a question, a message, the end of a region."""

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
                self.tell(execution, command)


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
        if how is None and _may_settle(execution, record["id"]):
            continue  # it is reported if the attempt ends without an outcome
        updates.append(Update(id, "wait", wait_view(id, flow, record, how)))
    tell(*updates)


def notification(execution: Execution, notify: Notify) -> Update:
    """Return the report that users are notified of a wait."""
    data = {"wait": notify.wait, "why": notify.why, "to": notify.to}
    return Update(execution.id, "notify", data)


def _may_settle(execution: Execution, wait: int) -> bool:
    """Return whether a question is about an attempt that is still being ended here."""
    record = execution.state["waits"].get(wait)
    return record is not None and record.get("cut") in execution.work
