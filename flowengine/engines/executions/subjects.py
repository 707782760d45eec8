"""What an event is about: its unit, its address, why its timer was set."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from flowengine.kernel.view import View

if TYPE_CHECKING:
    from flowengine.kernel import Graph
    from flowengine.kernel.state.records import State, Wait


_SIGNS = re.compile(r"[\[@]")


def why_of(state: State, event: Any) -> str | None:
    """Return why the timer was set that an event is about, as things stand before the event."""
    timer = state["timers"].get(event["timer"]) if event["type"] == "timer" else None
    return None if timer is None else str(timer["why"])


def unit_of(state: State, event: Any) -> int | None:
    """Return the unit that an event is about, as things stand before the event."""
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
    """Return the unit that waits, of several that wait for one answer the oldest; 0: none."""
    return next(iter(wait.get("units", ())), wait["unit"])


def address_of(graph: Graph, state: State, event: Any) -> str | None:
    """Return the address of what an event is about, as things stand before the event."""
    unit = unit_of(state, event)
    if unit is not None:
        return View(graph, state).address(state["units"][unit])
    if "wait" in event and event["wait"] in state["waits"]:
        return str(state["waits"][event["wait"]]["record"]["address"])
    return None


def wholes(address: str) -> list[str]:
    """Return the maps and loops that an address may be an item or a round of.

    Args:
        address: Of an activation: `each[3]`, `poll@2`.
    """
    return [address[: sign.start()] for sign in _SIGNS.finditer(address)]
