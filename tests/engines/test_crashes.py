"""Crashes at every write of various flows, and stores that fail at one of them (F30, F33).

The writes of a flow are distributed over five blocks.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from flowengine.engines.engine import Engine
from flowengine.engines.flows import LoadedFlow, load
from flowengine.errors import NotFound, StoreError
from tests.engines import flows, world
from tests.testing.faulty_store import Fault, FaultyStore, ProcessDied

BLOCKS = 5


def finish(store: FaultyStore, file: Path, flow: LoadedFlow) -> world.Outcome:
    """Drive an execution to its end in one process."""
    with Engine(store) as engine:
        world.finish(engine, file, "it", flow=flow)
        return world.outcome(engine, "it")


def undisturbed(tmp_path: Path, name: str) -> tuple[LoadedFlow, world.Outcome, set[str], int]:
    """Return a flow, its outcome, its effects, and the number of its writes, without any crash."""
    file = world.make(tmp_path / "calm", flows.ALL[name])
    flow, store = load(file), FaultyStore()
    calm = finish(store, file, flow)
    return flow, calm, world.check_effects(file.parent), store.writes


@pytest.mark.endurance
@pytest.mark.parametrize("block", range(BLOCKS))
@pytest.mark.parametrize("name", ["chain", "items", "waits"])
@pytest.mark.parametrize("fault", ["full", "locked"])
# Shows F33
def test_store_that_fails_at_any_write_stops_the_execution_and_it_resumes_when_that_is_over(
    name: str, fault: Fault, block: int, tmp_path: Path
) -> None:
    _, calm, done, writes = undisturbed(tmp_path, name)
    for write in range(1 + block, writes, BLOCKS):
        file = world.make(tmp_path / f"at{write}", flows.ALL[name])
        store = FaultyStore(faults={write: fault, write + 1: fault})
        flow = load(file)
        with suppress(StoreError):
            finish(store, file, flow)
        store.faults.clear()
        assert finish(store, file, flow) == calm, write
        assert world.check_effects(file.parent) == done, write


def test_nobody_is_asked_about_an_attempt_that_its_process_could_not_run(tmp_path: Path) -> None:
    file = world.make(tmp_path, "steps: [{id: once_draw, python: 'effects:act', needs: [gpu]}]")

    def waits(store: FaultyStore) -> list[str]:
        with Engine(store) as engine:
            return [wait["kind"] for wait in engine.run(file, id="it").waits]

    calm = FaultyStore()
    assert waits(calm) == ["worker"]
    for write in range(calm.writes):
        store = FaultyStore(faults={write: "die after"})
        with suppress(ProcessDied):
            waits(store)
        store.restart(power_cut=False)
        store.faults.clear()
        with Engine(store) as engine, suppress(NotFound):
            assert [wait["kind"] for wait in engine.resume("it").waits] == ["worker"], write
    assert world.effects(tmp_path) == []
