"""State tables: flows make every listed transition, and all others are rejected."""

from __future__ import annotations

from typing import Any, cast, get_args

import pytest

from flowengine.kernel import advance
from flowengine.kernel.commands import ClearTimer, CloseWait
from flowengine.kernel.event_effects import TIMERS
from flowengine.kernel.events import Event
from flowengine.kernel.state import moves, phases
from flowengine.kernel.state.phases import GONE, States
from flowengine.kernel.state.records import Cut, JoinState, Scope, Unit, Wait
from tests.kernel.watched_moves import ALLOWED, watched_moves
from tests.language.stage import Stage
from tests.simulation.simulator import Fails, Simulator, unpacked

HELD = {
    ("A cut-off attempt", "ask", "open"),
    ("A cut-off attempt", "ask", "settled"),
    ("A cut-off attempt", "run", "ask"),
    ("A join", "unknown", "waiting"),
    ("A scope", "held", "gone"),
    ("A scope", "held", "over"),
    ("A scope", "held", "queued"),
    ("A scope", "queued", "held"),
    ("A unit", "held", "run"),
}
"""Transitions too rare for random plays. `tests/kernel/test_draw.py` covers all others."""


def test_flows_make_the_moves_that_random_plays_do_not(stage: Stage) -> None:
    with watched_moves() as seen:
        _hold_a_flow(stage)
        _hold_a_join(stage)
        _let_a_result_come_late(stage)
        _ask_before_compensating(stage)
        _lose_what_finds_out(stage)

    assert HELD <= seen <= ALLOWED


def _hold_a_flow(stage: Stage) -> None:
    """A failure is held back, as within a retry, until the flow starts again or is cancelled."""
    broken = "outputs: {n: '${{ [1][size(execution.id)] }}'}"
    part = f"flows: {{part: {{steps: [{{id: a, approval: Ok?}}], {broken}}}}}"
    limited = "steps: [{id: a, approval: Ok?}]\nlimits: {duration: 1h}"
    for text, happens, then in (
        (f"steps: [{{id: a, approval: Ok?}}]\n{broken}", _approve, _begin_anew),
        (f"{part}\nsteps: [{{id: p, flow: part}}]", _approve, _cancel),
        (limited, _run_out_of_time, _cancel),
        (limited + "\nconcurrency: {max: 1}", _run_out_of_time, _begin_anew),
    ):
        played = stage.simulator(text).start()
        innermost = max(played.state["scopes"])
        happens(played, {"scope": [innermost]})
        assert played.state["scopes"][innermost]["then"]
        then(played, {"scope": [innermost]})


def _hold_a_join(stage: Stage) -> None:
    """`need` has no value until state changes, or a join behind it fires without it."""
    text = """
state: {n: {type: integer, default: 9}}
steps:
  - {id: s, next: {all: [a, b, c]}}
  - {id: a, approval: Ok?, next: late}
  - {id: b, approval: Ok?, next: j}
  - {id: c, approval: Ok?, next: j}
  - {id: j, join: {need: "${{ [1][state.n] }}"}, next: late}
  - {id: late, join: {need: 1, late: cancel}}
"""
    for anew in (True, False):
        played = stage.simulator(text).start()
        _approve(played, {"scope": [1]}, "b")
        if anew:
            _happen(played, {"type": "state", "values": {"n": 0}, "by": "user:x"})
            _begin_anew(played, {"scope": [1]})
        else:
            _approve(played, {}, "a")


def _let_a_result_come_late(stage: Stage) -> None:
    """The task was stopped by its timeout, and its late result counts when it is retried."""
    played = stage.simulator("steps: [{id: a, run: ls, timeout: 1s}]").start()
    played.pass_time()
    (run,) = played.stopped.values()
    played.end_late(run, {"code": 0})
    played.retry()
    assert played.status == "succeeded"


def _ask_before_compensating(stage: Stage) -> None:
    """A question asks whether it took effect. It is answered, or the execution is cancelled."""
    text = """
steps:
  - id: g
    parallel:
      - {id: a, run: ls, compensate: {run: ls}}
      - {id: b, run: ls}
    on_error: [{compensate: true, next: end}]
"""
    for cancelled in (True, False):
        played = stage.simulator(text, {"b": Fails("Broken", retryable=False)}).start()
        played.finish("g/b")
        if cancelled:
            _cancel(played, {})
        else:
            played.decide("g/a", "fail")


def _lose_what_finds_out(stage: Stage) -> None:
    """The environment ends of an attempt that runs again to find out whether it took effect."""
    text = """
steps:
  - id: g
    parallel:
      - {id: a, run: ls, effect: idempotent, compensate: {run: ls}}
      - {id: b, run: ls}
    on_error: [{compensate: true, next: end}]
"""
    played = stage.simulator(text, {"b": Fails("Broken", retryable=False)}).start()
    played.finish("g/b")
    [(unit, attempt)] = played.running
    error = {"type": "EnvironmentLost", "message": "gone"}
    lost = {"type": "lost", "unit": unit, "attempt": attempt, "ran": "maybe", "error": error}
    _happen(played, lost)


def _happen(played: Simulator, event: Any, **more: Any) -> None:
    advance(played.graph, played.state, cast(Event, {**event, **more, "at": played.now}))


def _approve(played: Simulator, holds: Any, step: str = "a") -> None:
    waits = played.state["waits"].values()
    wait = next(wait["id"] for wait in waits if wait["record"]["step"] == step)
    decided = {"type": "decided", "wait": wait, "choice": "approve", "by": "user:x", "via": "test"}
    _happen(played, decided, holds=holds)


def _run_out_of_time(played: Simulator, holds: Any) -> None:
    (timer,) = [n for n, one in played.state["timers"].items() if one["why"] == "duration"]
    _happen(played, {"type": "timer", "timer": timer}, holds=holds)


def _begin_anew(played: Simulator, hold: Any) -> None:
    _happen(played, {"type": "retry", "unit": None, "by": "user:x"}, hold=hold)


def _cancel(played: Simulator, _hold: Any) -> None:
    _happen(played, {"type": "cancel", "reason": "enough", "by": "user:x", "now": False})


def test_any_other_move_is_refused() -> None:
    unit: Unit = {"id": 7, "phase": "wait"}
    moves.move(unit, "wait")
    with pytest.raises(AssertionError, match="unit 7 cannot move from wait to run"):
        moves.move(unit, "run")
    assert unit["phase"] == "wait"

    wait: Wait = {"id": 8, "shown": True}
    moves.move_wait(wait, "open")
    with pytest.raises(AssertionError, match="wait 8 cannot move from open to new"):
        moves.move_wait(wait, "new")

    scope: Scope = {"id": 9, "phase": "over"}
    moves.end_tokens(scope)
    with pytest.raises(AssertionError, match="scope 9 cannot move from open to finally"):
        moves.begin_finally({"id": 9, "phase": "open"})

    join: JoinState = moves.new_join()
    with pytest.raises(AssertionError, match="a join cannot move from fired to open"):
        moves.begin_round({"round": 1, "phase": "fired", "need": 2}, 2)
    moves.end_round(join)


@pytest.mark.parametrize("table", phases.ALL, ids=lambda table: str(table.of))
def test_every_state_is_explained_and_reached(table: States[Any]) -> None:
    assert list(table.moves) == list(table.meaning)
    reached = {table.first}.union(*table.moves.values())
    assert reached - {GONE} == set(table.meaning)


def test_every_timer_is_explained() -> None:
    assert set(phases.TIMERS) == set(get_args(phases.Why)) == set(TIMERS)


def test_the_tables_have_all_states_that_the_types_have() -> None:
    for table, of in zip(
        phases.ALL,
        (phases.Phase, phases.WaitState, phases.ScopeState, phases.RoundState, phases.CutPhase),
        strict=True,
    ):
        assert set(get_args(of)) == set(table.meaning)


CANCELLED = """
steps:
  - {id: s, next: {all: [g, ok]}}
  - id: g
    group:
      - {id: a, approval: {title: Sure?, expires: 1h, remind: {every: 10m}}}
    next: end
  - {id: ok, approval: Stop it?, next: stop}
  - {id: stop, cancel: [g], next: last}
  - {id: last, approval: Done?, next: end}
"""


def test_an_approval_in_a_group_that_is_cancelled_does_not_expire(stage: Stage) -> None:
    """docs/states.md: a single event closes the approval and clears its timers."""
    played = stage.simulator(CANCELLED).start()
    (number,) = [wait["id"] for wait in played.waits() if wait["step"] == "a"]
    timers = list(played.state["timers"])
    expiry = next(n for n in timers if played.state["timers"][n]["why"] == "expire")

    before_it = len(played.commands)
    played.decide("ok", "approve")
    done = played.commands[before_it:]
    assert CloseWait(number, "withdrawn", None) in done
    assert {c.timer for c in done if isinstance(c, ClearTimer)} == set(timers)
    assert not played.state["timers"]

    before = unpacked(played.state)
    assert played.apply({"type": "timer", "at": played.now, "timer": expiry}) == []
    assert played.state == {**before, "events": before["events"] + 1}

    cut: Cut = {"address": "a", "phase": "run"}
    moves.move_cut(cut, "settled")
    with pytest.raises(AssertionError, match="the attempt of a cannot move from settled to run"):
        moves.move_cut(cut, "run")
