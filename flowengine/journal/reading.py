"""Read access to journals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from flowengine.journal.records import JournalEntry, Loaded, Numbered, StepRow


class StepTable(Protocol):
    """Reads the rows of the steps of an execution, in order of beginning."""

    def all(self, before: int | None = None) -> Sequence[StepRow]:
        """Return all rows, and that of the execution.

        Args:
            before: Number of the first event to leave out. The rows have the results of later ones.
                None: all are included.
        """

    def is_empty(self) -> bool:
        """Return whether there are no rows, not even that of the execution."""

    def states(self, before: int) -> Sequence[tuple[int, str, str, str, bool]]:
        """Return number, address, step id and status of all rows but that of the execution.

        Args:
            before: Number of the first event to leave out. The last item is False for a row that
                has another status before it, or may have.
        """

    def rows(self, first: int, count: int) -> Sequence[StepRow]:
        """Return rows.

        Args:
            first: Number of the first one.
            count: How many numbers.
        """

    def noted(self, addresses: Sequence[str]) -> Sequence[StepRow]:
        """Return the rows with an error or with notes, and all rows at some addresses."""

    def ordered(self, by: str, before: int) -> Sequence[tuple[int, str]]:
        """Return number and address of all rows but that of the execution, in another order.

        Args:
            by: `time`: what has not ended, then the slowest. `attempts`, `tokens`, `cost`: most
                first.
                `error`: what failed, in order.
            before: Number of the first event to leave out. The rows have the results of later ones.
        """

    def current(self) -> Sequence[StepRow]:
        """Return the last row at each address, and perhaps others."""

    def changing(self) -> Sequence[StepRow]:
        """Return the last rows of what has not ended or has failed, the newest, and number 0."""

    def first_failure(self) -> int | None:
        """Return the number of the first event with which a step failed. None: none did."""

    def first_inside(self, address: str) -> int | None:
        """Return when the first item or round of a map or loop began, since it ended last.

        None: there is none.
        """


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
