# Shows F34
"""Bytes written and read are proportional to the data that steps produce (F34)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from flowengine.engines.engine import Engine
from flowengine.engines.memory.store import MemoryStore
from flowengine.errors import Conflict
from flowengine.journal.records import Append
from tests.engines import world

GROWING = """
inputs:
  rounds: {type: integer}
state:
  log: {type: array, items: {type: string}, default: [], reducer: append}
steps:
  - id: grow
    loop: {until: "${{ round.number >= inputs.rounds }}", max: 100000}
    python: effects:kilobyte
    effect: pure
    with: {number: "${{ round.number }}"}
    set: {log: "${{ output }}"}
  - {id: sure, approval: Sure?}
outputs: {size: "${{ size(state.log) }}"}
"""


class WeighingStore(MemoryStore):
    """A store that counts the bytes written."""

    def __init__(self) -> None:
        super().__init__()
        self.journaled = self.snapshots = 0

    def commit(self, appends: Sequence[Append]) -> list[Conflict | None]:
        for append in appends:
            self.journaled += sum(len(packed) for _, packed in append.events)
            if append.snapshot is not None:
                self.snapshots += len(append.snapshot[1])
            self.snapshots += sum(len(part.items) for part in append.lists)
        return super().commit(appends)


def grow(rounds: int, tmp_path: Path) -> tuple[float, float]:
    """Return bytes written per byte of data and events read to resume, both per round."""
    store = WeighingStore()
    with Engine(store) as engine:
        wait = engine.run(world.make(tmp_path, GROWING), {"rounds": rounds}).waits[0]
        written = (store.journaled + store.snapshots) / (1000 * rounds)
        loaded = store.load(wait["execution"])
        result = engine.approvals.approve(wait["id"]).result
        assert result is not None
        assert result.outputs == {"size": rounds}
    return written, len(loaded.tail) / rounds


@pytest.mark.endurance
def test_growing_list_is_written_in_proportion_and_resumed_from_a_snapshot(tmp_path: Path) -> None:
    for rounds in (250, 500, 1000, 2000):
        written, read = grow(rounds, tmp_path)
        assert written < 1.5
        assert read < 0.4


def test_short_execution_takes_no_snapshot(tmp_path: Path) -> None:
    store = WeighingStore()
    with Engine(store) as engine:
        engine.run(world.make(tmp_path, GROWING), {"rounds": 10})
    assert store.snapshots == 0


@pytest.mark.endurance
def test_many_waits_opened_by_one_event_are_loaded_from_a_snapshot(tmp_path: Path) -> None:
    store = WeighingStore()
    with Engine(store) as engine:
        text = "steps:\n  - {id: each, map: 500, approval: Sure?}\n"
        waits = engine.run(world.make(tmp_path, text), id="it").waits
        for wait in waits[:20]:
            engine.approvals.approve(wait["id"])
    loaded = store.load("it")
    assert loaded.snapshot is not None
    assert store.snapshots < 2 * len(loaded.snapshot[1])
