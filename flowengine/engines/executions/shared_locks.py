"""Locks that executions share: from commands to what the store is told.

See docs/language.md: lock, Budgets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.journal.encoding import pack
from flowengine.journal.records import Claim as StoredClaim
from flowengine.kernel.commands import Claim, GiveBack
from flowengine.kernel.view import is_shared

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flowengine.kernel import Graph
    from flowengine.kernel.state.records import State


def claim_of(execution: str, command: Claim | GiveBack, now: int) -> StoredClaim:
    """Return what the store is told of a claim, with the events that follow from it.

    Args:
        execution: Id of the execution that claims.
        command: Of the kernel.
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
    """Yield what an execution has to claim to go on from a state: a retry, or a fork.

    What was held there must be free, or nothing goes on; what was waited for is waited for again.

    Args:
        execution: Its id.
        graph: Its flow.

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
    """Return how a lock is claimed again."""
    return "queue" if waits else "cancel" if then == "cancel" else "reject"
