"""The states of an environment's opening, and the permitted moves between them.

`Books.move` is the only function that changes a state. It checks each move here, and reports it.

| state | meaning |
|---|---|
| declared | requested. Nothing was started |
| ensuring | it waits for a place, or is being opened |
| ready | it can be used |
| unhealthy | it failed a check, so new callers get another one |
| draining | its holders may finish, and new callers get another one |
| releasing | it is being closed |
| released | it was closed |
| failed | it could not be opened, or could not be closed, which is then tried again |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

State = Literal[
    "declared",
    "ensuring",
    "ready",
    "unhealthy",
    "draining",
    "releasing",
    "released",
    "failed",
]

MOVES: Mapping[State, Mapping[State, str]] = {
    "declared": {"ensuring": "its earlier openings have ended"},
    "ensuring": {
        "ready": "it is open",
        "failed": "it could not be opened",
        "releasing": "the opening is cancelled",
    },
    "ready": {
        "unhealthy": "it failed a check",
        "draining": "it is too old and has holders",
        "releasing": "its last hold was released, its time without holders is over, or its scope "
        "ends",
    },
    "unhealthy": {
        "draining": "other callers hold it",
        "releasing": "no other caller holds it",
    },
    "draining": {"releasing": "its last hold was released, or its time is over"},
    "releasing": {"released": "it is closed", "failed": "it could not be closed"},
    "released": {},
    "failed": {"releasing": "closing it is tried again"},
}
"""By state, the next states and when they follow."""

OPENING: frozenset[State] = frozenset({"declared", "ensuring"})
"""States in which callers can wait for it."""
CLOSABLE: frozenset[State] = frozenset({"ready", "unhealthy", "draining"})
"""States in which its resource can be used by its holders, and closed."""
