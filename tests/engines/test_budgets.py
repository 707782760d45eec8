# Shows F74
"""Budgets under an engine that crashes: the recorded calls are those that the tools saw (F74)."""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

import pytest

from flowengine.engines.engine import Engine
from flowengine.engines.flows import LoadedFlow, load
from tests.engines import child, world
from tests.testing.faulty_store import FaultyStore, ProcessDied

SCHEDULES = 30
LIMIT = 7
FLOW = f"""
budget: {{tool_calls: {LIMIT}, wall_time: 1h, then: THEN}}
defaults: {{effect: idempotent, on_crash: retry}}
flows:
  part:
    budget: {{tool_calls: 3}}
    inputs: {{n: {{type: integer}}}}
    steps:
      - {{id: one, python: "effects:act", with: {{value: "${{{{ inputs.n }}}}"}}, on_error: continue}}
      - {{id: two, python: "effects:act_on_thread", on_error: continue}}
steps:
  - {{id: each, map: {{over: 2, concurrency: 2}}, flow: part, with: {{n: "${{{{ index }}}}"}}}}
  - {{id: last, python: "effects:act", map: {{over: 4, concurrency: 2, on_item_error: continue, max_failures: 4}}}}
"""  # noqa: E501


MANY = """
budget: {tool_calls: 1000}
steps: [{id: each, map: {over: 80, concurrency: 1}, python: "effects:act", effect: idempotent}]
"""


class Played(NamedTuple):
    """Recorded budget and actual calls of an execution."""

    recorded: int
    limit: int
    seen: int
    """Number of calls that the tools saw."""
    deaths: int


def used(engine: Engine) -> tuple[int, int]:
    """Return the usage and the limit recorded for the flow's budget."""
    calls = engine.executions.show("it")["budgets"][0]["tool_calls"]
    assert calls["running"] == 0
    return calls["used"], calls["limit"]


def played(file: Path, flow: LoadedFlow, draw: random.Random, writes: int) -> Played:
    """Drive an execution with random crashes, starting without any effects."""
    (file.parent / "effects.txt").unlink(missing_ok=True)
    store = FaultyStore()
    deaths = 0
    for _ in range(draw.randint(1, 3)):
        store.faults = {
            store.writes + draw.randrange(writes): draw.choice(["die before", "die after"])
        }
        try:
            with Engine(store) as engine:
                world.finish(engine, file, "it", flow=flow)
        except ProcessDied:
            deaths += 1
            store.restart(power_cut=draw.random() < 0.5)
    store.faults.clear()
    with Engine(store) as engine:
        world.finish(engine, file, "it", flow=flow)
        return Played(*used(engine), len(world.effects(file.parent)), deaths)


@pytest.mark.endurance
@pytest.mark.parametrize("block", range(10))
def test_of_each_death_at_most_what_was_reserved_is_recorded_and_was_never_seen(
    tmp_path: Path, block: int
) -> None:
    draw = random.Random(block)
    files = [world.make(tmp_path / then, FLOW.replace("THEN", then)) for then in ("stop", "ask")]
    flows = [load(file) for file in files]
    raised = full = died = 0
    for schedule in range(SCHEDULES):
        asks = schedule % 2
        recorded, limit, seen, deaths = played(files[asks], flows[asks], draw, 24)
        places = 2  # concurrent calls
        assert seen <= recorded <= seen + deaths * places, schedule
        assert recorded <= limit, schedule
        assert asks or limit == LIMIT
        raised += limit > LIMIT
        full += recorded == limit
        died += deaths
    assert raised > SCHEDULES / 4
    assert full > SCHEDULES / 4
    assert died > SCHEDULES / 3


def test_a_killed_process_forgets_no_call(tmp_path: Path) -> None:
    file = world.make(tmp_path, MANY)
    (tmp_path / "slowly").touch()
    kills = 0
    while kills < 6:
        process = child.start(child.begin, tmp_path / "store", file, "it")
        before = len(world.effects(tmp_path))
        world.until(lambda before=before: len(world.effects(tmp_path)) > before)  # type: ignore[misc]
        kills += child.kill(process)
    with Engine(tmp_path / "store") as engine:
        engine.resume("it")
        [budget] = engine.executions.show("it")["budgets"]

    seen = len(world.effects(tmp_path))
    assert seen <= budget["tool_calls"]["used"] <= seen + kills
