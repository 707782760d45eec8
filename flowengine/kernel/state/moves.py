"""Every move of `phases.py` is made here, and only here; one that the tables lack is refused.

The fields that say a state are read-only in `records.py`, so mypy finds whoever passes this by.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.kernel.state.entries import Entry
from flowengine.kernel.state.phases import CUTS, JOINS, SCOPES, UNITS, WAITS, States

if TYPE_CHECKING:
    from flowengine.kernel.state.phases import CutPhase, Phase, RoundState, ScopeState, WaitState
    from flowengine.kernel.state.records import Cut, JoinState, Scope, Unit, Wait

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


def is_over(scope: Scope) -> bool:
    """Return whether the tokens of a scope have ended: it is undone, cleans up, or ends."""
    return scope["phase"] in ("over", "finally")


def is_queued(scope: Scope) -> bool:
    """Return whether the first tokens of a scope have not begun, also while it is held."""
    return "queued" in (scope["phase"], scope.get("resumes"))


def queue(scope: Scope) -> None:
    """Have the first tokens of a scope wait."""
    _move_scope(scope, "queued")


def unqueue(scope: Scope) -> bool:
    """Have the first tokens of a scope wait no longer; whether they did, and it has not ended."""
    queued = is_queued(scope)
    if scope["phase"] == "queued":
        _move_scope(scope, "open")
    scope.pop("resumes", None)
    return queued


def end_tokens(scope: Scope) -> None:
    """Note that the tokens of a flow have ended; nothing begins them any more."""
    if not is_over(scope):
        _move_scope(scope, "over")
    scope.pop("resumes", None)


def lead_back(scope: Scope) -> None:
    """Have tokens in a flow again, which a handler of the flow does once.

    If the flow failed while it was queued, it is not queued any more: what it waited for does not
    start its first tokens in place of the one that leads back.
    """
    _move_scope(scope, "open")
    record: Any = scope
    record["rescued"] = True


def begin_finally(scope: Scope) -> None:
    """Note that the `finally` of the main flow is due."""
    _move_scope(scope, "finally")


def hold(scope: Scope, then: Entry) -> None:
    """Hold the failure of a scope back; `then` follows when it begins again.

    One whose tokens have ended stays as it is, unless it is held at just that.
    """
    if is_queued(scope):
        scope["resumes"] = "queued"
    if not is_over(scope) or then[0] == "end_anew":
        _move_scope(scope, "held")
    record: Any = scope
    record["then"] = list(then)


def let_go(scope: Scope) -> Entry:
    """Have a scope begin anew whose failure was held back; return what follows."""
    record: Any = scope
    then = Entry(record.pop("then"))
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
    """Begin the next round of a join that counts; None: what it needs has no value."""
    _move_join(join, "unknown" if need is None else "open")
    record: Any = join
    record.update({"round": join["round"] + 1, "counted": [], "sources_seen": {}})
    record.setdefault("kept", [])
    if need is not None:
        record["need"] = need


def know_need(join: JoinState, need: int | None) -> None:
    """Note what a round needs that did not know it; None: it still has no value."""
    if need is not None:
        _move_join(join, "open")
        record: Any = join
        record["need"] = need


def fire(join: JoinState) -> None:
    """Note that a round has fired."""
    _move_join(join, "fired")


def end_round(join: JoinState) -> JoinState:
    """Return the record of a join that takes the place of one whose round is over, or withdrawn."""
    _move_join(join, "waiting")
    return {**new_join(), "round": join.get("round", 0)}


def _move_join(join: JoinState, phase: RoundState) -> None:
    _move("a join", JOINS, join, phase)


# Attempts that were cut off


def move_cut(cut: Cut, phase: CutPhase) -> None:
    """Move an attempt that was cut off into a phase."""
    _move(f"the attempt of {cut['address']}", CUTS, cut, phase)


def _move(what: str, of: States[Any], record: Any, phase: str) -> None:
    now = record["phase"]
    if now != phase:
        if phase not in of.moves[now]:
            raise AssertionError(f"{what} cannot move from {now} to {phase}")
        record["phase"] = phase
