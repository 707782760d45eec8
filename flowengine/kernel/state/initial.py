"""The state before the first event."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flowengine.kernel.state.records import State


def new_state() -> State:
    """Return the state before the first event."""
    return {
        "format": 1,
        "status": "running",
        "now": 0,
        "last": 0,
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
