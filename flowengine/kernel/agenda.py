"""The agenda: entry names and the functions that process them.

`state/entries.py` creates the entries. An entry refers to units, activations and scopes by number
because they may have ended before it is processed, in which case it has no effect. mypy checks that
each function accepts the arguments of its entry.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeAlias

from flowengine.kernel import flows, held_failures, messages, recovery
from flowengine.kernel.ending import cleanup, closing
from flowengine.kernel.errors import StepFailure, as_error
from flowengine.kernel.events import ErrorData
from flowengine.kernel.expressions import provenance
from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.limits.locks import unpark
from flowengine.kernel.state import entries
from flowengine.kernel.state.entries import Broken, Entry
from flowengine.kernel.state.moves import is_over
from flowengine.kernel.state.records import Activation, Arrival, Scope, Unit
from flowengine.kernel.steps import (
    activation_outcomes,
    attempt_outcomes,
    attempts,
    cancelling,
    exchanges,
    handlers,
    loops,
    maps,
    scopes,
)
from flowengine.kernel.tokens import activations, joins, map_items
from flowengine.kernel.transition import Transition

P = ParamSpec("P")
_Doing: TypeAlias = "Callable[[Callable[P, None]], EntryRow]"


class EntryRow(NamedTuple):
    """How an entry is processed."""

    table: str | None
    """The table of the state that contains the entry's first argument. The entry is dropped if the
    record has ended. None: the function looks up the record itself because it has work to do in any
    case."""
    do: Callable[..., None]


def of_any(entry: Callable[P, Entry]) -> _Doing[Concatenate[Transition, P]]:
    return lambda do: EntryRow(None, do)


def of_unit(
    entry: Callable[Concatenate[int, P], Entry],
) -> _Doing[Concatenate[Transition, Unit, P]]:
    return lambda do: EntryRow("units", do)


def of_act(
    entry: Callable[Concatenate[int, P], Entry],
) -> _Doing[Concatenate[Transition, Activation, P]]:
    return lambda do: EntryRow("acts", do)


def of_scope(
    entry: Callable[Concatenate[int, P], Entry],
) -> _Doing[Concatenate[Transition, Scope, P]]:
    return lambda do: EntryRow("scopes", do)


def _arrive(tx: Transition, arrival: Arrival) -> None:
    """Accept a token that arrives at a step. See `joins`."""
    join = tx.graph.nodes[arrival["step"]].join
    if join is None or join["kind"] == "each":
        tx.agenda.append(entries.activate(arrival["step"], [arrival]))
        return

    joins.arrive(tx, arrival)


def _group_ended(tx: Transition, number: int, output: Plain, past: int) -> None:
    unit = tx.state["units"].get(number)
    if unit is not None:
        attempt_outcomes.attempt_ended(tx, unit, output, "ok", past)
    provenance.drop(tx.state, past)


def _test_until(tx: Transition, number: int, output: Plain, outcome: str, past: int | None) -> None:
    unit = tx.state["units"].get(number)
    if unit is not None:
        attempt_outcomes.test_until(tx, unit, output, outcome, past)
    if past is not None:
        provenance.drop(tx.state, past)


def _unit_broken(tx: Transition, unit: Unit, failure: Broken, anew: Entry | None = None) -> None:
    """Fail a unit whose expression failed."""
    if not tx.act_of(unit)["units"][unit["id"]]:
        unpark(tx, unit)
    attempt_outcomes.unit_failed(tx, unit, as_error(failure, tx.address(unit)), anew)


def _act_broken(
    tx: Transition, act: Activation, failure: Broken, anew: Entry | None = None
) -> None:
    """Fail an activation before it begins. A step cannot handle an exceeded limit of its scope."""
    error = as_error(failure, tx.step_address(act))
    if error["type"] != "LimitExceeded":
        activation_outcomes.activation_failed(tx, act, error, anew)
    elif not held_failures.hold_act(tx, act, anew or entries.begin_act(act["id"])):
        handlers.fail(tx, act, error)


def _need_broken(tx: Transition, join: int, number: int, failure: Broken) -> None:
    scope = tx.state["scopes"].get(number)
    if scope is not None and not held_failures.hold_scope(tx, scope, entries.needs(number)):
        error = as_error(failure, scope["path"] + tx.graph.node(join).id)
        if tx.blame is not None:
            tx.blame.forget(("scope", number))
            tx.blame.see(("scope", number), error["step"])
            tx.blame.note(("scope", number))
        flows.fail_scope(tx, scope, error)


def _too_few(
    tx: Transition, step: int, arrivals: list[Arrival], need: int, came: list[str]
) -> None:
    """Activate a join with too few arrivals, so that the activation fails."""
    if not arrivals:
        return
    act = activations.new_activation(tx, tx.graph.node(step), arrivals)
    try:
        activations.count(tx, tx.scope_of(act), act)
        failure = recovery.too_few(tx, act, need, came)
    except StepFailure as exceeded:
        failure = exceeded
    _act_broken(tx, act, failure, entries.enough(act["id"], came))


def _trigger_broken(tx: Transition, arrival: Arrival, failure: Broken) -> None:
    """Fail a triggered step because its trigger could not be evaluated for the message."""
    if not is_over(tx.root()):
        messages.awake(tx, tx.root())
        act = activations.new_activation(tx, tx.graph.node(arrival["step"]), [arrival])
        _act_broken(tx, act, failure)


def _scope_failed(tx: Transition, scope: Scope, error: ErrorData) -> None:
    if not is_over(scope):
        flows.fail_scope(tx, scope, error)


def _goes_on(tx: Transition, act: Activation) -> None:
    """Do nothing: the work inside the activation continues without help."""


def _undo_failed(tx: Transition, scope: int, error: ErrorData, then: list[Any]) -> None:
    """Continue after an incomplete compensation by failing the surrounding scope."""
    if then[0] == "handled":
        act = tx.state["acts"].get(then[1])
        if act is not None:
            handlers.fail(tx, act, error)
    elif scope in tx.state["scopes"]:
        status = "cancelled" if tx.state["cancelling"] else "failed"
        flows.end(tx, status, error, None, scope)


def _flow_cancelled(tx: Transition, reason: str) -> None:
    cancelling.cancel_flow(tx, reason, at_once=False)


AGENDA = {
    "arrive": of_any(entries.arrive)(_arrive),
    "activate": of_any(entries.activate)(activations.activate),
    "attempt": of_unit(entries.attempt)(attempts.attempt),
    "ended": of_unit(entries.ended)(attempt_outcomes.attempt_ended),
    "act_ended": of_act(entries.act_ended)(activation_outcomes.activation_ended),
    "end_all": of_scope(entries.end_all)(scopes.end_all),
    "flow_ended": of_any(entries.flow_ended)(flows.succeed),
    "flow_end": of_any(entries.flow_end)(flows.end),
    # Tokens and joins
    "too_few": of_any(entries.too_few)(_too_few),
    "cancel_late": of_scope(entries.cancel_late)(closing.cancel_late),
    "need_broken": of_any(entries.need_broken)(_need_broken),
    "needs": of_any(entries.needs)(joins.check_again),
    "trigger_broken": of_any(entries.trigger_broken)(_trigger_broken),
    # Attempts and rounds of a unit
    "again": of_unit(entries.again)(recovery.run_again),
    "uncertain": of_unit(entries.uncertain)(recovery.ask_first),
    "pause": of_unit(entries.pause)(loops.pause_before_attempt),
    "group_ended": of_any(entries.group_ended)(_group_ended),
    "attempt_failed": of_unit(entries.attempt_failed)(attempt_outcomes.attempt_failed),
    "begin_round": of_unit(entries.begin_round)(loops.begin_round),
    "test_until": of_any(entries.test_until)(_test_until),
    "pause_before_round": of_unit(entries.pause_before_round)(loops.pause_before_round),
    "limit": of_unit(entries.limit)(recovery.limit_anew),
    "answered": of_act(entries.answered)(exchanges.answered),
    "calls_ended": of_unit(entries.calls_ended)(exchanges.calls_ended),
    "calls_answered": of_unit(entries.calls_answered)(exchanges.keep_answers),
    "cancel": of_unit(entries.cancel)(cancelling.cancel),
    # The end of a unit
    "unit_ended": of_unit(entries.unit_ended)(attempt_outcomes.unit_ended),
    "unit_failed": of_unit(entries.unit_failed)(attempt_outcomes.unit_failed),
    "unit_broken": of_unit(entries.unit_broken)(_unit_broken),
    # Activations and maps
    "begin_act": of_act(entries.begin_act)(activations.begin_act),
    "goes_on": of_act(entries.goes_on)(_goes_on),
    "enough": of_act(entries.enough)(recovery.look_if_enough),
    "deadline": of_act(entries.deadline)(recovery.deadline_anew),
    "fill": of_act(entries.fill)(map_items.fill),
    "add_item": of_act(entries.add_item)(map_items.add_item),
    "counted": of_act(entries.counted)(maps.counted),
    "map_broken": of_act(entries.map_broken)(maps.fail_map),
    "items_ended": of_act(entries.items_ended)(maps.end_map),
    "items_left": of_act(entries.items_left)(maps.items_left),
    "act_failed": of_act(entries.act_failed)(handlers.handle),
    "act_broken": of_act(entries.act_broken)(_act_broken),
    "handled": of_act(entries.handled)(handlers.compensated),
    # Scopes
    "opened": of_act(entries.opened)(scopes.opened),
    "scope_failed": of_scope(entries.scope_failed)(_scope_failed),
    "end_anew": of_any(entries.end_anew)(recovery.end_anew),
    "duration": of_any(entries.duration)(recovery.duration_anew),
    # Undoing and cleaning up
    "undo": of_any(entries.undo)(cleanup.undo_next),
    "undo_failed": of_any(entries.undo_failed)(_undo_failed),
    "clean": of_any(entries.clean)(cleanup.clean_scope),
    "clean_on": of_any(entries.clean_on)(cleanup.clean_next),
    # Flows: `of` is the scope of a flow
    "flow_handled": of_any(entries.flow_handled)(flows.handled),
    "flow_cancelled": of_any(entries.flow_cancelled)(_flow_cancelled),
    "flow_close": of_any(entries.flow_close)(flows.close),
}
"""Entry name → how the entry is processed."""
