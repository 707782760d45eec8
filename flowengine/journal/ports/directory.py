"""The directory of executions and waits, with their status.

The cost of a page does not depend on the length of its list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from flowengine.journal.records import ENDED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from flowengine.journal.records import (
        Due,
        ExecutionFilter,
        ExecutionRecord,
        ExecutionRecordPage,
        ListedWait,
        OfFlows,
        Owner,
        Pruned,
        StoredWaitPage,
        WaitFilter,
    )

_PAGE = 200
"""Executions to read at once."""
_Item_co = TypeVar("_Item_co", covariant=True)


class DirectoryPort(Protocol):
    """Lists executions and waits, and finds them by their ids."""

    def execution(self, id: str) -> ExecutionRecord:
        """Return an execution's entry in lists, by its full id.

        Raises:
            NotFound: The execution does not exist.
        """

    def holder(self, execution: str, now: int) -> Owner | None:
        """Return the living owner that holds an execution, or None.

        Args:
            execution: Full id.
            now: As for `acquire`.

        Raises:
            NotFound: The execution does not exist.
        """

    def deaths(self, execution: str, now: int) -> int:
        """Return how many holders of an execution have died in a row, without releasing it.

        The count begins again when a holder releases it, and with `JournalPort.calm`.

        Args:
            execution: Full id.
            now: As for `acquire`.

        Raises:
            NotFound: The execution does not exist.
        """

    def due(self, at: int, now: int, execution: str | None = None) -> list[Due]:
        """Return the executions that can continue and that no living owner holds, oldest first.

        The cost depends on their number, not on the number of executions.

        Args:
            at: Timers that are due at this time or earlier count.
            now: As for `acquire`.
            execution: Only this one, by its full id.
        """

    def next_due(self, after: int) -> int | None:
        """Return when the earliest timer or schedule after a time is due, or None."""

    def open_executions(self) -> dict[str, int]:
        """Return how many executions have each status of `OPEN`.

        The cost depends on their number, not on the number of executions that have ended.
        """

    def executions(
        self, filter: ExecutionFilter = ..., after: str | None = None, limit: int = 50
    ) -> ExecutionRecordPage:
        """Return a page of executions, newest first, without `outputs` and `error` (None)."""

    def wait(self, id: str) -> ListedWait:
        """Return one wait with its votes, by its full id.

        Raises:
            NotFound: The wait does not exist.
        """

    def waits(
        self, filter: WaitFilter = ..., after: str | None = None, limit: int = 50
    ) -> StoredWaitPage:
        """Return a page of waits, oldest first, without votes and results."""

    def find_execution(self, beginning: str, flows: OfFlows | None = None) -> str:
        """Return the id of the only execution whose id has this prefix.

        Args:
            beginning: The prefix.
            flows: Whether executions of a flow count. Default: all do.

        Raises:
            NotFound: No id has this prefix.
            UsageError: Several ids have this prefix.
        """

    def find_wait(self, beginning: str, flows: OfFlows | None = None) -> str:
        """Return the id of the only wait, open or closed, whose id has this prefix.

        Args:
            beginning: The prefix.
            flows: Whether waits of a flow count. Default: all do.

        Raises:
            NotFound: No id has this prefix.
            UsageError: Several ids have this prefix.
        """

    def short_execution(self, id: str) -> str:
        """Return the shortest unique prefix of an execution's id, or all of one made of words."""

    def short_wait(self, id: str) -> str:
        """Return the shortest unique prefix (4 digits or more) of a wait's id."""

    def prune(
        self, before: int, statuses: Sequence[str] = ENDED, ids: Sequence[str] = ()
    ) -> Pruned:
        """Remove executions that have ended, with all data that only they refer to.

        Args:
            before: Executions that ended at this time or earlier.
            statuses: Only executions with one of these statuses.
            ids: Also these executions, if they have ended.

        Returns:
            How much was removed.

        Raises:
            UsageError: A status is that of an open execution.
        """


def every_execution(directory: DirectoryPort, wanted: ExecutionFilter) -> Iterator[ExecutionRecord]:
    """Yield all executions that a filter matches, newest first, page by page."""
    return every_item(lambda after: directory.executions(wanted, after, _PAGE))


class ListPage(Protocol[_Item_co]):
    """One page of any list."""

    @property
    def items(self) -> Sequence[_Item_co]:
        """The entries of the page."""

    @property
    def next(self) -> str | None:
        """The `after` of the next page. None: this is the last page."""


def every_item(read: Callable[[str | None], ListPage[_Item_co]]) -> Iterator[_Item_co]:
    """Yield all entries of a list, page by page.

    Args:
        read: Returns the page after another one, given its `next`. None: the first page.
    """
    after = None
    while True:
        page = read(after)
        yield from page.items
        after = page.next
        if after is None:
            return
