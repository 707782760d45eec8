"""Maps: what becomes of a map as its items end (docs/language.md: map; patterns 12-15, 34-36, 42).

    item ended ─► enough for `join.need`? ─► the token goes on early: the others are cancelled, or
       │                                     run on and change nothing for anybody else
       ├─ failed ─► `on_item_error: stop`, or more than `max_failures`: the others are cancelled
       └─► further items ─► none left ─► the list of outputs, `MapFailed` or `TooFew`

Under `join: none` each item goes along `next` as a token of its own, and none leaves for the map.
Which items there are, and when they begin: `tokens.map_items`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.kernel import held_failures
from flowengine.kernel.ending.closing import close_unit, close_units, end_bounds
from flowengine.kernel.ending.leftovers import hand_over
from flowengine.kernel.errors import StepFailure, as_error
from flowengine.kernel.expressions import provenance
from flowengine.kernel.expressions.provenance import known
from flowengine.kernel.flow_state import variables
from flowengine.kernel.graph.compiled import EvaluationError, Plain
from flowengine.kernel.state import entries
from flowengine.kernel.steps.activation_outcomes import (
    activation_ended,
    activation_failed,
    choose,
    remember_step,
)
from flowengine.kernel.tokens import routing
from flowengine.kernel.tokens.map_items import need_now

if TYPE_CHECKING:
    from flowengine.kernel.events import ErrorData
    from flowengine.kernel.graph.specs import MapSpec
    from flowengine.kernel.machine import Machine
    from flowengine.kernel.state.entries import Broken
    from flowengine.kernel.state.records import Activation, Unit


def item_failed(m: Machine, act: Activation, unit: Unit, error: ErrorData) -> None:
    """Count an item that has failed; its map stops, or goes on without it."""
    m.note(act, "failed", unit=unit, error=error)
    if m.blame is not None:
        m.blame.add(("items", act["id"]), ("unit", unit["id"]))
    act["results"][unit["item"]] = ["failed", None, error]
    act["failed"] += 1
    spec = m.node(act).map
    assert spec is not None
    if act.get("gone") or "need" in act:
        counted(m, act)
    elif spec.get("on_item_error", "stop") == "stop" or act["failed"] > act.get(
        "bears", act["failed"]
    ):
        _cancel_items(m, act)
        m.agenda.append(entries.items_ended(act["id"]))
    else:
        m.agenda.append(entries.fill(act["id"]))


def item_leaves(
    m: Machine, act: Activation, unit: Unit, targets: list[int], output: Plain, outcome: str
) -> None:
    """Send an item on along `next` as a token of its own (patterns 12, 42).

    Args:
        m: The advance at work.
        act: The map's activation.
        unit: The item's unit, which has ended.
        targets: Where the item goes.
        output: What it gave.
        outcome: How it ended.
    """
    node = m.node(act)
    past = provenance.share(m.state, act["past"])
    if node.named:
        kept = known(m, act, node, "succeeded", outcome, output, None)
        past = provenance.remember(m.state, past, act["step"], kept)
    m.note(act, "succeeded", unit=unit, outcome=outcome, output=output, to=targets)
    act["results"][unit["item"]] = ["succeeded", None, None]
    act["succeeded"] += 1
    line = [*act["line"], unit["item"]]
    routing.send(m, act, targets, line, past, output, unit.get("knows"))
    m.agenda.append(entries.fill(act["id"]))


def counted(m: Machine, act: Activation) -> None:
    """Let a map go on, or give it up, if it has come to that; else begin further items.

    Called when one of its items has ended, and when state that its `need` names has changed.

    Args:
        m: The advance at work.
        act: The map's activation.
    """
    spec = m.node(act).map
    assert spec is not None
    if "need" in act and not act.get("gone"):
        try:
            need = need_now(m, act)
        except (StepFailure, EvaluationError) as failure:
            m.agenda.append(entries.map_broken(act["id"], failure))
            return
        if act["succeeded"] >= need:
            _go_early(m, act)
            return
        if _may_not_reach(act, spec):
            _cancel_items(m, act)
    m.agenda.append(entries.fill(act["id"]))


def _may_not_reach(act: Activation, spec: MapSpec) -> bool:
    """Return whether too many items have failed for a map, whatever may still change."""
    settled = spec["need"][0] == "const" and "more" not in spec
    return settled and len(act["over"]) - act["failed"] < act["need"]


def _go_early(m: Machine, act: Activation) -> None:
    """Let a map go on with the items that have succeeded (patterns 34-36)."""
    spec = m.node(act).map
    assert spec is not None
    if spec.get("late") == "cancel":
        _cancel_items(m, act)
        m.agenda.append(entries.items_ended(act["id"]))
        return
    output = [None if r is None else r[1] for r in act["results"]]
    try:
        variables.make_writes(m, act)
        targets = choose(m, act, "ok", output)
    except (StepFailure, EvaluationError) as failure:
        if held_failures.hold_act(m, act, entries.counted(act["id"])):
            return
        _cancel_items(m, act)
        activation_failed(m, act, as_error(failure, m.step_address(act)))
        return
    remember_step(m, act, "succeeded", "ok", output)
    past = provenance.share(m.state, act["past"])
    routing.send(m, act, targets, act["line"], past, output, act.get("knows"))
    routing.count_token(m, m.scope_of(act), act["step"], -1)
    act["gone"] = True
    m.note(act, "succeeded", outcome="ok", output=output, to=targets)
    m.agenda.append(entries.fill(act["id"]))


def _cancel_items(m: Machine, act: Activation) -> None:
    """Withdraw the items that still run; those not begun never will."""
    for number in list(act["units"]):
        close_unit(m, m.state["units"][number])
    act["next"] = len(act["over"])


def end_map(m: Machine, act: Activation) -> None:
    """End a map all of whose items have ended; one to which an item was added since goes on.

    Args:
        m: The advance at work.
        act: The map's activation.
    """
    if act["units"]:
        return
    again = entries.items_ended(act["id"])
    if act.get("gone"):
        end_bounds(m, act)  # those of a map that began anew after its token had left
        variables.make_fitting(m, act)
        hand_over(m, act)
        routing.forget(m, act)
        provenance.drop(m.state, act["past"])
        return
    try:
        variables.make_writes(m, act)
    except StepFailure as failure:
        activation_failed(m, act, as_error(failure, m.step_address(act)), again)
        return
    if act["succeeded"] < act.get("need", 0):
        _blame_items(m, act)
        activation_failed(m, act, _too_few(m, act), again)
    elif act["failed"] and "need" not in act and _fails(m, act):
        _blame_items(m, act)
        activation_failed(m, act, _map_failed(m, act), again)
    elif m.node(act).each:
        items_left(m, act)
    else:
        output = [None if r is None else r[1] for r in act["results"]]
        activation_ended(m, act, "succeeded", "ok", output)


def items_left(m: Machine, act: Activation) -> None:
    """End a map whose items have gone on by themselves: no token of its own leaves.

    Args:
        m: The advance at work.
        act: The map's activation; nothing of it runs any more.
    """
    end_bounds(m, act)
    m.note(act, "succeeded", outcome="ok")
    scope = m.scope_of(act)
    hand_over(m, act)
    routing.forget(m, act)
    routing.end_token(m, scope, act["line"], act["past"])


def _fails(m: Machine, act: Activation) -> bool:
    spec = m.node(act).map
    assert spec is not None
    if spec.get("on_item_error", "stop") != "continue":
        return True
    return "bears" in act and act["failed"] > act["bears"]


def _too_few(m: Machine, act: Activation) -> ErrorData:
    came = [act["keys"][i] for i, r in enumerate(act["results"]) if r and r[0] == "succeeded"]
    message = f"{act['succeeded']} of the {act['need']} items needed have succeeded"
    failure = StepFailure("TooFew", message, {"from": came, "need": act["need"]})
    return as_error(failure, m.step_address(act))


def _map_failed(m: Machine, act: Activation) -> ErrorData:
    failed = [
        {"key": act["keys"][i], "index": i, "error": r[2]}
        for i, r in enumerate(act["results"])
        if r and r[0] == "failed"
    ]
    first = failed[0]["error"]["message"] if failed else ""
    message = f"{len(failed)} of {len(act['over'])} items failed; the first: {first}"
    data = {"failed": failed, "succeeded": act["succeeded"]}
    return as_error(StepFailure("MapFailed", message, data), m.step_address(act))


def _blame_items(m: Machine, act: Activation) -> None:
    if m.blame is not None:
        m.blame.note(("act", act["id"]), *m.blame.causes(("items", act["id"])))


def fail_map(m: Machine, act: Activation, failure: Broken) -> None:
    """Fail a map that runs because of what it says of itself, not because of an item."""
    if not held_failures.hold_act(m, act, entries.counted(act["id"])):
        close_units(m, act)
        activation_failed(m, act, as_error(failure, m.step_address(act)))
