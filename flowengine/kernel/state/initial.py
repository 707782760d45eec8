"""The state before the first event, and numbers for records that no event names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.kernel.graph.compiled import FORMAT

if TYPE_CHECKING:
    from flowengine.kernel.state.records import State


def new_state() -> State:
    """Return the state before the first event."""
    return {
        "format": FORMAT,
        "status": "running",
        "now": 0,
        "last": 0,
        "inner": 0,
        "events": 0,
        "inputs": {},
        "execution": {},
        "vars": {},
        "scopes": {},
        "acts": {},
        "units": {},
        "waits": {},
        "timers": {},
        "undos": {},
        "cuts": {},
        "keys": {},
        "layers": {},
        "listening": {},
        "watching": {},
        "kept": {},
        "steps": 0,
        "running": 0,
        "cancelling": "",
        "outputs": None,
        "error": None,
    }


def inner_number(state: State) -> int:
    """Return the next number of a layer, an undo or a cleanup. No event names these."""
    state["inner"] += 1
    return state["inner"]
