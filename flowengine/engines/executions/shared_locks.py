"""Locks that executions share: conversion of commands into claims of the store.

See docs/language.md: lock, Budgets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.journal.encoding import pack
from flowengine.journal.records import LockOperation as StoredClaim
from flowengine.kernel.commands import Claim, GiveBack
from flowengine.kernel.view import is_shared

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flowengine.kernel import Graph
    from flowengine.kernel.state.records import State


def claim_of(execution: str, command: Claim | GiveBack, now: int) -> StoredClaim:
    """Return a command as a claim for the store, with the events that follow from it.

    Args:
        execution: Id of the execution that claims.
        command: The kernel's command.
        now: The time (ms).

    Returns:
        The claim.
    """
    if isinstance(command, GiveBack):
        return StoredClaim(command.lock, command.unit, then="give")
    granted = {"type": "granted", "at": now, "lock": command.lock, "unit": command.unit}
    cancel = b""
    if command.then == "cancel":
        reason = f"execution {execution} of the same flow took its place (concurrency)"
        by = f"execution:{execution}"
        cancel = pack({"type": "cancel", "at": now, "reason": reason, "by": by, "now": False})
    then: Any = command.then
    return StoredClaim(command.lock, command.unit, command.permits, then, pack(granted), cancel)


def claims_in(execution: str, graph: Graph, state: State) -> Iterator[StoredClaim]:
    """Yield the claims that an execution needs to continue from a state, in a retry or a fork.

    Locks held in that state must be free, otherwise it cannot continue. Locks that it waited for
    are queued for again.

    Args:
        execution: Its id.
        graph: Its flow.
        state: The state.

    Yields:
        Claims.
    """
    wanted = []
    waiting = state.get("claims", {})
    if "bound" in state:
        name, most, then = state["bound"]
        wanted.append(Claim(name, 0, most, _again(then, 0 in waiting)))
    for number, unit in state["units"].items():
        if is_shared(unit.get("lock", "0")):
            lock = graph.node(state["acts"][unit["act"]]["step"]).lock
            permits = 1 if lock is None else lock.get("permits", 1)
            how = _again("reject", number in waiting)
            wanted.append(Claim(unit["lock"], number, permits, how))
    yield from (claim_of(execution, claim, state["now"]) for claim in wanted)


def _again(then: str, waits: bool) -> str:
    """Return the mode in which a lock is claimed again."""
    return "queue" if waits else "cancel" if then == "cancel" else "reject"
