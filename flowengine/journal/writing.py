"""Write access to journals, reserved for the drivers of executions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from flowengine.errors import Conflict
from flowengine.journal.reading import HistoryPort
from flowengine.journal.records import Append, Owner


class JournalPort(HistoryPort, Protocol):
    """Writes journals, under leases."""

    def commit(self, appends: Sequence[Append]) -> list[Conflict | None]:
        """Write the changes of some executions, in one transaction.

        Args:
            appends: At most one for each execution.

        Returns:
            For each append None, or the error for which only this append was left out.

            - `LeaseLost`: its epoch is not the current one.
            - `Conflict`: the id of a new execution is taken (`standing` is its record).
            - `Conflict`: a claim is rejected (`standing` is the record of the lock's holder).
            - `Conflict`: a wait expired although a decision had been recorded (`standing` is that
              `Wait`). Load the execution again and take its inbox first.
        """

    def renew(self, owner: Owner, until: int) -> None:
        """Extend the leases of a living owner until a time. Call it before `acquire`.

        Writes a single row, regardless of the number of leases. An owner whose leases were taken
        over receives the error at its next `commit`, not here.
        """

    def acquire(self, execution: str, owner: str, now: int) -> int:
        """Take the lease of an execution that is free, or whose holder is dead or overdue.

        Args:
            execution: Full id.
            owner: `Owner.id` of an owner registered by `renew`.
            now: Time of the clock that `until` refers to.

        Returns:
            The epoch for `Append`. If the same owner held it, its earlier epoch is void.

        Raises:
            Conflict: A living owner holds it. `standing` is that `Owner`.
            NotFound: The execution does not exist.
        """

    def calm(self, execution: str, epoch: int) -> None:
        """Note that a holder got further, so earlier holders did not die of the execution.

        A lost lease is ignored.
        """

    def release(self, leases: Sequence[tuple[str, int]]) -> None:
        """Release leases, given as (execution, epoch). Lost leases are ignored."""

    def retire(self, owner: str) -> None:
        """Release all leases of an owner and remove it."""
