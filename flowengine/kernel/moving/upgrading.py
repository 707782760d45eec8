"""What follows when an execution goes on under another form of its flow (language reference, §13).

The state is moved, and then looked at as a whole: joins that nobody can reach any more under the
new graph act, conditions that hold under it are seen, bounds of time are those it says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.kernel.advance import settle
from flowengine.kernel.commands import Command, Observation, OpenWait
from flowengine.kernel.limits import budgets
from flowengine.kernel.machine import Machine
from flowengine.kernel.moving.budgets import declare_anew, declared
from flowengine.kernel.moving.move import move, set_keys
from flowengine.kernel.notation.times import parse_duration, parse_time
from flowengine.kernel.waiting import environment_questions, listeners, waits

if TYPE_CHECKING:
    from flowengine.kernel.events import Upgraded
    from flowengine.kernel.graph.linked import Graph
    from flowengine.kernel.state.records import State


def upgrade(
    old: Graph,
    new: Graph,
    state: State,
    event: Upgraded,
    observe: list[Observation] | None = None,
) -> list[Command]:
    """Apply the event by which an execution goes on under another form of its flow.

    Args:
        old: The flow that it ran.
        new: The flow that it runs from now on; `obstacles` finds nothing against it.
        state: Its state; changed in place.
        event: Says what is called otherwise now.
        observe: As for `advance`.

    Returns:
        What is to be done now, in order.
    """
    records = {number: wait["record"] for number, wait in state["waits"].items()}
    duration = old.flows[0].limits.get("duration")
    bounds = declared(old, state)
    moved: Any = move(old, new, state, event["mapping"])
    whole: Any = state
    whole.clear()
    whole.update(moved)
    state["events"] += 1
    before, state["now"] = state["now"], max(state["now"], event["at"])
    if new.timed:
        budgets.skip(state, before)  # who runs an execution cannot move it
    m = Machine(new, state, observe, event)
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
    for unit in [unit for unit in state["units"].values() if unit["phase"] == "asked"]:
        environment_questions.look_again(m, unit)
    listeners.wake_all(m)
    for number in state["scopes"]:
        m.touch(number)
    return settle(m, event)


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
