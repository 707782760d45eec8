"""Passing: the token of a step that has ended goes straight to the next step, whose attempt begins.

Most events do this and nothing else. Its parts - the token leaves, arrives, activates a step, which
begins its unit and its attempt - otherwise take turns on the agenda. While nothing else is there,
nothing can come between them, so they are done at once: the same records, numbers and commands, in
the same order.

Most of all events end a task that does nothing else when it ends - it writes no state, holds no
lock, is no item and no round - and begin another. `go_straight` does that in one piece, and leaves
everything it does not know alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.kernel.commands import Command, Run
from flowengine.kernel.errors import StepFailure
from flowengine.kernel.expressions import provenance
from flowengine.kernel.expressions.names import Names
from flowengine.kernel.expressions.step_records import known
from flowengine.kernel.graph.compiled import EvaluationError
from flowengine.kernel.machine import Machine
from flowengine.kernel.state import entries
from flowengine.kernel.state.moves import move
from flowengine.kernel.steps.attempts import attempt
from flowengine.kernel.tokens.activations import count, put_activation
from flowengine.kernel.tokens.units import new_unit
from flowengine.kernel.view import View

if TYPE_CHECKING:
    from flowengine.kernel.events import Succeeded
    from flowengine.kernel.graph.compiled import Plain
    from flowengine.kernel.graph.linked import Graph, Node
    from flowengine.kernel.state.records import Activation, Scope, State, Unit

BUSY = frozenset({"budget", "frames", "hold", "answers"})
"""What a state has only while more than tokens and attempts has to be looked after."""
ACTIVATION_KEYS, UNIT_KEYS = 11, 7
"""How many keys an activation and a unit have at least; who has others is not passed straight."""


def pass_on(m: Machine, act: Activation, output: Plain) -> bool:
    """Pass the token of an activation straight to the next step, if nothing can come between.

    Args:
        m: The advance at work; the caller does nothing after this.
        act: The activation, which is over.
        output: What its step gave.

    Returns:
        Whether it did; else nothing has changed.
    """
    state, graph, source = m.state, m.graph, act["step"]
    node = graph.followers[source]
    if node is None or m.agenda or "hold" in state:
        return False
    scope = state["scopes"][act["scope"]]
    del state["acts"][act["id"]], scope["live"][act["id"]]
    carried = output if graph.nodes[source].carries else None
    following = put_activation(m, scope, node.index, [[source, carried]], act)
    try:
        count(m, scope, following)
    except StepFailure as failure:
        m.agenda.append(entries.act_broken(following["id"], failure))
        return True
    attempt(m, new_unit(m, scope, following, -1))
    return True


def go_straight(
    graph: Graph, state: State, unit: Unit, event: Succeeded
) -> list[Command] | Machine | None:
    """Apply the result of a task after which the next one begins, and nothing else happens.

    Args:
        graph: The flow.
        state: Its state, at the time of the event.
        unit: The unit whose attempt has ended.
        event: The result.

    Returns:
        What is to be done; or, if what the next task is given has no value, the advance in which
        that is to be handled; None: nothing has changed, more is to be done.
    """
    act = state["acts"][unit["act"]]
    following = graph.straight[act["step"]]
    if following is None or not BUSY.isdisjoint(state) or not _is_plain(act, unit):
        return None
    scope = state["scopes"][act["scope"]]
    if scope["counts"] or not _has_room(graph, state, scope):
        return None
    del state["units"][unit["id"]], state["acts"][act["id"]], scope["live"][act["id"]]
    node, output = graph.nodes[act["step"]], event["value"]
    act["rounds"], act["attempts"] = unit["round"], unit["attempt"]
    view = View(graph, state)
    if node.named:
        kept = known(view, act, node, "succeeded", "ok", output, None)
        act["past"] = provenance.remember(state, act["past"], node.index, kept)
    if node.forgets:
        provenance.forget(state, act["past"], node.forgets)
    source = [node.index, output if node.carries else None]
    return _begin(view, scope, following, source, act, event)


def _is_plain(act: Activation, unit: Unit) -> bool:
    """Return whether an activation and its unit hold nothing that has to be looked after."""
    more = len(act) - ACTIVATION_KEYS - ("knows" in act) - ("message" in act)
    return not more and len(unit) - UNIT_KEYS == ("input" in unit) and act["units"][unit["id"]]


def _has_room(graph: Graph, state: State, scope: Scope) -> bool:
    """Count one more activation, unless that is one too many, or the scopes around have rested."""
    if scope["unit"]:
        owner = state["units"][scope["unit"]]
        if not state["acts"][owner["act"]]["units"][owner["id"]]:
            return False
    if scope["mapped"]:
        return True
    if state["steps"] >= graph.limits["steps"]:
        return False
    state["steps"] += 1
    return True


def _begin(
    view: View, scope: Scope, node: Node, source: list[Any], token: Activation, event: Succeeded
) -> list[Command] | Machine:
    """Begin the first attempt of a task for the token of an activation that is over."""
    state = view.state
    number = state["last"] + 2
    state["last"] = number
    act: Activation = {
        "id": number - 1,
        "scope": token["scope"],
        "step": node.index,
        "number": 1,
        "arrivals": [source],
        "past": token["past"],
        "line": token["line"],
        "marks": token["marks"],
        "at": view.now,
        "units": {number: True},
        "busy": 1,
    }
    if "message" in token:
        act["message"] = token["message"]
    if "knows" in token:
        act["knows"] = token["knows"]
    unit: Unit = {
        "id": number,
        "act": number - 1,
        "item": -1,
        "phase": "ready",
        "round": 0,
        "attempt": 1,
        "tries": 1,
    }
    state["acts"][number - 1], state["units"][number] = act, unit
    scope["live"][number - 1] = node.index
    if node.fixed:
        if node.input is not None:
            unit["input"] = node.input[1]
    elif node.make_input is not None:
        try:
            unit["input"] = node.make_input(Names(view, act, unit))
        except (StepFailure, EvaluationError) as failure:
            state["running"] -= 1
            m = Machine(view.graph, state, None, event)
            m.agenda.append(entries.attempt_failed(number, failure))
            return m
    move(unit, "run")
    address = scope["path"] + node.id
    return [Run(number, 1, node.index, address, None, unit.get("input"), None)]
