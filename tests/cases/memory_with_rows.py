"""A store in memory that keeps the rows of steps, as the store in a directory does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from flowengine.engines.inspection.steps import Steps
from flowengine.engines.memory.store import MemoryStore
from flowengine.errors import Conflict
from flowengine.journal.records import COMPUTED, OVER, Append, StepRow


class RowsInMemory:
    """The rows of one execution, see `StepTable`.

    Args:
        rows: Number → row.
    """

    def __init__(self, rows: dict[int, StepRow]) -> None:
        self._rows = rows

    def all(self, before: int | None = None) -> list[StepRow]:
        rows = sorted(self._rows.values())
        return [row for row in rows if before is None or row.since < before]

    def current(self) -> list[StepRow]:
        return [row for row in self.all() if row.number and row.until is None]

    def changing(self) -> list[StepRow]:
        return [
            row
            for row in self.all()
            if row.number in (0, max(self._rows))
            or (row.until is None and row.status not in OVER - {"failed"})
        ]

    def first_failure(self) -> int | None:
        return min((row.ended_by or 0 for row in self.all() if row.error is not None), default=None)

    def first_inside(self, address: str) -> int | None:
        inside = f"{address}[", f"{address}@"
        last = max((row.number for row in self.all() if row.address == address), default=0)
        begun = (row for row in self.all() if row.number > last and row.address.startswith(inside))
        return min((row.started for row in begun), default=None)


class MemoryWithRows(MemoryStore):
    """A store in memory with a table of steps."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self._rows: dict[str, dict[int, StepRow]] = defaultdict(dict)

    def commit(self, appends: Sequence[Append]) -> list[Conflict | None]:
        refusals = super().commit(appends)
        for append, refusal in zip(appends, refusals, strict=True):
            if refusal is None:
                self._rows[append.execution].update((row.number, row) for row in append.steps)
        return refusals

    def steps(self, id: str) -> RowsInMemory:  # type: ignore[override]
        return RowsInMemory(self._rows[id])


def check_rows(host: Any, id: str) -> None:
    """Check that the rows of an execution are those that a replay of its journal makes."""
    record = host.store.execution(id)
    stored = Steps.stored(host.store, host.flows, record)
    again = Steps.stored(host.store, host.flows, record, replay=True)
    stored.read_events(stored.rows)
    assert _plain(stored) == _plain(again)


def _plain(steps: Steps) -> dict[str, list[StepRow]]:
    """Return rows with their outputs, unless these are computed."""
    return {
        address: [row._replace(output=steps.output(row)) for row in rows if row.output != COMPUTED]
        for address, rows in steps.rows.items()
    }
