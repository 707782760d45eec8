"""Which executions and waits there are, and how each stands.

A page costs the same, no matter how long its list is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from flowengine.journal.records import ENDED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flowengine.journal.records import (
        ExecutionFilter,
        ExecutionPage,
        ExecutionRecord,
        Owner,
        Pruned,
        Wait,
        WaitFilter,
        WaitPage,
    )


class DirectoryPort(Protocol):
    """Lists executions and waits, and finds them by their ids."""

    def execution(self, id: str) -> ExecutionRecord:
        """Return what lists show of one execution, by its full id.

        Raises:
            NotFound: There is none.
        """

    def holder(self, execution: str, now: int) -> Owner | None:
        """Return the living owner that holds an execution, or None.

        Args:
            execution: Full id.
            now: As for `acquire`.

        Raises:
            NotFound: There is no such execution.
        """

    def executions(
        self, filter: ExecutionFilter = ..., after: str | None = None, limit: int = 50
    ) -> ExecutionPage:
        """Return a page of executions, newest first; `outputs` and `error` are left out (None)."""

    def wait(self, id: str) -> Wait:
        """Return one wait with its votes, by its full id.

        Raises:
            NotFound: There is none.
        """

    def waits(
        self, filter: WaitFilter = ..., after: str | None = None, limit: int = 50
    ) -> WaitPage:
        """Return a page of waits, oldest first, without votes and results."""

    def find_execution(self, beginning: str) -> str:
        """Return the id of the only execution whose id has this prefix.

        Raises:
            NotFound: None does.
            UsageError: Several do.
        """

    def find_wait(self, beginning: str) -> str:
        """Return the id of the only wait, open or closed, whose id has this prefix.

        Raises:
            NotFound: None does.
            UsageError: Several do.
        """

    def short_execution(self, id: str) -> str:
        """Return the shortest beginning (8 characters or more) that is only this execution's."""

    def short_wait(self, id: str) -> str:
        """Return the shortest beginning (4 digits or more) that is only this wait's."""

    def prune(self, before: int, statuses: Sequence[str] = ENDED) -> Pruned:
        """Remove executions that have ended, with all that only they refer to.

        Args:
            before: Only those that ended at this time or earlier.
            statuses: Only those with one of these statuses.

        Returns:
            How much was removed.

        Raises:
            UsageError: A status in which an execution is still open.
        """
