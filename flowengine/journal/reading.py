"""Read access to journals."""

from __future__ import annotations

from typing import Protocol

from flowengine.journal.records import JournalEntry, Loaded, Numbered
from flowengine.journal.step_table import StepTable


class HistoryPort(Protocol):
    """Reads journals."""

    def load(self, id: str, until: int | None = None) -> Loaded:
        """Return the newest snapshot of an execution and the events after it.

        Args:
            id: Full id of the execution.
            until: Number of the first event to leave out. The snapshot then has fewer events, and
                its lists may have later items. Default: the newest snapshot and all events.

        Raises:
            NotFound: The execution does not exist.
        """

    def events(self, id: str, since: int = 0, limit: int | None = None) -> list[JournalEntry]:
        """Return a part of a journal.

        Args:
            id: Full id of the execution.
            since: Number of the first event to return.
            limit: Maximum number of events. None: unlimited.

        Returns:
            The events in order. Empty if there are none (yet).

        Raises:
            NotFound: The execution does not exist.
        """

    def steps(self, id: str) -> StepTable | None:
        """Return the rows of the steps of an execution. None: this store has none.

        Args:
            id: Full id of the execution.
        """

    def number_events(self) -> int:
        """Number all events of the store from now on, in the order of their commits.

        Every process that writes to the store then does so, also after this one has ended. A second
        call changes nothing.

        Returns:
            The number of the last event. 0: none has a number yet.
        """

    def numbered(self, after: int, limit: int) -> list[Numbered]:
        """Return the events of all executions with a number above `after`, in order.

        Events of executions that were deleted or moved to another store are left out.

        Args:
            after: 0: from the first numbered one on.
            limit: Maximum number of events.
        """
