"""Events during downtime are applied in the order in which they happened."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flowengine.engines.engine import Engine
from tests.engines import world
from tests.engines.world import Clock

MINUTE = 60_000
FLOW = """
signals: {paid: {}, other: {}}
steps:
  - {id: w, wait: {first: [{id: paid, signal: paid}, {id: late, for: 1h}]}, next: {outcome: {paid: a, late: b}}}
  - {id: a, output: paid, next: c}
  - {id: b, output: late, next: c}
  - {id: c, output: "${{ default(steps.a.output, steps.b.output) }}"}
outputs: {way: "${{ steps.c.output }}"}
"""  # noqa: E501


@pytest.fixture
def engine(tmp_path: Path, clock: Clock) -> Iterator[Engine]:
    with Engine(None, clock=clock, linger=0) as engine:
        engine.run(world.make(tmp_path, FLOW), id="it")
        yield engine


@pytest.mark.parametrize(("minutes", "way"), [(59, "paid"), (60, "paid"), (61, "late")])
def test_a_message_comes_before_a_timer_that_was_not_due_before_it(
    engine: Engine, clock: Clock, minutes: int, way: str
) -> None:
    clock.time += minutes * MINUTE
    engine.signal("paid", execution="it", resume=False)
    clock.time += 120 * MINUTE
    assert engine.resume("it").outputs == {"way": way}


def test_a_message_is_no_younger_than_what_was_stored_after_it(
    engine: Engine, clock: Clock
) -> None:
    """The first sender's clock was two hours ahead."""
    clock.time += 150 * MINUTE
    engine.signal("paid", execution="it", resume=False)
    clock.time -= 120 * MINUTE
    engine.signal("other", execution="it", resume=False)
    clock.time += 120 * MINUTE
    assert engine.resume("it").outputs == {"way": "paid"}


def test_an_attempt_was_cut_off_before_all_else(tmp_path: Path, clock: Clock) -> None:
    """The message that withdraws the attempt comes later, so its outcome is asked first."""
    text = """
signals: {stop: {}}
steps:
  - {id: s, next: {all: [act, w]}}
  - {id: act, python: "effects:act", effect: once, next: end}
  - {id: w, wait: {signal: stop}, next: x}
  - {id: x, cancel: [act], next: end}
"""
    with Engine(None, clock=clock, linger=0) as engine:
        engine.start(world.make(tmp_path, text), id="it")
        world.cut_off(engine, "it")
        engine.signal("stop", execution="it", resume=False)
        engine.resume("it")
        assert [one["type"] for one in engine.executions.events("it")] == [
            "started",
            "cut",
            "message",
        ]
