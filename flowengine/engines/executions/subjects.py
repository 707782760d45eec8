"""The subject of an event: its unit, address and timer, and its counterpart in another state."""

from __future__ import annotations

from typing import Any

from flowengine.kernel import Graph
from flowengine.kernel.state.records import State, Wait
from flowengine.kernel.view import View


def subject_of(state: State, event: Any) -> Any:
    """Return the subject of a decision, as it was shown. None: it is another event."""
    wait = state["waits"].get(event["wait"]) if event["type"] == "decided" else None
    return None if wait is None else wait["record"].get("subject")


def why_of(state: State, event: Any) -> str | None:
    """Return the reason of an event's timer, given the state before the event."""
    timer = state["timers"].get(event["timer"]) if event["type"] == "timer" else None
    return None if timer is None else str(timer["why"])


def unit_of(state: State, event: Any) -> int | None:
    """Return the unit that an event is about, given the state before the event."""
    number: Any = event.get("unit")
    if "wait" in event and event["wait"] in state["waits"]:
        number = _waiting(state["waits"][event["wait"]])
    elif "timer" in event and event["timer"] in state["timers"]:
        timer = state["timers"][event["timer"]]
        number = timer["ref"]
        if number in state["waits"]:
            number = _waiting(state["waits"][number])
    return number if number in state["units"] else None


def _waiting(wait: Wait) -> int:
    """Return the oldest unit that waits for an answer. 0: none."""
    return next(iter(wait.get("units", ())), wait["unit"])


def address_of(graph: Graph, state: State, event: Any) -> str | None:
    """Return the address of an event's subject, given the state before the event."""
    unit = unit_of(state, event)
    if unit is not None:
        return View(graph, state).address(state["units"][unit])
    if "wait" in event and event["wait"] in state["waits"]:
        return str(state["waits"][event["wait"]]["record"]["address"])
    return None
