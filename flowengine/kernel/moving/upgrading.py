"""What follows when an execution continues under another form of its flow (docs/upgrading.md).

The state is moved, and then looked at as a whole: joins that nobody can reach any more under the
new graph act, conditions that hold under it are seen, bounds of time are those it says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.kernel.commands import OpenWait
from flowengine.kernel.limits import budgets
from flowengine.kernel.machine import Machine
from flowengine.kernel.moving.budgets import declare_anew, declared
from flowengine.kernel.moving.move import move, set_keys
from flowengine.kernel.notation.times import parse_duration, parse_time
from flowengine.kernel.waiting import call_questions, listeners, permissions, waits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flowengine.kernel.graph.linked import Graph


def upgrade(m: Machine, before: Graph, mapping: Mapping[str, Any]) -> None:
    """Let an execution go on under another form of its flow.

    Args:
        m: The advance at work, with the flow that the execution runs from now on; `obstacles` finds
            nothing against it.
        before: The flow that it ran.
        mapping: What is called otherwise now.
    """
    state = m.state
    records = {number: wait["record"] for number, wait in state["waits"].items()}
    duration = before.flows[0].limits.get("duration")
    bounds = declared(before, state)
    moved: Any = move(before, m.graph, state, mapping)
    whole: Any = state
    whole.clear()
    whole.update(moved)
    if m.graph.timed:
        budgets.skip(state, m.now - m.stood)  # who runs an execution cannot move it
    _set_duration(m, duration)
    declare_anew(m, bounds)
    set_keys(m)
    for number, wait in state["waits"].items():
        if wait["shown"] and wait["record"] != records[number]:
            m.commands.append(OpenWait(dict(wait["record"])))
        if wait["unit"] in state["units"]:
            waits.watch_again(m, wait)
    for number, act in state["acts"].items():
        spec = m.node(act).map
        if spec is not None and "need" in act:
            listeners.watch(m, number, m.watched(act, spec.get("watches", ())))
    for unit in list(state["units"].values()):
        if unit["phase"] == "asked":
            permissions.look_again(m, unit)
        elif "shown" in unit:
            call_questions.forget(m, unit)  # what it is given may be something else from now on
    listeners.wake_all(m)
    for number in state["scopes"]:
        m.touch(number)


def _set_duration(m: Machine, before: str | None) -> None:
    """Bound the whole execution by what its flow says now."""
    limit = m.graph.flows[0].limits.get("duration")
    if limit == before:
        return
    root = m.root()["id"]
    for number, timer in list(m.state["timers"].items()):
        if timer["why"] == "duration" and timer["ref"] == root:
            m.clear_timer(number)
    if limit is not None:
        due = parse_time(m.state["execution"]["started_at"]) + parse_duration(limit)
        m.set_timer_at(due, "duration", root)
