"""Cancellation of steps by a step, and of the whole execution (docs/language.md: cancel)."""

from __future__ import annotations

from flowengine.kernel import held_failures
from flowengine.kernel.ending import cleanup
from flowengine.kernel.ending.closing import close_activation, close_units, empty_scope
from flowengine.kernel.ending.leftovers import hand_over
from flowengine.kernel.errors import StepFailure, as_error, matches
from flowengine.kernel.events import ErrorData
from flowengine.kernel.expressions.names import Names, evaluate
from flowengine.kernel.expressions.provenance import record
from flowengine.kernel.flow_state import learn
from flowengine.kernel.graph.compiled import EvaluationError, Plain
from flowengine.kernel.state import entries, moves
from flowengine.kernel.state.records import Activation, Unit
from flowengine.kernel.steps import handlers
from flowengine.kernel.tokens import routing
from flowengine.kernel.transition import Transition, has_items


def cancel(tx: Transition, unit: Unit) -> None:
    """Perform a `cancel` step, then let it continue.

    Args:
        unit: Its unit. If it withdraws itself, it does not continue.
    """
    act = tx.act_of(unit)
    spec = tx.node(act).cancel
    assert spec is not None
    try:
        reason = evaluate(Names(tx, act, unit), spec["reason"]) if "reason" in spec else None
    except EvaluationError as failure:
        tx.agenda.append(entries.attempt_failed(unit["id"], failure))
        return
    text = reason if isinstance(reason, str) else f"cancelled by {tx.node(act).id!r}"
    if spec.get("execution"):
        tx.note(act, "succeeded", outcome="ok", output={"cancelled": []})
        close_activation(tx, act, told=True)
        tx.agenda.append(entries.flow_cancelled(text))
        return
    hit: list[str] = []
    # All are looked up first, because a group around this step withdraws the step itself.
    for instance in [
        instance for target in spec["targets"] for instance in _instances(tx, act, target)
    ]:
        if instance["id"] in tx.state["acts"]:
            hit.append(tx.node(instance).id)
            _withdraw(tx, instance, spec["outcome"], text)
            learn(act, instance.get("knows"))
    if unit["id"] in tx.state["units"]:
        tx.agenda.append(entries.ended(unit["id"], {"cancelled": hit}, "ok"))


def _instances(tx: Transition, act: Activation, target: int) -> list[Activation]:
    """Return the live activations of a step in this scope or a surrounding one, oldest first."""
    body = tx.graph.node(target).body
    for scope in map(tx.scope_of, tx.acts_around(act)):
        if scope["body"] == body:
            return [tx.state["acts"][n] for n, step in scope["live"].items() if step == target]
        if tx.graph.body(scope["body"]).kind == "flow":
            break  # a recursive flow has the step too, in a different run
    return []


def _withdraw(tx: Transition, act: Activation, how: str, reason: str) -> None:
    """Withdraw an activation as cancelled, as failed, or as succeeded with its output so far."""
    node = tx.node(act)
    output = _so_far(tx, act) if how == "succeeded" else None
    if how == "failed":
        then = entries.counted(act["id"]) if has_items(act) else entries.goes_on(act["id"])
        if held_failures.hold_act(tx, act, then):
            return  # its finished work stays, and running work continues
    close_units(tx, act)
    if how == "succeeded":
        then = entries.act_ended(act["id"], "succeeded", "ok", output)
        if node.each:
            then = entries.items_left(act["id"])
        if not cleanup.clean_first(tx, "act", act, then):
            tx.agenda.append(then)
        return
    failure = StepFailure("Cancelled", reason, retryable=False)
    error = as_error(failure, tx.step_address(act))
    named = any(matches("Cancelled", h.get("types", [])) for h in node.on_error)
    if how == "failed" or named:
        handlers.handle(tx, act, error)
        return
    if node.named:
        record(tx, act, node, "cancelled", "cancelled", None, error)
    tx.note(act, "cancelled", error=error)
    hand_over(tx, act)
    scope, line, past = tx.scope_of(act), act["line"], act["past"]
    routing.forget_activation(tx, act)
    routing.end_token(tx, scope, line, past)


def _so_far(tx: Transition, act: Activation) -> Plain:
    """Return the output so far: the list of a map, the `output` of a group, else null."""
    if has_items(act):
        return [None if r is None else r[1] for r in act["results"]]
    unit = tx.state["units"][next(iter(act["units"]))] if act["units"] else None
    if unit is None or "scope" not in unit:
        return None
    scope = tx.state["scopes"][unit["scope"]]
    body = tx.graph.body(scope["body"])
    if body.output is None:
        return None
    past = routing.merged_past(tx, scope)
    try:
        return evaluate(Names(tx, act, unit, past), body.output)
    except EvaluationError:
        return None
    finally:
        scope["ended"].append([act["line"], past])


def cancel_flow(tx: Transition, reason: str, at_once: bool) -> None:
    """Withdraw the whole execution (pattern 20).

    Its error handlers do not apply, with one exception: a handler of the flow that names
    `Cancelled` and compensates is used, unless `at_once`.

    Args:
        reason: The reason, as text.
        at_once: Skip compensation and `finally`, including those of a cancellation in progress.
    """
    scope = next((s for s in tx.state["scopes"].values() if not s["unit"]), None)
    if scope is None or (tx.state["cancelling"] and not at_once):
        return
    tx.state["cancelling"] = reason
    empty_scope(tx, scope)
    moves.end_tokens(scope)
    error: ErrorData = as_error(StepFailure("Cancelled", reason, retryable=False), "")
    specs = tx.graph.flow.get("on_error", [])
    undoes = any(
        spec.get("compensate") and matches("Cancelled", spec.get("types", [])) for spec in specs
    )
    if at_once:
        tx.agenda.append(entries.flow_close("cancelled", error))
    elif undoes:
        todo, cut = scope["done"], scope["cut"]
        cleanup.compensate_in(tx, scope, todo, cut, error, entries.cancelled_flow_end(error))
    else:
        tx.agenda.append(entries.cancelled_flow_end(error))
