"""Maps: the effects of ended items (docs/language.md: map. Patterns 12-15, 34-36, 42).

    item ended ─► enough for `join.need`? ─► the token leaves early: the others are cancelled, or
       │                                     continue without effects outside the map
       ├─ failed ─► `on_item_error: stop`, or more than `max_failures`: the others are cancelled
       └─► further items ─► none left ─► the list of outputs, `MapFailed` or `TooFew`

Under `join: none` each item continues along `next` as a separate token, and the map itself sends
none. `tokens.map_items` has the items and their start.
"""

from __future__ import annotations

from flowengine.kernel import flow_state, held_failures
from flowengine.kernel.ending.closing import close_unit, close_units, end_bounds
from flowengine.kernel.ending.leftovers import hand_over
from flowengine.kernel.errors import StepFailure, as_error
from flowengine.kernel.events import ErrorData
from flowengine.kernel.expressions import provenance
from flowengine.kernel.expressions.provenance import known
from flowengine.kernel.graph.compiled import EvaluationError, Plain
from flowengine.kernel.graph.specs import MapSpec
from flowengine.kernel.state import entries
from flowengine.kernel.state.entries import Broken
from flowengine.kernel.state.records import Activation, Unit
from flowengine.kernel.steps.activation_outcomes import (
    activation_ended,
    activation_failed,
    choose,
    remember_step,
)
from flowengine.kernel.tokens import routing
from flowengine.kernel.tokens.map_items import need_now
from flowengine.kernel.transition import Transition


def item_failed(tx: Transition, act: Activation, unit: Unit, error: ErrorData) -> None:
    """Count an item that has failed. Its map stops, or continues without it."""
    tx.note(act, "failed", unit=unit, error=error)
    if tx.blame is not None:
        tx.blame.add(("items", act["id"]), ("unit", unit["id"]))
    act["results"][unit["item"]] = ["failed", None, error]
    act["failed"] += 1
    spec = tx.node(act).map
    assert spec is not None
    if act.get("left_early") or "need" in act:
        counted(tx, act)
    elif spec["on_item_error"] == "stop" or act["failed"] > act.get("max_failures", act["failed"]):
        _cancel_items(tx, act)
        tx.agenda.append(entries.items_ended(act["id"]))
    else:
        tx.agenda.append(entries.fill(act["id"]))


def item_leaves(
    tx: Transition, act: Activation, unit: Unit, targets: list[int], output: Plain, outcome: str
) -> None:
    """Send an item along `next` as a separate token (patterns 12, 42).

    Args:
        tx: The transition.
        act: The map's activation.
        unit: The item's unit, which has ended.
        targets: The targets of the item.
        output: Its output.
        outcome: Its outcome.
    """
    node = tx.node(act)
    past = provenance.share(tx.state, act["past"])
    if node.named:
        kept = known(tx, act, node, "succeeded", outcome, output, None)
        past = provenance.remember(tx.state, past, act["step"], kept)
    tx.note(act, "succeeded", unit=unit, outcome=outcome, output=output, to=targets)
    act["results"][unit["item"]] = ["succeeded", None, None]
    act["succeeded"] += 1
    line = [*act["line"], unit["item"]]
    routing.send(tx, act, targets, line, past, output, unit.get("knows"))
    tx.agenda.append(entries.fill(act["id"]))


def counted(tx: Transition, act: Activation) -> None:
    """Let a map continue or fail if enough items have ended, else begin further items.

    Called when an item has ended, and when state that its `need` names has changed.

    Args:
        tx: The transition.
        act: The map's activation.
    """
    spec = tx.node(act).map
    assert spec is not None
    if "need" in act and not act.get("left_early"):
        try:
            need = need_now(tx, act)
        except (StepFailure, EvaluationError) as failure:
            tx.agenda.append(entries.map_broken(act["id"], failure))
            return
        if act["succeeded"] >= need:
            _go_early(tx, act)
            return
        if _may_not_reach(act, spec):
            _cancel_items(tx, act)
    tx.agenda.append(entries.fill(act["id"]))


def _may_not_reach(act: Activation, spec: MapSpec) -> bool:
    """Return whether too many items of a map have failed, regardless of later changes."""
    settled = spec["need"][0] == "const" and "more" not in spec
    return settled and len(act["over"]) - act["failed"] < act["need"]


def _go_early(tx: Transition, act: Activation) -> None:
    """Let a map continue with the items that have succeeded (patterns 34-36)."""
    spec = tx.node(act).map
    assert spec is not None
    if spec.get("late") == "cancel":
        _cancel_items(tx, act)
        tx.agenda.append(entries.items_ended(act["id"]))
        return
    output = [None if r is None else r[1] for r in act["results"]]
    try:
        flow_state.make_writes(tx, act)
        targets = choose(tx, act, "ok", output)
    except (StepFailure, EvaluationError) as failure:
        if held_failures.hold_act(tx, act, entries.counted(act["id"])):
            return
        _cancel_items(tx, act)
        activation_failed(tx, act, as_error(failure, tx.step_address(act)))
        return
    remember_step(tx, act, "succeeded", "ok", output)
    past = provenance.share(tx.state, act["past"])
    routing.send(tx, act, targets, act["line"], past, output, act.get("knows"))
    routing.count_token(tx, tx.scope_of(act), act["step"], -1)
    act["left_early"] = True
    tx.note(act, "succeeded", outcome="ok", output=output, to=targets)
    tx.agenda.append(entries.fill(act["id"]))


def _cancel_items(tx: Transition, act: Activation) -> None:
    """Withdraw the items that still run, and do not begin the remaining ones."""
    for number in list(act["units"]):
        close_unit(tx, tx.state["units"][number])
    act["next"] = len(act["over"])


def end_map(tx: Transition, act: Activation) -> None:
    """End a map whose items have all ended, unless another item was added since then.

    Args:
        tx: The transition.
        act: The map's activation.
    """
    if act["units"]:
        return
    again = entries.items_ended(act["id"])
    if act.get("left_early"):
        end_bounds(tx, act)  # set again if the map was restarted after its token had left
        flow_state.make_fitting(tx, act)
        hand_over(tx, act)
        routing.forget_activation(tx, act)
        provenance.drop(tx.state, act["past"])
        return
    try:
        flow_state.make_writes(tx, act)
    except StepFailure as failure:
        activation_failed(tx, act, as_error(failure, tx.step_address(act)), again)
        return
    if act["succeeded"] < act.get("need", 0):
        _blame_items(tx, act)
        activation_failed(tx, act, _too_few(tx, act), again)
    elif act["failed"] and "need" not in act and _fails(tx, act):
        _blame_items(tx, act)
        activation_failed(tx, act, _map_failed(tx, act), again)
    elif tx.node(act).each:
        items_left(tx, act)
    else:
        output = [None if r is None else r[1] for r in act["results"]]
        activation_ended(tx, act, "succeeded", "ok", output)


def items_left(tx: Transition, act: Activation) -> None:
    """End a map whose items have continued as separate tokens, without a token for the map.

    Args:
        tx: The transition.
        act: The map's activation, which has no running work.
    """
    end_bounds(tx, act)
    tx.note(act, "succeeded", outcome="ok")
    scope = tx.scope_of(act)
    hand_over(tx, act)
    routing.forget_activation(tx, act)
    routing.end_token(tx, scope, act["line"], act["past"])


def _fails(tx: Transition, act: Activation) -> bool:
    spec = tx.node(act).map
    assert spec is not None
    if spec["on_item_error"] != "continue":
        return True
    return "max_failures" in act and act["failed"] > act["max_failures"]


def _too_few(tx: Transition, act: Activation) -> ErrorData:
    came = [act["keys"][i] for i, r in enumerate(act["results"]) if r and r[0] == "succeeded"]
    message = f"{act['succeeded']} of the {act['need']} items needed have succeeded"
    failure = StepFailure("TooFew", message, {"from": came, "need": act["need"]})
    return as_error(failure, tx.step_address(act))


def _map_failed(tx: Transition, act: Activation) -> ErrorData:
    failed = [
        {"key": act["keys"][i], "index": i, "error": r[2]}
        for i, r in enumerate(act["results"])
        if r and r[0] == "failed"
    ]
    first = failed[0]["error"]["message"] if failed else ""
    message = f"{len(failed)} of {len(act['over'])} items failed, the first: {first}"
    data = {"failed": failed, "succeeded": act["succeeded"]}
    return as_error(StepFailure("MapFailed", message, data), tx.step_address(act))


def _blame_items(tx: Transition, act: Activation) -> None:
    if tx.blame is not None:
        tx.blame.note(("act", act["id"]), *tx.blame.causes(("items", act["id"])))


def fail_map(tx: Transition, act: Activation, failure: Broken) -> None:
    """Fail a running map because of its settings rather than an item."""
    if not held_failures.hold_act(tx, act, entries.counted(act["id"])):
        close_units(tx, act)
        activation_failed(tx, act, as_error(failure, tx.step_address(act)))
