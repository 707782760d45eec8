"""Rounds and items that follow one another: one ends, and the next one begins, in one piece.

A plain task does little between two rounds of its loop: it may replace one state key, and tests
`until`. Between two items of its map it does less. As in `passing`, the same records and commands
follow as when everything takes its turn, and what is not known here is left alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.kernel.commands import Command, Run
from flowengine.kernel.errors import StepFailure
from flowengine.kernel.expressions.names import Names, evaluate, holds
from flowengine.kernel.flow_state.causality import learn, learn_own
from flowengine.kernel.flow_state.variables import replaced
from flowengine.kernel.graph.compiled import EvaluationError
from flowengine.kernel.machine import Machine
from flowengine.kernel.state import entries
from flowengine.kernel.state.moves import move
from flowengine.kernel.steps.attempts import PREPARED
from flowengine.kernel.steps.loops import test_until
from flowengine.kernel.steps.passing import BUSY
from flowengine.kernel.tokens.units import put_unit
from flowengine.kernel.view import View

if TYPE_CHECKING:
    from flowengine.kernel.events import Succeeded
    from flowengine.kernel.graph.compiled import Plain
    from flowengine.kernel.graph.linked import Graph, Node
    from flowengine.kernel.state.records import Activation, State, Unit

WATCHED = BUSY | {"reading"}
"""What a state has while more than this attempt has to be looked after."""
HELD_UP = PREPARED | {"timer", "lock", "finals", "seen", "facts"}
"""What a unit has if more follows its result."""


def go_again(
    graph: Graph, state: State, unit: Unit, event: Succeeded
) -> list[Command] | Machine | None:
    """Apply the result of a round or item after which the next begins, and nothing else happens.

    Args:
        graph: The flow.
        state: Its state, at the time of the event.
        unit: The unit whose attempt has ended.
        event: The result.

    Returns:
        What is to be done; or, if this was the last round, or an expression has no value, the
        advance in which that is to be handled; None: nothing has changed, more is to be done.
    """
    act = state["acts"][unit["act"]]
    node = graph.again[act["step"]]
    if node is None or not WATCHED.isdisjoint(state) or not HELD_UP.isdisjoint(unit):
        return None
    if state["scopes"][act["scope"]]["unit"] or "final" in act or not act["units"][unit["id"]]:
        return None
    view = View(graph, state)
    return (_next_item if node.loop is None else _next_round)(view, node, act, unit, event)


# Rounds


def _next_round(
    view: View, node: Node, act: Activation, unit: Unit, event: Succeeded
) -> list[Command] | Machine | None:
    if "max" not in unit or view.state["watching"]:
        return None
    names = Names(view, act, unit, None, {"result": event["value"], "outcome": "ok"})
    try:
        output = event["value"] if node.output is None else evaluate(names, node.output)
        assert names.extra is not None
        names.extra["output"] = output
        if node.set:
            _write(view, node, names, act)
    except (StepFailure, EvaluationError):
        return None
    return _go_on(names, node, unit, event, output)


def _write(view: View, node: Node, names: Names, act: Activation) -> None:
    """Replace the state key that a step sets.

    Raises:
        StepFailure: That cannot be done; nothing has changed.
    """
    [[key, given]] = node.set
    value = evaluate(names, given)
    cells, spec = view.state["vars"], view.graph.flows[0].state[key]
    known = act.get("knows", {}).get(key)
    cell = cells[key] = replaced(view.graph, spec, key, cells[key], value, known)
    learn_own(act, key, cell[1])
    learn_own(view.state["scopes"][act["scope"]], key, cell[1])


def _go_on(
    names: Names, node: Node, unit: Unit, event: Succeeded, output: Plain
) -> list[Command] | Machine:
    """Begin the next round, or end the loop."""
    assert node.loop is not None
    unit["last"] = output
    unit["tries"] = 0
    try:
        is_last = unit["round"] >= unit["max"] or holds(names, node.loop["until"])
    except EvaluationError:
        is_last = True
    if is_last:
        m = _in_turns(names, node, unit, event)
        test_until(m, unit, output, "ok", None)
        return m
    unit["round"] += 1
    unit["attempt"] += 1
    unit["tries"] = 1
    names.extra = None
    return _run(names, node, unit, event)


# Items


def _next_item(
    view: View, node: Node, act: Activation, unit: Unit, event: Succeeded
) -> list[Command] | Machine | None:
    state, index = view.state, act["next"]
    if act["busy"] != act["places"] or index >= len(act["over"]) or "gone" in act:
        return None
    del state["units"][unit["id"]], act["units"][unit["id"]]
    if "knows" in unit:
        learn(act, unit["knows"])
    act["rounds"], act["attempts"] = unit["round"], unit["attempt"]
    act["results"][unit["item"]] = ["succeeded", event["value"], None]
    act["succeeded"] += 1
    act["next"] = index + 1
    following = put_unit(state, act, index)
    following["attempt"] = following["tries"] = 1
    move(following, "run")
    if "knows" in act:
        learn(following, act["knows"])
    return _run(Names(view, act, following), node, following, event)


# Both


def _run(names: Names, node: Node, unit: Unit, event: Succeeded) -> list[Command] | Machine:
    """Run the next attempt, in place of the one that has ended."""
    if node.input is not None:
        try:
            make = node.make_input
            assert make is not None
            unit["input"] = node.input[1] if node.fixed else make(names)
        except (StepFailure, EvaluationError) as failure:
            m = _in_turns(names, node, unit, event)
            m.agenda.append(entries.attempt_failed(unit["id"], failure))
            return m
    address = names.machine.address(unit)
    given = unit.get("input")
    return [Run(unit["id"], unit["attempt"], node.index, address, None, given, None)]


def _in_turns(names: Names, node: Node, unit: Unit, event: Succeeded) -> Machine:
    """Return the advance for what is left to be done of an event, while the unit does not run."""
    state = names.machine.state
    m = Machine(names.machine.graph, state, None, event)
    state["running"] -= 1
    move(unit, "ready")
    m.changed.update(key for key, _ in node.set)
    return m
