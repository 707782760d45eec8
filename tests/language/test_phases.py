"""The tables of states: flows make every move that they list, and any other is refused."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast, get_args

import pytest

import flowengine.kernel
from flowengine.kernel import advance, new_state
from flowengine.kernel.commands import ClearTimer, CloseWait
from flowengine.kernel.events import ErrorData, Event
from flowengine.kernel.state import moves, phases
from flowengine.kernel.state.phases import GONE, SCOPES, UNITS, WAITS, States
from flowengine.kernel.state.records import JoinState, Scope, State, Unit, Wait
from flowengine.kernel.timers import TIMERS
from flowengine.testing import Simulator
from flowengine.testing.simulator import unpacked
from tests.kernel.test_random_flows import FLOWS, play
from tests.language.stage import Stage
from tests.language.test_retrying import Chance, written

SIMULATOR = "flowengine.testing.simulator"
KERNEL = Path(flowengine.kernel.__file__).parent
Move = tuple[str, str, str]
Seen = dict[Move, set[str]]
"""The moves that were made → the modules that made them."""
TABLES: dict[str, States[Any]] = {table.of: table for table in phases.ALL}
ALLOWED = {
    (table.of, now, then): set(re.findall(r"[\w/]+\.py", by))
    for table in phases.ALL
    for now, targets in table.moves.items()
    for then, (_, by) in targets.items()
}


WATCHED: dict[str, tuple[str, Callable[[Any], str]]] = {
    "units": (UNITS.of, lambda unit: str(unit["phase"])),
    "waits": (WAITS.of, moves.wait_state),
    "scopes": (SCOPES.of, moves.scope_state),
}


class Targets(dict[str, Any]):
    """The states that one state can move to, which tells for which it was asked."""

    def __init__(self, targets: dict[str, Any], tell: Callable[[str], None]) -> None:
        super().__init__(targets)
        self.tell = tell

    def __contains__(self, then: object) -> bool:
        self.tell(str(then))
        return super().__contains__(then)


class Records(dict[int, Any]):
    """A table of the state, which tells in which state a record leaves it."""

    def __init__(self, records: dict[int, Any], tell: Callable[[Any], None]) -> None:
        super().__init__(records)
        self.tell = tell

    def __delitem__(self, number: int) -> None:
        self.tell(self[number])
        super().__delitem__(number)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """The moves that were made."""
    seen: Seen = {}
    for table in TABLES.values():
        for now, targets in list(table.moves.items()):
            watched = Targets(targets, _asks(seen, table.of, now))
            monkeypatch.setitem(table.moves, now, watched)

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            return unpacked(value)
        return _watched(unpacked({**value, **{k: dict(value[k]) for k in WATCHED}}), seen)

    monkeypatch.setattr(f"{SIMULATOR}.new_state", lambda: _watched(new_state(), seen))
    monkeypatch.setattr(f"{SIMULATOR}.unpacked", read)
    return seen


def _asks(seen: Seen, of: str, now: str) -> Callable[[str], None]:
    return lambda then: seen.setdefault((of, now, then), set()).add(_mover())


def _leaves(seen: Seen, of: str, state_of: Callable[[Any], str]) -> Callable[[Any], None]:
    return lambda record: seen.setdefault((of, state_of(record), GONE), set()).add(_mover())


def _mover() -> str:
    """The module of the kernel that makes a move, by `moves.py`."""
    frame = sys._getframe(1)
    while True:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(KERNEL) and path.name != "moves.py":
            return path.relative_to(KERNEL).as_posix()
        assert frame.f_back is not None
        frame = frame.f_back


def _watched(state: State, seen: Seen) -> State:
    """Return a state that tells what leaves it."""
    watched: Any = state
    for name, (of, state_of) in WATCHED.items():
        watched[name] = Records(watched[name], _leaves(seen, of, state_of))
    return state


def test_flows_make_every_move(stage: Stage, seen: Seen) -> None:
    for seed in range(0, FLOWS, 3):
        play(seed, 0, crashes=True)
    for seed in range(40):
        _fail_and_retry(stage, seed)
    _lose_the_environment(stage)
    _lead_back(stage)
    _hold_a_flow(stage)
    _hold_a_join(stage)

    assert set(seen) == set(ALLOWED)
    assert {move: seen[move] - ALLOWED[move] for move in seen if seen[move] - ALLOWED[move]} == {}


def _fail_and_retry(stage: Stage, seed: int) -> None:
    flow = written(stage, seed, wild=True)
    if flow is not None:
        chance = Chance(stage, flow, seed)
        chance.rest()
        if chance.played.status == "failed" and chance.retry():
            chance.rest()


def _lose_the_environment(stage: Stage) -> None:
    """It cannot be had again before an attempt begins: somebody is asked."""
    played = stage.simulator("steps: [{id: a, run: ls}]").start()
    (unit, attempt), _ = next(iter(played.running.items()))
    error: ErrorData = {"type": "EnvironmentLost", "message": "gone"}
    played.apply(
        {"type": "lost", "at": 0, "unit": unit, "attempt": attempt, "ran": "no", "error": error}
    )
    assert played.state["units"][unit]["phase"] == "ask"


def _lead_back(stage: Stage) -> None:
    """A handler of the flow leads back into it."""
    text = """
limits: {duration: 1d}
steps: [{id: ask, approval: Sure?, next: end}, {id: after, output: gave up}]
on_error: [{type: LimitExceeded, next: after}]
"""
    played = stage.simulator(text).start()
    _run_out_of_time(played, None)
    assert played.state["status"] == "succeeded"


def _hold_a_flow(stage: Stage) -> None:
    """Its failure is held back, as within a retry, until it begins again or is cancelled."""
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
    """What it needs has no value; then it has one, or a join behind it fires without it."""
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

    scope: Scope = {"id": 9, "over": True}
    moves.end_tokens(scope)
    with pytest.raises(AssertionError, match="scope 9 cannot move from open to finally"):
        moves.begin_finally({"id": 9})

    join: JoinState = {"held": {}}
    with pytest.raises(AssertionError, match="a join cannot move from fired to open"):
        moves.begin_round({"round": 1, "open": True, "fired": True, "need": 2}, 2)
    moves.end_round(join)


@pytest.mark.parametrize("table", phases.ALL, ids=lambda table: str(table.of))
def test_every_state_is_explained_and_reached(table: States[Any]) -> None:
    assert list(table.moves) == list(table.meaning)
    reached = {table.first}.union(*table.moves.values())
    assert reached - {GONE} == set(table.meaning)


@pytest.mark.parametrize("table", phases.ALL, ids=lambda table: str(table.of))
def test_the_modules_that_make_things_and_moves_are_there(table: States[Any]) -> None:
    named = [table.made, *(by for targets in table.moves.values() for _, by in targets.values())]
    modules = re.findall(r"[\w/]+\.py", " ".join(named))
    assert modules
    assert [module for module in modules if not (KERNEL / module).is_file()] == []


def test_every_timer_is_explained() -> None:
    assert set(phases.TIMERS) == set(get_args(phases.Why)) == set(TIMERS)


def test_the_tables_have_all_states_that_the_types_have() -> None:
    for table, of in zip(
        phases.ALL,
        (phases.Phase, phases.WaitState, phases.ScopeState, phases.RoundState),
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
    """What docs/states.md says: the one event closes the approval and clears its timers."""
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
