"""Every move of `phases.py` is made here, and only here; one that the tables lack is refused.

The fields that say a state are read-only in `records.py`, so mypy finds whoever passes this by.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.kernel.state.entries import Entry
from flowengine.kernel.state.phases import JOINS, SCOPES, UNITS, UNKNOWN, WAITS

if TYPE_CHECKING:
    from flowengine.kernel.state.phases import Phase, RoundState, ScopeState, WaitState
    from flowengine.kernel.state.records import JoinState, Scope, Unit, Wait

MOVES = UNITS.moves


# Units


def move(unit: Unit, phase: Phase) -> None:
    """Move a unit into a phase; a unit that is there already stays.

    Raises:
        AssertionError: There is no such move; it is a mistake in the kernel.
    """
    now = unit["phase"]
    if now != phase:
        if phase not in MOVES[now]:
            raise AssertionError(f"unit {unit['id']} cannot move from {now} to {phase}")
        record: Any = unit
        record["phase"] = phase


# Waits


def wait_state(wait: Wait) -> WaitState:
    """Return the state of a wait."""
    return "open" if wait["shown"] else "new"


def move_wait(wait: Wait, state: WaitState) -> None:
    """Move a wait into a state; a wait that is there already stays."""
    now = wait_state(wait)
    if now != state:
        if state not in WAITS.moves[now]:
            raise AssertionError(f"wait {wait['id']} cannot move from {now} to {state}")
        record: Any = wait
        record["shown"] = True


# Scopes


def scope_state(scope: Scope) -> ScopeState:
    """Return the state of a scope."""
    if scope.get("cleaned"):
        return "finally"
    if scope.get("over"):
        return "over"
    if "then" in scope:
        return "held"
    return "queued" if "queued" in scope else "open"


def queue(scope: Scope) -> None:
    """Have the first tokens of a scope wait."""
    before, record = _scope(scope)
    record["queued"] = True
    _scope_moved(scope, before)


def unqueue(scope: Scope) -> bool:
    """Have the first tokens of a scope wait no longer; whether they did, and it has not ended."""
    before, record = _scope(scope)
    queued = record.pop("queued", False)
    _scope_moved(scope, before)
    return bool(queued) and not scope.get("over")


def end_tokens(scope: Scope) -> None:
    """Note that the tokens of a flow have ended."""
    before, record = _scope(scope)
    record["over"] = True
    _scope_moved(scope, before)


def lead_back(scope: Scope) -> None:
    """Have tokens in a flow again, which a handler of the flow does once.

    If the flow failed while it was queued, it is not queued any more: what it waited for does not
    start its first tokens in place of the one that leads back.
    """
    before, record = _scope(scope)
    del record["over"]
    record.pop("queued", None)
    record["rescued"] = True
    _scope_moved(scope, before)


def begin_finally(scope: Scope) -> None:
    """Note that the `finally` of the main flow is due."""
    before, record = _scope(scope)
    record["cleaned"] = True
    _scope_moved(scope, before)


def hold(scope: Scope, then: Entry) -> None:
    """Hold the failure of a scope back; `then` follows when it begins again."""
    before, record = _scope(scope)
    record["then"] = list(then)
    if then[0] == "scope_over":
        record.pop("over", None)  # it ends again, by that
    _scope_moved(scope, before)


def let_go(scope: Scope) -> Entry:
    """Have a scope begin anew whose failure was held back; return what follows."""
    before, record = _scope(scope)
    then = Entry(record.pop("then"))
    _scope_moved(scope, before)
    return then


def _scope(scope: Scope) -> tuple[ScopeState, Any]:
    return scope_state(scope), scope


def _scope_moved(scope: Scope, before: ScopeState) -> None:
    now = scope_state(scope)
    if now != before and now not in SCOPES.moves[before]:
        raise AssertionError(f"scope {scope['id']} cannot move from {before} to {now}")


# Joins


def round_state(join: JoinState) -> RoundState:
    """Return the state of a join."""
    if not join.get("open"):
        return "waiting"
    if join["fired"]:
        return "fired"
    return "unknown" if join["need"] == UNKNOWN else "open"


def begin_round(join: JoinState, need: int) -> None:
    """Begin the next round of a join that counts; `UNKNOWN`: what it needs has no value."""
    before, record = _round(join)
    record.update({"round": join["round"] + 1, "open": True, "fired": False, "need": need})
    record.update({"got": [], "heard": {}, "kept": join.get("kept", [])})
    _round_moved(join, before)


def know_need(join: JoinState, need: int) -> None:
    """Note what a round needs that did not know it."""
    before, record = _round(join)
    record["need"] = need
    _round_moved(join, before)


def fire(join: JoinState) -> None:
    """Note that a round has fired."""
    before, record = _round(join)
    record["fired"] = True
    _round_moved(join, before)


def end_round(join: JoinState) -> JoinState:
    """Return the record of a join that takes the place of one whose round is over, or withdrawn."""
    ended: JoinState = {"held": {}, "round": join.get("round", 0)}
    _round_moved(ended, round_state(join))
    return ended


def _round(join: JoinState) -> tuple[RoundState, Any]:
    return round_state(join), join


def _round_moved(join: JoinState, before: RoundState) -> None:
    now = round_state(join)
    if now != before and now not in JOINS.moves[before]:
        raise AssertionError(f"a join cannot move from {before} to {now}")
