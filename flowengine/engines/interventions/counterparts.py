"""What an event is about, identified by address, and where that is in another state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine.kernel.view import View

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flowengine.kernel import Graph
    from flowengine.kernel.state.records import State


class About(NamedTuple):
    """What an event is about, in a form that can be found in another state."""

    kind: str
    """`unit`, `wait` or `timer`; or `late`: a unit or other thing that was not open any more."""
    number: int
    key: tuple[Any, ...]
    address: str
    once: bool
    """It is about a step of effect `once`."""


def about(graph: Graph, state: State, event: Any) -> About | None:
    """Return what an event is about, in the state before it; None: the execution as a whole."""
    m = View(graph, state)
    if "wait" in event:
        wait = state["waits"].get(event["wait"])
        if wait is None:
            return About("late", event["wait"], (), "", False)
        address = str(wait["record"]["address"])
        return About("wait", event["wait"], (wait["kind"], address), address, False)
    if "timer" in event:
        timer = state["timers"].get(event["timer"])
        if timer is None:
            return About("late", event["timer"], (), "", False)
        address = _address_of_timer(m, timer)
        key = (timer["why"], timer["arg"], address)
        return About("timer", event["timer"], key, address, False)
    number = event.get("unit")
    if event["type"] == "retry" or not number:
        return None
    if number in state["units"]:
        unit = state["units"][number]
        act = m.act_of(unit)
        address = m.address(unit)
        if unit["phase"] == "run" and event.get("attempt", unit["attempt"]) != unit["attempt"]:
            return About("late", number, (), "", False)
        once = m.node(act).effect == "once" and event["type"] == "succeeded"
        return About("unit", number, (address, act["line"]), address, once)
    if number in state["cuts"]:
        cut = state["cuts"][number]
        return About("cut", number, (cut["address"],), cut["address"], False)
    return About("late", number, (), "", False)


def _address_of_timer(m: View, timer: Any) -> str:
    state, ref = m.state, timer["ref"]
    if timer["why"] in ("timeout", "pause") and ref in state["units"]:
        return m.address(state["units"][ref])
    if timer["why"] == "deadline":
        return m.step_address(state["acts"][ref])
    if ref in state["waits"]:
        return str(state["waits"][ref]["record"]["address"])
    return state["scopes"][ref]["path"].rstrip("/") if ref in state["scopes"] else ""


def counterpart(graph: Graph, state: State, one: About, event: Any) -> int | None:
    """Return the number in another state of what an event is about; None: it is not there."""
    key = {"unit": "unit", "cut": "unit"}.get(one.kind, one.kind)
    there = about(graph, state, event)
    if there is not None and (there.kind, there.key) == (one.kind, one.key):
        return one.number
    tables: dict[str, Mapping[int, Any]] = {
        "unit": state["units"], "cut": state["cuts"], "wait": state["waits"],
        "timer": state["timers"],
    }  # fmt: skip
    for number in tables[one.kind]:
        there = about(graph, state, {**event, key: number})
        if there is not None and (there.kind, there.key) == (one.kind, one.key):
            return number
    return None
