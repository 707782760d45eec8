"""The shapes of states and kinds of steps, in a square of 16 by 16."""

from __future__ import annotations

from collections.abc import Mapping

ICONS: Mapping[str, str] = {
    "ok": '<circle cx="8" cy="8" r="6.2"/><path d="M5.3 8.2l1.9 1.9 3.6-4"/>',
    "bad": '<circle cx="8" cy="8" r="6.2"/><path d="M5.9 5.9l4.2 4.2M10.1 5.9l-4.2 4.2"/>',
    "run": '<circle cx="8" cy="8" r="6.2" opacity=".3"/><path d="M8 1.8A6.2 6.2 0 0 1 14.2 8"/>',
    "you": '<circle cx="8" cy="5.4" r="2.7"/>'
    '<path d="M2.8 14c.5-3 2.5-4.5 5.2-4.5s4.7 1.5 5.2 4.5"/>',
    "idle": '<circle cx="8" cy="8" r="6.2"/><path d="M8 4.6V8l2.4 1.5"/>',
    "none": '<circle cx="8" cy="8" r="6.2" stroke-dasharray="2.4 2.4"/>',
    "stop": '<circle cx="8" cy="8" r="6.2"/><path d="M3.8 12.2l8.4-8.4"/>',
    "ways": '<path d="M8 2v3M8 5L3.5 9.5V13M8 5l4.5 4.5V13"/>',
}
"""Look of a state → its shape."""
_STATES = {
    "ok": ("succeeded", "done", "open"),
    "bad": (
        "failed", "interrupted", "stalled", "uncertain", "refused", "rejected", "expired", "lost",
    ),
    "run": ("running", "recorded"),
    "idle": ("waiting", "paused"),
    "stop": ("cancelled", "skipped", "withdrawn"),
}  # fmt: skip
"""Look → the states of executions, steps and environments that have it."""
_LOOKS = {state: look for look, states in _STATES.items() for state in states}


def look_of(state: str | None) -> str:
    """Return the look of a state: `none` before it has begun."""
    return _LOOKS.get(state or "", "none")
