"""Outcomes: what follows when an attempt, a unit, an activation has ended (language ref., §5.2).

    attempt ─► retry? ─► output ─► set ─► loop? ─► item of a map? ─► next
       └─ failed ─► retry? ─► item of a map? ─► on_error ─► the scope fails

Each arrow is one function here; what belongs to others goes on the agenda.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from flowengine.kernel import held_failures
from flowengine.kernel.ending import cleaning, compensation
from flowengine.kernel.ending.closing import (
    close_unit,
    end_bounds,
    hand_over,
    pass_finals,
    release_region,
    stop_attempt,
)
from flowengine.kernel.errors import StepFailure, as_error
from flowengine.kernel.expressions import provenance
from flowengine.kernel.expressions.names import Names, evaluate, holds
from flowengine.kernel.expressions.step_records import known, record
from flowengine.kernel.flow_state import variables
from flowengine.kernel.flow_state.causality import learn
from flowengine.kernel.graph.compiled import EvaluationError, MapSpec, Plain
from flowengine.kernel.graph.linked import Node
from flowengine.kernel.limits import locks
from flowengine.kernel.limits.suspension import unpark
from flowengine.kernel.machine import Machine
from flowengine.kernel.messages import signals
from flowengine.kernel.state import entries
from flowengine.kernel.state.moves import move
from flowengine.kernel.steps import handlers
from flowengine.kernel.steps.attempts import (
    of_loop,
    pause_before_attempt,
    pause_before_round,
    tries_again,
)
from flowengine.kernel.steps.passing import pass_on
from flowengine.kernel.tokens import routing
from flowengine.kernel.tokens.activations import need_now

if TYPE_CHECKING:
    from flowengine.kernel.events import ErrorData
    from flowengine.kernel.state.entries import Entry
    from flowengine.kernel.state.records import Activation, Unit

Failure: TypeAlias = "StepFailure | EvaluationError | ErrorData"


def attempt_ended(
    m: Machine, unit: Unit, raw: Plain, outcome: str, past: int | None = None
) -> None:
    """Take the result of an attempt that ended well.

    Args:
        m: The advance at work.
        unit: The unit.
        raw: What the action gave.
        outcome: How it ended.
        past: What the step's own expressions see of the steps inside a group.
    """
    act = m.state["acts"][unit["act"]]
    node = m.graph.nodes[act["step"]]
    if "timer" in unit:
        m.clear_timer(unit.pop("timer"))
    if not act["units"][unit["id"]]:
        unpark(m, unit)
    move(unit, "ready")
    if node.raises and outcome in node.raises and not routing.routes(node, outcome):
        attempt_failed(m, unit, _raised(node.raises[outcome], node, raw))
        return
    output = raw
    if node.lock is not None and not _has_lock(m, unit, raw, outcome, past):
        return
    if node.output is not None or node.set or node.emit:
        names = Names(m, act, unit, past, {"result": raw, "outcome": outcome})
        try:
            if node.output is not None:
                output = evaluate(names, node.output)
            assert names.extra is not None
            names.extra["output"] = output
            _write(m, act, unit, names)
            if node.emit:
                signals.emit(m, names, node.emit, f"{unit['id']}/{unit['attempt']}")
        except (StepFailure, EvaluationError) as failure:
            # The action has acted, whatever became of its result.
            compensation.remember(m, act, unit, raw, past)
            error = as_error(failure, m.address(unit), unit["tries"])
            unit_failed(m, unit, error, _ended_again(unit, raw, outcome, past))
            return
    if node.compensate >= 0:
        compensation.remember(m, act, unit, output, past)
    if "lock" in unit:
        locks.leave(m, unit)
    if node.loop is not None:
        _round_ended(m, node, unit, output, outcome, past)
    else:
        unit_ended(m, unit, output, outcome)


def _has_lock(m: Machine, unit: Unit, raw: Plain, outcome: str, past: int | None) -> bool:
    """Take the lock for what follows a wait or approval that did not hold it; others have it."""
    try:
        return locks.take(m, unit, entries.ended(unit["id"], raw, outcome))
    except (StepFailure, EvaluationError) as failure:
        compensation.remember(m, m.act_of(unit), unit, raw, past)
        error = as_error(failure, m.address(unit), unit["tries"])
        unit_failed(m, unit, error, _ended_again(unit, raw, outcome, past))
        return False


def _ended_again(unit: Unit, raw: Plain, outcome: str, past: int | None) -> Entry:
    """Return what follows when what comes after an attempt begins anew: the attempt stands."""
    if past is None:
        return entries.ended(unit["id"], raw, outcome)
    return entries.group_over(unit["id"], raw, past)


def _raised(type: str, node: Node, raw: Plain) -> StepFailure:
    """Return the error of an outcome that raises."""
    by = f" by {raw['by']}" if isinstance(raw, dict) and raw.get("by") else ""
    comment = f": {raw['comment']}" if isinstance(raw, dict) and raw.get("comment") else ""
    what = {
        "Rejected": f"{node.id!r} was rejected{by}{comment}",
        "Expired": f"{node.id!r} expired: nobody decided in time",
        "Timeout": f"{node.id!r} timed out: what it waited for did not come",
    }
    return StepFailure(type, what.get(type, f"{node.id!r} ended in {type}"), raw)


def _write(m: Machine, act: Activation, unit: Unit, names: Names) -> None:
    pairs = m.node(act).set
    if pairs:
        later = variables.write(m, names, pairs, act)
        if later:
            act["writes"].setdefault(unit["item"], []).extend(later)


def _round_ended(
    m: Machine, node: Node, unit: Unit, output: Plain, outcome: str, past: int | None
) -> None:
    """Test `until` after a round; the next one begins after its pause."""
    assert node.loop is not None
    unit["last"] = output
    if node.loop.get("keep"):
        unit.setdefault("outputs", []).append(output)
    if past is not None and "before" in node.loop:
        provenance.drop(m.state, unit.get("seen", 0))
        unit["seen"] = provenance.share(m.state, past)
    if m.observe is not None:
        m.note(m.act_of(unit), "succeeded", unit=unit, outcome=outcome, output=output)
    unit["tries"] = 0
    round_over(m, unit, output, outcome, past)


def round_over(m: Machine, unit: Unit, output: Plain, outcome: str, past: int | None) -> None:
    """Test `until` after a round, whose output has been noted."""
    node = m.node(m.act_of(unit))
    if node.loop is not None and "until" in node.loop:
        names = Names(m, m.act_of(unit), unit, past, {"output": output, "outcome": outcome})
        try:
            done = holds(names, node.loop["until"])
        except EvaluationError as failure:
            again = entries.round_over(unit["id"], output, outcome, past)
            unit_failed(m, unit, as_error(failure, m.address(unit)), again)
            return
        if done:
            unit_ended(m, unit, of_loop(node, unit, output), outcome)
            return
    pause_before_round(m, unit)


def unit_ended(m: Machine, unit: Unit, output: Plain, outcome: str = "ok") -> None:
    """End a unit that has succeeded: its step goes on, or its map counts an item."""
    act = m.state["acts"][unit["act"]]
    if unit["item"] >= 0 and m.node(act).each:
        _item_leaves(m, act, unit, output, outcome)
        return
    _remove_unit(m, act, unit)
    if unit["item"] < 0:
        activation_ended(m, act, "succeeded", outcome, output)
        return
    if m.observe is not None:
        m.note(act, "succeeded", unit=unit, outcome=outcome, output=output)
    act["results"][unit["item"]] = ["succeeded", output, None]
    act["succeeded"] += 1
    counted(m, act)


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


def _remove_unit(m: Machine, act: Activation, unit: Unit) -> None:
    if act["units"].pop(unit["id"]):
        act["busy"] -= 1
        if act["units"] and not act["busy"]:
            m.touch(act["scope"])  # the items that are left wait: the scope may rest
    if m.graph.regions or "answers" in m.state:
        release_region(m, unit)
    del m.state["units"][unit["id"]]
    if "knows" in unit:
        learn(act, unit["knows"])
    if "finals" in unit:
        pass_finals(unit, act)
    if "lock" in unit:
        locks.leave(m, unit)
    if "seen" in unit:
        provenance.drop(m.state, unit["seen"])
    act["rounds"] = unit["round"]
    act["attempts"] = unit["attempt"]


def _item_leaves(m: Machine, act: Activation, unit: Unit, output: Plain, outcome: str) -> None:
    """Let an item go on along `next` as a token of its own (patterns 12, 42)."""
    node = m.node(act)
    try:
        targets = routing.choose(
            node, Names(m, act, extra={"output": output, "outcome": outcome}), outcome
        )
    except (StepFailure, EvaluationError) as failure:
        again = entries.unit_ended(unit["id"], output, outcome)
        unit_failed(m, unit, as_error(failure, m.address(unit)), again)
        return
    _remove_unit(m, act, unit)
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


def _go_early(m: Machine, act: Activation) -> None:
    """Let a map go on with the items that have succeeded (patterns 34-36)."""
    spec = m.node(act).map
    assert spec is not None
    if spec.get("late") == "cancel":
        _cancel_items(m, act)
        m.agenda.append(entries.map_over(act["id"]))
        return
    output = [None if r is None else r[1] for r in act["results"]]
    try:
        variables.make_writes(m, act)
        targets = _choose(m, act, "ok", output)
    except (StepFailure, EvaluationError) as failure:
        if held_failures.hold_act(m, act, entries.counted(act["id"])):
            return
        _cancel_items(m, act)
        activation_failed(m, act, as_error(failure, m.step_address(act)))
        return
    _remember(m, act, "succeeded", "ok", output)
    past = provenance.share(m.state, act["past"])
    routing.send(m, act, targets, act["line"], past, output, act.get("knows"))
    routing.place(m, m.scope_of(act), act["step"], -1)
    act["gone"] = True
    m.note(act, "succeeded", outcome="ok", output=output, to=targets)
    m.agenda.append(entries.fill(act["id"]))


def _cancel_items(m: Machine, act: Activation) -> None:
    """Withdraw the items that still run; those not begun never will."""
    for number in list(act["units"]):
        close_unit(m, m.state["units"][number])
    act["next"] = len(act["over"])


def map_over(m: Machine, act: Activation) -> None:
    """End a map all of whose items have ended.

    Args:
        m: The advance at work.
        act: The map's activation.
    """
    again = entries.map_over(act["id"])
    if act.get("gone"):
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


def _blame_items(m: Machine, act: Activation) -> None:
    if m.blame is not None:
        m.blame.note(("act", act["id"]), *m.blame.causes(("items", act["id"])))


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


def _item_failed(m: Machine, act: Activation, unit: Unit, error: ErrorData) -> None:
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
        m.agenda.append(entries.map_over(act["id"]))
    else:
        m.agenda.append(entries.fill(act["id"]))


def attempt_failed(m: Machine, unit: Unit, failure: Failure) -> None:
    """Take the failure of an attempt: try again, or the unit has failed.

    Args:
        m: The advance at work.
        unit: The unit.
        failure: What the attempt ended with.
    """
    act = m.act_of(unit)
    if isinstance(failure, dict):
        whose: ErrorData = {"step": m.address(unit), "attempt": unit["tries"], "cause": None}
        error: ErrorData = {**whose, **failure}
    else:
        error = as_error(failure, m.address(unit), unit["tries"])
    again = (entries.uncertain if unit["phase"] == "run" else entries.attempt)(unit["id"])
    stop_attempt(m, unit)
    if not act["units"][unit["id"]]:
        unpark(m, unit)
    if not tries_again(m, unit, error):
        unit_failed(m, unit, error, again)
    elif not cleaning.first(m, "unit", unit, entries.pause(unit["id"], error), error):
        pause_before_attempt(m, unit, error)


def unit_failed(m: Machine, unit: Unit, error: ErrorData, again: Entry | None = None) -> None:
    """End a unit that has failed for good.

    Args:
        m: The advance at work.
        unit: The unit.
        error: What it failed with.
        again: What follows if it begins anew; None: its attempt.
    """
    act = m.act_of(unit)
    stop_attempt(m, unit)
    if held_failures.hold_unit(m, unit, again or entries.attempt(unit["id"])):
        return
    is_item = unit["item"] >= 0
    holds_on = is_item or "held" in unit
    if holds_on and cleaning.first(m, "unit", unit, entries.unit_failed(unit["id"], error), error):
        return
    if unit["round"] and unit["tries"] and not is_item:
        m.note(act, "failed", unit=unit, error=error)
    _remove_unit(m, act, unit)
    if not is_item:
        if m.blame is not None:
            m.blame.note(("act", act["id"]), ("unit", unit["id"]))
        activation_failed(m, act, error)
    else:
        _item_failed(m, act, unit, error)


def activation_ended(m: Machine, act: Activation, status: str, outcome: str, output: Plain) -> None:
    """End an activation; its token goes on along `next`.

    Args:
        m: The advance at work.
        act: The activation.
        status: `succeeded` or `skipped`.
        outcome: What `next` may route by.
        output: What the step gives.
    """
    if "undo" in act:
        compensation.compensated(m, act, None)
        return
    if "final" in act:
        cleaning.ended(m, act, None)
        return
    if "opens" in act:
        m.agenda.append(entries.opened(act["id"], None))
        return
    try:
        targets = _choose(m, act, outcome, output)
    except (StepFailure, EvaluationError) as failure:
        error = as_error(failure, m.step_address(act))
        activation_failed(m, act, error, entries.act_ended(act["id"], status, outcome, output))
        return
    _remember(m, act, status, outcome, output)
    if m.observe is not None:
        m.note(act, status, outcome=outcome, output=output, to=targets)
    if "done" in act or "cut" in act or "finals" in act:
        hand_over(m, act)
    if not pass_on(m, act, output):
        routing.leave(m, act, targets, output)


def _choose(m: Machine, act: Activation, outcome: str, output: Plain) -> list[int]:
    """Return where the token goes; the step is over, and so is what bounds it."""
    if "deadline" in act or "over" in act:
        end_bounds(m, act)
    node = m.graph.nodes[act["step"]]
    if node.targets is not None:  # most steps: no expression is asked
        return node.targets
    names = Names(m, act, extra={"output": output, "outcome": outcome})
    return routing.choose(node, names, outcome)


def _remember(m: Machine, act: Activation, status: str, outcome: str, output: Plain) -> None:
    """Put the step into the past of its token, if some expression names it."""
    node = m.graph.nodes[act["step"]]
    if node.named:
        record(m, act, node, status, outcome, output, None)


def activation_failed(
    m: Machine, act: Activation, error: ErrorData, again: Entry | None = None
) -> None:
    """Let a failed activation be handled by its `on_error`, or fail its scope.

    Args:
        m: The advance at work.
        act: The activation; nothing of it runs any more.
        error: What it failed with.
        again: What follows if it begins anew; None: all of it.
    """
    if held_failures.hold_act(m, act, again or entries.begin_act(act["id"])):
        return
    end_bounds(m, act)
    if "undo" in act:
        compensation.compensated(m, act, error)
    elif "final" in act:
        cleaning.ended(m, act, error)
    elif "opens" in act:
        m.agenda.append(entries.opened(act["id"], error))
    else:
        handlers.handle(m, act, error)
