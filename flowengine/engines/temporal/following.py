"""Progress of an execution that workers drive, for the subscribers of the engine that waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.engines.executions.execution import Told
from flowengine.engines.running.carrying import notification, report
from flowengine.errors import StoreError
from flowengine.journal.shapes import unpack_event
from flowengine.kernel.commands import Notify

if TYPE_CHECKING:
    from flowengine.engines.executions.execution import Execution
    from flowengine.engines.host import Host
    from flowengine.journal.records import JournalEntry


class ExecutionFollower:
    """Reports what happens to an execution, from its journal, as its driver would.

    Args:
        host: Has the subscribers.
        execution: As it was before the first event to report. It is changed.
        goes_back: Whether the next retry goes back to the state that the execution already has.
    """

    def __init__(self, host: Host, execution: Execution, *, goes_back: bool) -> None:
        self._host = host
        self._execution = execution
        self._goes_back = goes_back

    def read(self) -> list[JournalEntry]:
        """Return the events that are not reported yet, if there is a subscriber.

        Without a worker there are none for now. That is for the caller to notice.
        """
        if not self._host.subscribers:
            return []
        try:
            return self._host.store.events(self._execution.id, self._execution.seq)
        except StoreError:
            return []

    def report(self, entries: list[JournalEntry]) -> None:
        """Report events that were read."""
        if not entries:
            return
        execution = self._execution
        for entry in entries:
            event = unpack_event(entry.payload, f"entry {entry.seq} of execution {execution.id}")
            if event["type"] == "retry":
                if not self._goes_back:  # another engine retries it
                    self._execution = self._host.stored(execution.id, 0)
                    return
                self._goes_back = False
            execution.told = Told([], [], [])
            execution.apply(event)
            report(self._host.tell, execution, execution.told)
            for command in execution.commands:
                if isinstance(command, Notify):
                    self._host.tell(notification(execution, command))
            execution.commands.clear()
        execution.take(release=False)  # all of it is stored
