"""All moves between the states of `phases.py`. Moves that its tables do not list are rejected.

The state fields of records are read-only in `records.py`, so mypy finds code that bypasses this
module.
"""

from __future__ import annotations

from typing import Any

from flowengine.kernel.graph.compiled import FORMAT
from flowengine.kernel.state.entries import Entry
from flowengine.kernel.state.phases import (
    CUTS,
    JOINS,
    SCOPES,
    UNITS,
    WAITS,
    CutPhase,
    Phase,
    RoundState,
    ScopeState,
    States,
    WaitState,
)
from flowengine.kernel.state.records import Cut, JoinState, Scope, State, Unit, Wait

MOVES = UNITS.moves


# The state before the first event, and numbers for records that no event names


def new_state() -> State:
    """Return the state before the first event."""
    return {
        "format": FORMAT,
        "status": "running",
        "now": 0,
        "last": 0,
        "inner": 0,
        "events": 0,
        "inputs": {},
        "execution": {},
        "vars": {},
        "scopes": {},
        "acts": {},
        "units": {},
        "waits": {},
        "timers": {},
        "undos": {},
        "cuts": {},
        "keys": {},
        "layers": {},
        "listening": {},
        "watching": {},
        "kept": {},
        "steps": 0,
        "running": 0,
        "cancelling": "",
        "outputs": None,
        "error": None,
    }


def inner_number(state: State) -> int:
    """Return the next number of a layer, an undo or a cleanup. No event names these."""
    state["inner"] += 1
    return state["inner"]


# Units


def move(unit: Unit, phase: Phase) -> None:
    """Move a unit into a phase. A unit that is already in it does not change.

    Raises:
        AssertionError: The move does not exist, which is a bug in the kernel.
    """
    now = unit["phase"]
    if now != phase:
        if phase not in MOVES[now]:
            raise AssertionError(f"unit {unit['id']} cannot move from {now} to {phase}")
        record: Any = unit
        record["phase"] = phase


# Waits


def wait_state(wait: Wait) -> WaitState:
    return "open" if wait["shown"] else "new"


def move_wait(wait: Wait, state: WaitState) -> None:
    """Move a wait into a state. A wait that is already in it does not change."""
    now = wait_state(wait)
    if now != state:
        if state not in WAITS.moves[now]:
            raise AssertionError(f"wait {wait['id']} cannot move from {now} to {state}")
        record: Any = wait
        record["shown"] = True


# Scopes


def is_over(scope: Scope) -> bool:
    """Return whether the tokens of a scope have ended.

    It is compensating, cleaning up, or ending.
    """
    return scope["phase"] in ("over", "finally")


def is_queued(scope: Scope) -> bool:
    """Return whether the first tokens of a scope have not begun, even if it is held."""
    return "queued" in (scope["phase"], scope.get("resumes"))


def queue(scope: Scope) -> None:
    """Delay the first tokens of a scope."""
    _move_scope(scope, "queued")


def unqueue(scope: Scope) -> bool:
    """Release the first tokens of a scope, and return whether they were delayed."""
    queued = is_queued(scope)
    if scope["phase"] == "queued":
        _move_scope(scope, "open")
    scope.pop("resumes", None)
    return queued


def end_tokens(scope: Scope) -> None:
    """Record that the tokens of a flow have ended. They cannot begin after this."""
    if not is_over(scope):
        _move_scope(scope, "over")
    scope.pop("resumes", None)


def lead_back(scope: Scope) -> None:
    """Reopen the scope of a flow, which a handler of the flow can do once.

    If the flow failed while it was queued, it leaves the queue. The condition it was waiting for
    must not start its first tokens in addition to the token of the handler.
    """
    _move_scope(scope, "open")
    record: Any = scope
    record["rescued"] = True


def begin_finally(scope: Scope) -> None:
    """Record that the `finally` of the main flow is due."""
    _move_scope(scope, "finally")


def hold(scope: Scope, then: Entry) -> None:
    """Hold the failure of a scope back. `then` is processed when the scope begins again.

    A scope whose tokens have ended stays in its state, unless its end is what failed.
    """
    if is_queued(scope):
        scope["resumes"] = "queued"
    if not is_over(scope) or then[0] == "end_anew":
        _move_scope(scope, "held")
    record: Any = scope
    record["then"] = list(then)


def let_go(scope: Scope) -> Entry:
    """Restart a scope whose failure was held back, and return its next entry."""
    record: Any = scope
    then = tuple(record.pop("then"))
    if scope["phase"] == "held":
        _move_scope(scope, scope.pop("resumes", "open"))
    return then


def _move_scope(scope: Scope, phase: ScopeState) -> None:
    _move(f"scope {scope['id']}", SCOPES, scope, phase)


# Joins


def new_join() -> JoinState:
    """Return the record of a join that holds nothing yet."""
    return {"arrivals": {}, "phase": "waiting"}


def begin_round(join: JoinState, need: int | None) -> None:
    """Begin the next round of a counting join. `need` is None if it has no value."""
    _move_join(join, "unknown" if need is None else "open")
    record: Any = join
    record.update({"round": join["round"] + 1, "counted": [], "sources_seen": {}})
    record.setdefault("kept", [])
    if need is not None:
        record["need"] = need


def know_need(join: JoinState, need: int | None) -> None:
    """Record the `need` of a round that had none. None: it still has no value."""
    if need is not None:
        _move_join(join, "open")
        record: Any = join
        record["need"] = need


def fire(join: JoinState) -> None:
    """Record that a round has fired."""
    _move_join(join, "fired")


def end_round(join: JoinState) -> JoinState:
    """End or withdraw a round, and return the new record of the join."""
    _move_join(join, "waiting")
    return {**new_join(), "round": join.get("round", 0)}


def _move_join(join: JoinState, phase: RoundState) -> None:
    _move("a join", JOINS, join, phase)


# Cut-off attempts


def move_cut(cut: Cut, phase: CutPhase) -> None:
    """Move a cut-off attempt into a phase."""
    _move(f"the attempt of {cut['address']}", CUTS, cut, phase)


def _move(what: str, of: States[Any], record: Any, phase: str) -> None:
    now = record["phase"]
    if now != phase:
        if phase not in of.moves[now]:
            raise AssertionError(f"{what} cannot move from {now} to {phase}")
        record["phase"] = phase
