"""A store in memory that keeps the rows of steps, as the store in a directory does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from flowengine.engines.executions.step_rows import is_computed
from flowengine.engines.inspection.steps import Steps
from flowengine.engines.memory.store import MemoryStore
from flowengine.engines.step_queries import steps_in_memory
from flowengine.errors import Conflict
from flowengine.journal.records import Append, StepRow
from flowengine.journal.step_table import StepTable, write_steps


class MemoryWithRows(MemoryStore):
    """A store in memory with a table of steps."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self._steps: dict[str, StepTable] = defaultdict(lambda: steps_in_memory(()))

    def commit(self, appends: Sequence[Append]) -> list[Conflict | None]:
        refusals = super().commit(appends)
        for append, refusal in zip(appends, refusals, strict=True):
            if refusal is None:
                with self._steps[append.execution].reading() as connection:
                    write_steps(connection, 1, append.steps)
        return refusals

    def steps(self, id: str) -> StepTable:  # type: ignore[override]
        return self._steps[id]


def check_rows(host: Any, id: str) -> None:
    """Check that the rows of an execution are those that a replay of its journal makes."""
    record = host.store.execution(id)
    stored = Steps.stored(host.store, host.flows, record)
    again = Steps.stored(host.store, host.flows, record, replay=True)
    stored.read_all()
    assert _plain(stored) == _plain(again)


def _plain(steps: Steps) -> dict[str, list[StepRow]]:
    """Return rows with their outputs, unless these are computed."""
    return {
        address: [
            row._replace(output=steps.output(row))
            for row in steps.rows(address)
            if not is_computed(row)
        ]
        for address in steps.states
    }
