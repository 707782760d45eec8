"""Straight rounds: a round of a loop ends, and the next one begins, in one piece.

A loop of a plain task does little between two rounds: it may replace one state key, and it tests
`until`. As in `passing`, the same records and commands follow as when everything takes its turn,
and what is not known here is left alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.kernel.commands import Command, Run
from flowengine.kernel.errors import StepFailure
from flowengine.kernel.expressions.names import Names, evaluate, holds
from flowengine.kernel.flow_state.causality import learn_own
from flowengine.kernel.graph.compiled import EvaluationError
from flowengine.kernel.machine import Machine
from flowengine.kernel.state import entries
from flowengine.kernel.state.moves import move
from flowengine.kernel.steps.attempts import PREPARED
from flowengine.kernel.steps.loops import test_until
from flowengine.kernel.steps.passing import BUSY
from flowengine.kernel.view import View

if TYPE_CHECKING:
    from flowengine.kernel.events import Succeeded
    from flowengine.kernel.graph.compiled import Plain
    from flowengine.kernel.graph.linked import Graph, Node
    from flowengine.kernel.state.records import Activation, Scope, State, Unit

HELD_UP = PREPARED | {"timer", "lock"}
"""What a unit has if more than its writes and `until` follows a round."""


def go_round(graph: Graph, state: State, event: Succeeded) -> list[Command] | Machine | None:
    """Apply the result of a round after which the next one begins, and nothing else happens.

    Args:
        graph: The flow.
        state: Its state, at the time of the event.
        event: The result.

    Returns:
        What is to be done; or, if this was the last round, or an expression has no value, the
        advance in which that is to be handled; None: nothing has changed, more is to be done.
    """
    unit = state["units"].get(event["unit"])
    if unit is None or unit["phase"] != "run" or unit["attempt"] != event["attempt"]:
        return None
    act = state["acts"][unit["act"]]
    node = graph.rounds[act["step"]]
    if node is None or not BUSY.isdisjoint(state) or "reading" in state or state["watching"]:
        return None
    scope = state["scopes"][act["scope"]]
    if scope["unit"] or "final" in act or not act["units"][unit["id"]]:
        return None
    if "max" not in unit or not HELD_UP.isdisjoint(unit):
        return None
    names = Names(View(graph, state), act, unit, None, {"result": event["value"], "outcome": "ok"})
    try:
        output = event["value"] if node.output is None else evaluate(names, node.output)
        assert names.extra is not None
        names.extra["output"] = output
        if node.set and not _write(graph, state, node, names, act, scope):
            return None
    except (StepFailure, EvaluationError):
        return None
    return _go_on(graph, names, node, unit, event, output)


def _write(
    graph: Graph, state: State, node: Node, names: Names, act: Activation, scope: Scope
) -> bool:
    """Replace the state key that a step sets; False: that fails, and nothing has changed."""
    [[key, given]] = node.set
    value = evaluate(names, given)
    cells = state["vars"]
    number = cells[key][1]
    if number > 0 and act.get("knows", {}).get(key) != number:
        return False
    if graph.validate(graph.flows[0].state[key].get("schema") or {}, value) is not None:
        return False
    number = abs(number) + 1
    cells[key] = [value, number]
    learn_own(act, key, number)
    learn_own(scope, key, number)
    return True


def _go_on(
    graph: Graph, names: Names, node: Node, unit: Unit, event: Succeeded, output: Plain
) -> list[Command] | Machine:
    """Begin the next round, or end the loop."""
    assert node.loop is not None
    unit["last"] = output
    unit["tries"] = 0
    names.extra = {"output": output, "outcome": "ok"}
    try:
        is_last = unit["round"] >= unit["max"] or holds(names, node.loop["until"])
    except EvaluationError:
        is_last = True
    if is_last:
        m = _takes_turns(graph, names, node, unit, event)
        test_until(m, unit, output, "ok", None)
        return m
    unit["round"] += 1
    unit["attempt"] += 1
    unit["tries"] = 1
    names.extra = None
    if node.make_input is not None:
        try:
            unit["input"] = node.make_input(names)
        except (StepFailure, EvaluationError) as failure:
            m = _takes_turns(graph, names, node, unit, event)
            m.agenda.append(entries.attempt_failed(unit["id"], failure))
            return m
    address = names.machine.address(unit)
    given = unit.get("input")
    return [Run(unit["id"], unit["attempt"], node.index, address, None, given, None)]


def _takes_turns(graph: Graph, names: Names, node: Node, unit: Unit, event: Succeeded) -> Machine:
    """Return the advance for what is left to be done of an event, after its attempt has ended."""
    state = names.machine.state
    m = Machine(graph, state, None, event)
    state["running"] -= 1
    move(unit, "ready")
    m.changed.update(key for key, _ in node.set)
    return m
