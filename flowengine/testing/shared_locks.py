"""Shared locks, granted as by a store, for one simulated execution."""

from __future__ import annotations

from collections.abc import Iterator

from flowengine.kernel.commands import Claim, GiveBack
from flowengine.kernel.state.records import State
from flowengine.kernel.view import is_shared


class SharedLocks:
    """The open claims of each lock, which is granted in the order of the claims.

    Attributes:
        claims: Lock → its open claims, in order.
    """

    def __init__(self) -> None:
        self.claims: dict[str, list[Claim]] = {}
        self._told: dict[tuple[str, int], bool] = {}
        """(lock, unit that holds it) → whether the unit has been notified."""

    def note(self, command: Claim | GiveBack) -> None:
        """Record a claim, or the end of one."""
        queue = self.claims.setdefault(command.lock, [])
        if isinstance(command, Claim):
            queue.append(command)
        else:
            queue[:] = [claim for claim in queue if claim.unit != command.unit]
            self._told.pop((command.lock, command.unit), None)
        for claim in queue[: queue[0].permits if queue else 0]:
            self._told.setdefault((claim.lock, claim.unit), False)
        if not queue:
            del self.claims[command.lock]

    def untold(self) -> Iterator[tuple[str, int]]:
        """Yield each lock that a unit holds without having been notified."""
        return (held for held, is_reported in self._told.items() if not is_reported)

    def tell(self, lock: str, unit: int) -> None:
        """Record that a unit was notified of its lock."""
        self._told[lock, unit] = True

    def claim_again(self, state: State) -> None:
        """Claim the locks of the state, without competitors."""
        waiting = state.get("claims", {})
        claims = [Claim(u["lock"], n, 1, "queue") for n, u in state["units"].items()
                  if is_shared(u.get("lock", "0"))]  # fmt: skip
        if "bound" in state:
            claims.append(Claim(state["bound"][0], 0, state["bound"][1], "queue"))
        self._told.clear()
        for claim in sorted(claims, key=lambda claim: claim.unit in waiting):
            self.note(claim)
            if claim.unit not in waiting:
                self.tell(claim.lock, claim.unit)
