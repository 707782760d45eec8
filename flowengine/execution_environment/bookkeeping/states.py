"""The states of a handle, and the permitted moves between them.

| state | meaning |
|---|---|
| declared | asked for; nothing was started |
| pending_approval | somebody is asked whether it may be started |
| ensuring | it waits for a place, or is being opened |
| ready | it can be used |
| unhealthy | it did not pass a check; nobody gets it any more |
| draining | its holders finish; nobody else gets it |
| releasing | it is being closed |
| released | it is gone |
| failed | it could not be opened, or not be closed: then it is tried again |
"""

from __future__ import annotations

from typing import Literal

State = Literal[
    "declared",
    "pending_approval",
    "ensuring",
    "ready",
    "unhealthy",
    "draining",
    "releasing",
    "released",
    "failed",
]

MOVES: dict[State, frozenset[State]] = {
    "declared": frozenset({"pending_approval", "ensuring", "released"}),
    "pending_approval": frozenset({"ensuring", "declared"}),
    "ensuring": frozenset({"ready", "failed", "releasing"}),
    "ready": frozenset({"unhealthy", "draining", "releasing"}),
    "unhealthy": frozenset({"draining", "releasing"}),
    "draining": frozenset({"releasing"}),
    "releasing": frozenset({"released", "failed"}),
    "released": frozenset(),
    "failed": frozenset({"releasing"}),  # closing is retried
}

OPEN: frozenset[State] = frozenset({"ensuring", "ready", "unhealthy", "draining", "releasing"})
"""States in which processes may be running."""


def check(now: State, then: State) -> None:
    """Reject a move that is missing from the table.

    Args:
        now: The state before.
        then: The state after.

    Raises:
        AssertionError: The move is invalid, which is a bug in the manager.
    """
    if then not in MOVES[now]:
        raise AssertionError(f"an environment cannot go from {now} to {then}")
