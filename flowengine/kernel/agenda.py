"""The agenda: what its entries do, by their names.

An entry is `(name, *arguments)`. It names units, activations and scopes by their numbers, since
they may be gone when its turn comes; then it does nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flowengine.kernel import flows, held_failures
from flowengine.kernel.ending import cleaning, closing, compensation
from flowengine.kernel.errors import StepFailure, as_error
from flowengine.kernel.expressions import provenance
from flowengine.kernel.graph.compiled import EvaluationError, Plain
from flowengine.kernel.limits.suspension import unpark
from flowengine.kernel.machine import Machine
from flowengine.kernel.messages import triggers
from flowengine.kernel.recovery import interrupted, retrying
from flowengine.kernel.steps import attempts, cancelling, handlers, outcomes, scopes
from flowengine.kernel.tokens import activations, joins
from flowengine.kernel.waiting import environment_questions

if TYPE_CHECKING:
    from flowengine.kernel.events import ErrorData
    from flowengine.kernel.state.records import Arrival


def _of_unit(do: Callable[..., None]) -> Callable[..., None]:
    """Return an entry that does something to a unit, if it is still there when its turn comes."""

    def entry(m: Machine, number: int, *more: Any) -> None:
        unit = m.state["units"].get(number)
        if unit is not None:
            do(m, unit, *more)

    return entry


def _of_act(do: Callable[..., None]) -> Callable[..., None]:
    """Return an entry that does something to an activation, if it is still there by then."""

    def entry(m: Machine, number: int, *more: Any) -> None:
        act = m.state["acts"].get(number)
        if act is not None:
            do(m, act, *more)

    return entry


def _group_over(m: Machine, number: int, output: Plain, past: int) -> None:
    unit = m.state["units"].get(number)
    if unit is not None:
        outcomes.attempt_ended(m, unit, output, "ok", past)
    provenance.drop(m.state, past)


def _round_over(m: Machine, number: int, output: Plain, outcome: str, past: int | None) -> None:
    unit = m.state["units"].get(number)
    if unit is not None:
        outcomes.round_over(m, unit, output, outcome, past)
    if past is not None:
        provenance.drop(m.state, past)


def _unit_broken(
    m: Machine,
    number: int,
    failure: StepFailure | EvaluationError,
    again: str | None = None,
) -> None:
    """Fail a unit whose expression failed; `again` is what begins anew on a retry (its attempt)."""
    unit = m.state["units"].get(number)
    if unit is not None:
        if not m.act_of(unit)["units"][number]:
            unpark(m, unit)
        error = as_error(failure, m.address(unit))
        outcomes.unit_failed(m, unit, error, None if again is None else (again, number))


def _act_broken(
    m: Machine,
    number: int,
    failure: StepFailure | EvaluationError,
    again: tuple[Any, ...] | None = None,
) -> None:
    """Fail an activation before it could begin; a limit of its scope no step of it handles."""
    act = m.state["acts"].get(number)
    if act is None:
        return
    error = as_error(failure, m.step_address(act))
    if error["type"] != "LimitExceeded":
        outcomes.activation_failed(m, act, error, again)
    elif not held_failures.hold_act(m, act, again or ("begin_act", number)):
        handlers.fail(m, act, error)


def _broken_join(m: Machine, step: int, scope: int, failure: Any) -> None:
    found = m.state["scopes"].get(scope)
    if found is not None and not held_failures.hold_scope(m, found, ("needs", scope)):
        error = as_error(failure, found["path"] + m.graph.node(step).id)
        if m.blame is not None:
            m.blame.forget(("scope", scope))
            m.blame.see(("scope", scope), error["step"])
            m.blame.note(("scope", scope))
        flows.fail_scope(m, found, error)


def _too_few(m: Machine, step: int, arrivals: list[Arrival], need: int, came: list[str]) -> None:
    """Activate a join with too few arrivals, only for it to fail."""
    if not arrivals:
        return
    act = activations.new_activation(m, m.graph.node(step), arrivals)
    try:
        activations.count(m, m.scope_of(act), act)
        failure = retrying.too_few(m, act, need, came)
    except StepFailure as exceeded:
        failure = exceeded
    _act_broken(m, act["id"], failure, ("enough", act["id"], came))


def _trigger_broken(m: Machine, arrival: Arrival, failure: EvaluationError) -> None:
    """Fail a triggered step: whether the message is for it could not be found out."""
    if not m.root().get("over"):
        triggers.awake(m, m.root())
        act = activations.new_activation(m, m.graph.node(arrival["step"]), [arrival])
        _act_broken(m, act["id"], failure)


def _map_broken(m: Machine, number: int, failure: StepFailure | EvaluationError) -> None:
    """Fail a map that runs because of what it says of itself, not because of an item."""
    act = m.state["acts"].get(number)
    if act is not None and not held_failures.hold_act(m, act, ("counted", number)):
        closing.close_units(m, act)
        outcomes.activation_failed(m, act, as_error(failure, m.step_address(act)))


def _map_over(m: Machine, number: int) -> None:
    act = m.state["acts"].get(number)
    if act is not None and not act["units"]:
        outcomes.map_over(m, act)


def _end_all(m: Machine, number: int, line: list[int], past: int) -> None:
    scopes.end_all(m, m.state["scopes"][number], line, past)


def _cancel_late(m: Machine, number: int, join: int) -> None:
    closing.cancel_late(m, m.state["scopes"][number], join)


def _scope_failed(m: Machine, number: int, error: ErrorData) -> None:
    scope = m.state["scopes"].get(number)
    if scope is not None and not scope.get("over"):
        flows.fail_scope(m, scope, error)


def _undo_failed(m: Machine, scope: int, error: ErrorData, then: list[Any]) -> None:
    """Go on after a compensation that could not undo everything: the scope around fails."""
    if then[0] == "handled":
        act = m.state["acts"].get(then[1])
        if act is not None:
            handlers.fail(m, act, error)
    elif scope in m.state["scopes"]:
        status = "cancelled" if m.state["cancelling"] else "failed"
        flows.end(m, status, error, None, scope)


AGENDA: dict[str, Callable[..., None]] = {
    "arrive": joins.arrive,
    "activate": activations.activate,
    "attempt": _of_unit(attempts.attempt),
    "again": _of_unit(interrupted.run_again),
    "answered": environment_questions.answered,
    "round": _of_unit(attempts.begin_round),
    "round_over": _round_over,
    "round_next": _of_unit(attempts.pause_before_round),
    "begin_act": _of_act(activations.begin_act),
    "needs": joins.look_again,
    "enough": _of_act(retrying.look_if_enough),
    "counted": _of_act(outcomes.counted),
    "uncertain": _of_unit(retrying.ask_first),
    "limit": _of_unit(retrying.limit_anew),
    "deadline": _of_act(retrying.deadline_anew),
    "duration": retrying.duration_anew,
    "scope_over": retrying.end_anew,
    "ended": _of_unit(outcomes.attempt_ended),
    "group_over": _group_over,
    "attempt_failed": _of_unit(outcomes.attempt_failed),
    "unit_ended": _of_unit(outcomes.unit_ended),
    "unit_broken": _unit_broken,
    "act_ended": _of_act(outcomes.activation_ended),
    "act_broken": _act_broken,
    "broken": _broken_join,
    "too_few": _too_few,
    "trigger_broken": _trigger_broken,
    "fill": _of_act(activations.fill),
    "add_item": _of_act(activations.add_item),
    "map_broken": _map_broken,
    "map_over": _map_over,
    "items_left": _of_act(outcomes.items_left),
    "cancel": _of_unit(cancelling.cancel),
    "cancel_late": _cancel_late,
    "end_all": _end_all,
    "scope_failed": _scope_failed,
    "handled": _of_act(handlers.compensated),
    "opened": _of_act(scopes.opened),
    "undo": compensation.go_on,
    "undo_failed": _undo_failed,
    "clean": cleaning.first_of_scope,
    "clean_on": cleaning.go_on,
    "act_failed": _of_act(handlers.handle),
    "unit_failed": _of_unit(outcomes.unit_failed),
    "pause": _of_unit(attempts.pause_before_attempt),
    "flow_over": flows.succeed,
    "flow_handled": flows.handled,
    "flow_cancelled": cancelling.cancel_flow,
    "flow_end": flows.end,
    "flow_close": flows.close,
}
"""What an entry of the agenda does, by its name."""
