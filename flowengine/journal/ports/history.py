"""Read access to journals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from flowengine.journal.records import Entry, Loaded


class HistoryPort(Protocol):
    """Reads journals."""

    def load(self, id: str) -> Loaded:
        """Return the newest snapshot of an execution and the events after it.

        Raises:
            NotFound: The execution does not exist.
        """

    def events(self, id: str, since: int = 0, limit: int | None = None) -> list[Entry]:
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
