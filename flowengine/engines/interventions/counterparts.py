"""The subject of an event, and its counterpart in another state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from flowengine.kernel import Graph
from flowengine.kernel.state.records import State
from flowengine.kernel.view import View


class EventSubject(NamedTuple):
    """The subject of an event, in a form that can be found in another state."""

    kind: str
    """`unit`, `cut`, `wait` or `timer`. `late`: a subject that was already closed."""
    number: int
    key: tuple[Any, ...]
    address: str
    once: bool
    """Whether it is the success of a step with effect `once`."""


def about(graph: Graph, state: State, event: Any) -> EventSubject | None:
    """Return the subject of an event, given the state before. None: the execution as a whole."""
    m = View(graph, state)
    if "wait" in event:
        wait = state["waits"].get(event["wait"])
        if wait is None:
            return EventSubject("late", event["wait"], (), "", False)
        address = str(wait["record"]["address"])
        return EventSubject("wait", event["wait"], (wait["kind"], address), address, False)
    if "timer" in event:
        timer = state["timers"].get(event["timer"])
        if timer is None:
            return EventSubject("late", event["timer"], (), "", False)
        address = _address_of_timer(m, timer)
        key = (timer["why"], timer["arg"], address)
        return EventSubject("timer", event["timer"], key, address, False)
    number = event.get("unit")
    if event["type"] == "retry" or not number:
        return None
    if number in state["units"]:
        unit = state["units"][number]
        act = m.act_of(unit)
        address = m.address(unit)
        if unit["phase"] == "run" and event.get("attempt", unit["attempt"]) != unit["attempt"]:
            return EventSubject("late", number, (), "", False)
        once = m.node(act).effect == "once" and event["type"] == "succeeded"
        return EventSubject("unit", number, (address, act["line"]), address, once)
    if number in state["cuts"]:
        cut = state["cuts"][number]
        return EventSubject("cut", number, (cut["address"],), cut["address"], False)
    return EventSubject("late", number, (), "", False)


def _address_of_timer(m: View, timer: Any) -> str:
    state, ref = m.state, timer["ref"]
    if timer["why"] in ("timeout", "pause") and ref in state["units"]:
        return m.address(state["units"][ref])
    if timer["why"] == "deadline":
        return m.step_address(state["acts"][ref])
    if ref in state["waits"]:
        return str(state["waits"][ref]["record"]["address"])
    return state["scopes"][ref]["path"].rstrip("/") if ref in state["scopes"] else ""


def counterpart(graph: Graph, state: State, subject: EventSubject, event: Any) -> int | None:
    """Return the number of an event's subject in another state. None: it does not exist there."""
    key = "unit" if subject.kind == "cut" else subject.kind
    there = about(graph, state, event)
    if there is not None and (there.kind, there.key) == (subject.kind, subject.key):
        return subject.number
    tables: dict[str, Mapping[int, Any]] = {
        "unit": state["units"], "cut": state["cuts"], "wait": state["waits"],
        "timer": state["timers"],
    }  # fmt: skip
    for number in tables[subject.kind]:
        there = about(graph, state, {**event, key: number})
        if there is not None and (there.kind, there.key) == (subject.kind, subject.key):
            return number
    return None


def running(graph: Graph, state: State) -> dict[int, tuple[str, int]]:
    """Return the units with a running attempt: number → address and attempt."""
    view, units = View(graph, state), state["units"].items()
    return {n: (view.address(unit), unit["attempt"]) for n, unit in units if unit["phase"] == "run"}
