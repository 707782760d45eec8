"""Activations: a token enters a step (docs/language.md: Steps, Modifiers, map).

arrivals ─► merge pasts ─► limits ─► when ─► deadline ─► map: one unit per item, or one unit
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

from flowengine.kernel.errors import StepFailure
from flowengine.kernel.expressions import provenance
from flowengine.kernel.expressions.names import Names, evaluate, holds
from flowengine.kernel.flow_state import learn
from flowengine.kernel.graph.compiled import EvaluationError
from flowengine.kernel.graph.linked import Node
from flowengine.kernel.held_failures import begins_held
from flowengine.kernel.state import entries
from flowengine.kernel.state.records import Activation, Arrival, Scope
from flowengine.kernel.tokens import routing
from flowengine.kernel.tokens.map_items import OF_MAP, begin_map, begin_unit
from flowengine.kernel.transition import Transition
from flowengine.kernel.waiting.waits import duration_of


def activate(tx: Transition, step: int, arrivals: list[Arrival]) -> None:
    """Activate a step with the tokens that a join has released.

    Args:
        tx: The transition.
        step: The step.
        arrivals: The released tokens. They become one token.
    """
    begin_new(tx, new_activation(tx, tx.graph.nodes[step], arrivals))


def begin_new(tx: Transition, act: Activation) -> None:
    """Count a new activation against the limits, and begin its work."""
    node = tx.graph.nodes[act["step"]]
    try:
        count(tx, tx.state["scopes"][act["scope"]], act)
        if "hold" in tx.state and begins_held(tx, act):
            act["then"] = list(entries.begin_act(act["id"]))
        elif node.plain:
            begin_unit(tx, act, -1)
        else:
            _begin_step(tx, node, act)
    except (StepFailure, EvaluationError) as failure:
        tx.agenda.append(entries.act_broken(act["id"], failure))


def new_activation(tx: Transition, node: Node, arrivals: list[Arrival]) -> Activation:
    """Add a new activation to the state and return it."""
    first = arrivals[0]
    scope = tx.state["scopes"][first["scope"]]
    came = [[first["source"], first["output"]]]
    act = put_activation(tx, scope, node.index, came, first)
    if len(arrivals) > 1:
        _merge(tx, node, act, arrivals)
    if tx.graph.bodies[scope["body"]].watched:
        routing.count_token(tx, scope, node.index, 1)
    return act


def put_activation(
    tx: Transition, scope: Scope, step: int, arrivals: list[list[Any]], token: Arrival | Activation
) -> Activation:
    """Add a new activation to the state and return it.

    Args:
        tx: The transition.
        scope: Its scope.
        step: Its step.
        arrivals: `[source, output]` of each arrival.
        token: The token that it continues.

    Returns:
        The activation.
    """
    state = tx.state
    number = state["last"] = state["last"] + 1
    act: Activation = {
        "id": number,
        "scope": scope["id"],
        "step": step,
        "number": 1,
        "arrivals": arrivals,
        "past": token["past"],
        "line": token["line"],
        "marks": token["marks"],
        "at": tx.now,
        "units": {},
        "busy": 0,
    }
    if "message" in token:
        act["message"] = token["message"]
    if "knows" in token:
        act["knows"] = token["knows"]
    state["acts"][number] = act
    scope["live"][number] = step
    return act


def _merge(tx: Transition, node: Node, act: Activation, arrivals: list[Arrival]) -> None:
    """Merge the tokens of several arrivals into the token of the activation."""
    for arrival in arrivals[1:]:
        learn(act, arrival.get("knows"))
    ordered = sorted(arrivals, key=lambda a: (a["line"], node.sources.index(a["source"])))
    past = ordered[0]["past"]
    marks = dict(ordered[0]["marks"])
    for arrival in ordered[1:]:
        past = provenance.merge(tx.state, past, arrival["past"])
        for join, number in arrival["marks"].items():
            marks[join] = max(marks.get(join, 0), number)
    act["past"] = past
    act["marks"] = marks
    for arrival in ordered:
        if "message" in arrival:
            act["message"] = arrival["message"]
    assert node.join is not None
    if node.join["kind"] == "count":
        act["arrivals"] = [[a["source"], a["output"]] for a in arrivals]
        act["line"] = ordered[-1]["line"]
    else:
        act["arrivals"] = [[a["source"], a["output"]] for a in ordered]
        act["line"] = _common(ordered[0]["line"], ordered[-1]["line"])


def _common(first: list[int], last: list[int]) -> list[int]:
    length = 0
    while length < min(len(first), len(last)) and first[length] == last[length]:
        length += 1
    return first[:length]


def count(tx: Transition, scope: Scope, act: Activation) -> None:
    """Count an activation against the limits.

    Args:
        tx: The transition.
        scope: Its scope.
        act: The activation. Its number is filled in.

    Raises:
        StepFailure: `LimitExceeded`.
    """
    step = act["step"]
    body = tx.graph.bodies[scope["body"]]
    if body.repeats or scope["counts"]:  # an earlier form of the flow may have counted
        act["number"] = scope["counts"][step] = scope["counts"].get(step, 0) + 1
        hits = scope["hits"][step] = scope["hits"].get(step, 0) + 1
        limits = tx.graph.flows[body.flow].limits
        if hits > limits["activations"]:
            raise StepFailure(
                "LimitExceeded",
                f"{tx.graph.node(step).id!r} was activated more than {limits['activations']} times "
                "without a wait in between (limits.activations)",
                {"limit": "activations"},
            )
    if scope["mapped"]:
        return
    if "frame" in scope:
        _count_in_subflows(tx, scope["frame"])
        return
    steps = tx.state["steps"] = tx.state["steps"] + 1
    if steps > tx.graph.limits["steps"]:
        _refuse_more(tx.graph.limits["steps"])


def _count_in_subflows(tx: Transition, frame: int) -> None:
    """Count an activation in a subflow for `limits.steps` of the flows around it.

    It stops at the first flow that counts separately. The flows around that one count all of it as
    the single step that runs it.
    """
    frames = [*_counting(tx, frame)]
    if not (frames and tx.flow_of(frames[-1]).counts_alone):
        tx.state["steps"] += 1
        if tx.state["steps"] > tx.graph.limits["steps"]:
            _refuse_more(tx.graph.limits["steps"])
    for number in frames:
        inside = tx.state["frames"][number]
        if "steps" in inside:
            inside["steps"] += 1
            limit = tx.flow_of(number).limits["steps"]
            if inside["steps"] > limit:
                _refuse_more(limit)


def _counting(tx: Transition, frame: int) -> Iterator[int]:
    """Yield the subflows around a place that count its activations, innermost first."""
    while frame and frame in tx.state["frames"]:
        yield frame
        if tx.flow_of(frame).counts_alone:
            return
        frame = tx.state["frames"][frame]["up"]


def _refuse_more(limit: int) -> NoReturn:
    message = f"more than {limit} activations (limits.steps)"
    raise StepFailure("LimitExceeded", message, {"limit": "steps"})


def begin_act(tx: Transition, act: Activation) -> None:
    """Restart an activation that has been counted and has no running work.

    Args:
        tx: The transition.
        act: The activation.
    """
    scope, step = tx.scope_of(act), act["step"]
    if step in scope["hits"]:  # an operator has intervened, as in a wait
        scope["hits"][step] = 1
    if "deadline" in act:
        tx.clear_timer(act.pop("deadline"))
    fields: dict[str, Any] = act  # type: ignore[assignment]
    for field in OF_MAP:
        fields.pop(field, None)
    try:
        if not scope["mapped"]:
            _check_steps(tx, scope.get("frame", 0))
        _begin_step(tx, tx.node(act), act)
    except (StepFailure, EvaluationError) as failure:
        tx.agenda.append(entries.act_broken(act["id"], failure))


def _check_steps(tx: Transition, frame: int) -> None:
    """Reject a restart if its activation exceeded `limits.steps`."""
    frames = [*_counting(tx, frame)]
    whole, flow = tx.state["steps"], tx.graph.flows[0]
    if frames and tx.flow_of(frames[-1]).counts_alone:
        whole, flow = tx.state["frames"][frames[-1]]["steps"], tx.flow_of(frames[-1])
    if whole > flow.limits["steps"]:
        _refuse_more(flow.limits["steps"])


def _begin_step(tx: Transition, node: Node, act: Activation) -> None:
    names = Names(tx, act)
    if node.when is not None and not holds(names, node.when):
        tx.agenda.append(entries.act_ended(act["id"], "skipped", "skipped", None))
        return
    if node.deadline is not None:
        delay = duration_of(evaluate(names, node.deadline), "deadline")
        act["deadline"] = tx.set_timer(delay, "deadline", act["id"])
    if node.map is None:
        begin_unit(tx, act, -1)
        return

    begin_map(tx, node, act, names)
