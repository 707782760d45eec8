# Shows G12
"""Budgets that executions share, over crashes and upgrades (G12)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

import pytest

from flowengine.engines.engine import Engine
from flowengine.errors import Conflict
from tests.engines import world
from tests.testing.faulty_store import FaultyStore, ProcessDied

FLOW = """
budget: {shared: [{key: team, every: day, tool_calls: 3}, {key: all, tool_calls: 9}]}
steps:
  - {id: a, python: "effects:act", effect: idempotent}
  - {id: b, python: "effects:act", effect: idempotent}
"""


@pytest.mark.parametrize("when", ["die before", "die after"])
def test_a_crash_at_any_write_neither_loses_nor_repeats_a_reservation(
    tmp_path: Path, when: Literal["die before", "die after"]
) -> None:
    """Each attempt that may have begun counts once, and nothing stays reserved."""
    file = world.make(tmp_path / "flow", FLOW)
    for crash in range(99):
        before = len(world.effects(file.parent))
        store = FaultyStore(faults={crash: when})
        for id in ("e0", "e1"):
            with suppress(ProcessDied), Engine(store, linger=0) as engine:
                engine.run(file, id=id)
        writes, store.faults = store.writes, {}
        store.restart()
        with Engine(store, linger=0) as engine:
            while due := engine.due():
                engine.resume(due[0].execution)
            for id in ("e0", "e1"):
                with suppress(Conflict):
                    engine.run(file, id=id)
            ends = [one["status"] for one in engine.executions.list().items]
            found = {one["key"]: one["amounts"] for one in engine.budgets.list()}
        made = len(world.effects(file.parent)) - before
        amounts = found["team"]["tool_calls"]
        assert sorted(ends) == ["failed", "succeeded"], crash
        assert (amounts["reserved"], amounts["limit"]) == (0, 3), crash
        assert made <= amounts["used"] == 3, crash
        assert found["all"]["tool_calls"]["used"] == amounts["used"], crash
        if writes <= crash:
            assert made == 3
            return
    raise AssertionError("it never came through")


WAITING = """
budget: {shared: [{key: team, every: day, tool_calls: LIMIT}]}
steps:
  - {id: a, python: "effects:act", effect: idempotent}
  # - {id: ask, approval: {title: Go on?}, next: {outcome: {approve: b, reject: end}}}
  - {id: b, python: "effects:act", effect: idempotent}
"""


def _retried(engine: Engine, changed: Path) -> None:
    engine.executions.retry("it", flow=changed)


def _forked(engine: Engine, changed: Path) -> None:
    engine.executions.fork("it", from_step="b", flow=changed, id="fork")


def _moved(engine: Engine, changed: Path) -> None:
    engine.executions.upgrade(changed, "it")
    [wait] = engine.approvals.list().items
    engine.approvals.approve(wait["id"])


@pytest.mark.endurance
@pytest.mark.parametrize("when", ["die before", "die after"])
@pytest.mark.parametrize("intervene", [_retried, _forked, _moved])
def test_a_crash_in_an_intervention_leaves_nothing_reserved(
    tmp_path: Path,
    intervene: Callable[[Engine, Path], None],
    when: Literal["die before", "die after"],
) -> None:
    """Each attempt that may have begun counts once, within the limits of the changed flow."""
    asks = intervene is _moved
    for crash in range(99):
        flow = WAITING.replace("# - ", "- ") if asks else WAITING
        file = world.make(tmp_path / f"{crash}", flow.replace("LIMIT", "1"))
        changed = file.with_name("changed.yaml")
        changed.write_text(file.read_text().replace("tool_calls: 1", "tool_calls: 9"))
        store = FaultyStore()
        with Engine(store, linger=0) as engine:
            assert engine.run(file, id="it").status == ("waiting" if asks else "failed")
        store.faults = {store.writes + crash: when}
        with suppress(ProcessDied), Engine(store, linger=0) as engine:
            intervene(engine, changed)
        died, store.faults = bool(store.faults) and store.writes > max(store.faults), {}
        store.restart()
        with Engine(store, linger=0) as engine:
            _finish(engine, intervene, changed)
            [team] = engine.budgets.list("team")
            ends = {one["execution"]: one["status"] for one in engine.executions.list().items}
        amounts, effects = team["amounts"]["tool_calls"], len(world.effects(file.parent))
        assert ends["fork" if intervene is _forked else "it"] == "succeeded", crash
        assert (amounts["reserved"], amounts["limit"]) == (0, 9), crash
        assert 2 <= effects <= amounts["used"] <= 3, crash
        if not died:
            assert amounts["used"] == 2, crash
            return
    raise AssertionError("it never came through")


def _finish(engine: Engine, intervene: Callable[[Engine, Path], None], changed: Path) -> None:
    """Resume what the crash has left, and intervene if that was not recorded."""
    while due := engine.due():
        engine.resume(due[0].execution)
    open_ = [one["status"] for one in engine.executions.list().items]
    if intervene is _moved and (waits := engine.approvals.list().items):
        engine.executions.upgrade(changed, "it")
        engine.approvals.approve(waits[0]["id"])
    elif intervene is not _moved and "succeeded" not in open_:
        intervene(engine, changed)


def test_limits_that_no_call_has_used_are_listed(tmp_path: Path) -> None:
    shared = "{key: team, tokens: 500}, {key: team, tool_calls: 3, cost_usd: 1.5, tokens: 400}"
    flow = FLOW.replace(FLOW.split("[", 1)[1].split("]", 1)[0], shared)
    with Engine(None, linger=20) as engine:
        assert engine.run(world.make(tmp_path / "flow", flow)).status == "succeeded"
        [team] = engine.budgets.list("team")
    assert team["amounts"] == {
        "tool_calls": {"used": 2, "reserved": 0, "limit": 3},
        "tokens": {"used": 0, "reserved": 0, "limit": 400},
        "cost_usd": {"used": 0, "reserved": 0, "limit": 1.5},
    }


def test_it_is_listed_with_what_was_used_and_when_it_ends(tmp_path: Path) -> None:
    file = world.make(tmp_path / "flow", FLOW)
    with Engine(None, linger=20) as engine:
        engine.run(file)
        world.until(lambda: len(engine.budgets.list()) == 2)
        team, everything = sorted(engine.budgets.list(), key=lambda one: one["key"], reverse=True)
        assert team["amounts"] == {"tool_calls": {"used": 2, "reserved": 0, "limit": 3}}
        assert (team["period"], everything["period"]) == ("day", "all")
        assert team["resets"][:10] > team["start"]
        assert "resets" not in everything
        assert engine.budgets.list("none") == []
