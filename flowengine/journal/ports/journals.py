"""The right to write the journal of an execution: only what drives executions may use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from flowengine.journal.ports.history import HistoryPort

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flowengine.errors import Conflict
    from flowengine.journal.records import Append, Owner


class JournalPort(HistoryPort, Protocol):
    """Writes journals, under leases."""

    def commit(self, appends: Sequence[Append]) -> list[Conflict | None]:
        """Write what some executions did, in one transaction.

        Args:
            appends: At most one for each execution.

        Returns:
            For each append None, or why it alone was left out: `LeaseLost` (its epoch is not the
            one in force), or `Conflict` - a new execution whose id is taken (`standing` is its
            record), a claim to be rejected (`standing` is the record of who holds it), a wait that
            expired though a decision had been recorded (`standing` is that `Wait`; load the
            execution again and take its inbox first).
        """

    def renew(self, owner: Owner, until: int) -> None:
        """Say that an owner lives, so that its leases hold until then. Call it before `acquire`.

        One row, however many leases it has. An owner whose leases were taken meanwhile learns that
        at its next `commit`, not here.
        """

    def acquire(self, execution: str, owner: str, now: int) -> int:
        """Take the lease of an execution that is free, or whose holder is dead or overdue.

        Args:
            execution: Full id.
            owner: `Owner.id` that `renew` has made known.
            now: Time of the clock that `until` was given in.

        Returns:
            The epoch for `Append`. If the same owner held it, its earlier epoch is void.

        Raises:
            Conflict: A living owner holds it; `standing` is that `Owner`.
            NotFound: There is no such execution.
        """

    def release(self, leases: Sequence[tuple[str, int]]) -> None:
        """Give leases back, as (execution, epoch); those that were lost are passed over."""

    def retire(self, owner: str) -> None:
        """Give back all leases of an owner and forget it."""
