"""Locks that executions share: the claims on each, in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from flowengine.journal.memory.messages import MemoryMessages
from flowengine.journal.records import Claimed, LockOperation


class KeptClaim(NamedTuple):
    """A claim on a lock, in order."""

    number: int
    claimed: Claimed
    permits: int
    granted: bytes
    ending: bool = False
    """Whether its execution has ended, and is about to release it."""


class Claims:
    """Grants locks, first come, first served.

    Args:
        messages: Notifies executions that a lock was granted, or that they must be cancelled.
    """

    def __init__(self, messages: MemoryMessages) -> None:
        self._messages = messages
        self._queues: dict[str, list[KeptClaim]] = {}
        self._claimed = 0

    def of(self, lock: str) -> list[Claimed]:
        """Return the claims on a lock, in order."""
        return [kept.claimed for kept in self._queues.get(lock, ())]

    def all(self) -> list[tuple[str, list[KeptClaim]]]:
        """Return the claims on each lock, in order."""
        return [*self._queues.items()]

    def restore(self, queues: Sequence[tuple[str, list[KeptClaim]]]) -> None:
        """Replace all claims by those that `all` returned."""
        self._queues = dict(queues)
        self._claimed = max((kept.number for _, queue in queues for kept in queue), default=0)

    def rejected_by(
        self, execution: str, claims: Sequence[LockOperation]
    ) -> tuple[str, str] | None:
        """Return the first lock that refuses a claim, and the execution that holds it."""
        for claim in claims:
            others = self._others(claim.lock, execution)
            own = [kept for kept in self._queues.get(claim.lock, ()) if kept not in others]
            if any(kept.claimed.unit == claim.unit for kept in own):
                continue
            wanted = [item.then for item in claims if item.lock == claim.lock].count("reject")
            if claim.then == "reject" and len(others) + wanted > claim.permits:
                return claim.lock, others[0].claimed.execution
        return None

    def _others(self, lock: str, execution: str) -> list[KeptClaim]:
        return [kept for kept in self._queues.get(lock, ()) if kept.claimed.execution != execution]

    def write(self, execution: str, claim: LockOperation, at: int) -> None:
        """Make or release a claim."""
        queue = self._queues.setdefault(claim.lock, [])
        own = [kept for kept in queue if kept.claimed[:2] == (execution, claim.unit)]
        if claim.then == "give":
            self._queues[claim.lock] = [kept for kept in queue if kept not in own]
        elif not own:
            self._claimed += 1
            claimed = Claimed(execution, claim.unit, at, False)
            queue.append(KeptClaim(self._claimed, claimed, claim.permits, claim.granted))
            if claim.then == "cancel":
                others = [
                    other for other in self._others(claim.lock, execution) if not other.ending
                ]
                for kept in others[: max(len(others) - claim.permits + 1, 0)]:
                    self._tell(kept, "cancel", claim.cancel, at)
        self._grant(claim.lock, at)

    def end(self, execution: str, at: int, *, is_driven: bool = False) -> None:
        """Release the claims of an execution that has ended.

        Args:
            execution: Its id.
            at: When it ended (ms).
            is_driven: Whether its attempts may still be at work. It then keeps its granted claims.
        """
        for lock, queue in list(self._queues.items()):
            left: list[KeptClaim] = []
            for kept in queue:
                is_own = kept.claimed.execution == execution
                if not is_own or (is_driven and kept.claimed.held):
                    left.append(kept._replace(ending=True) if is_own else kept)
            if left != queue:
                self._queues[lock] = left
                self._grant(lock, at)

    def has(self, execution: str) -> bool:
        """Return whether an execution has any claim."""
        return any(kept.claimed.execution == execution for q in self._queues.values() for kept in q)

    def _grant(self, lock: str, at: int) -> None:
        queue = self._queues[lock]
        for index, kept in enumerate(queue):
            if kept.claimed.held:
                continue
            if sum(item.claimed.held for item in queue) >= kept.permits:
                break
            queue[index] = kept._replace(claimed=kept.claimed._replace(held=True))
            self._tell(kept, "granted", kept.granted, at)
        if not queue:
            del self._queues[lock]

    def _tell(self, kept: KeptClaim, message_id: str, event: bytes, at: int) -> None:
        address = ("claim", str(kept.number))
        if self._messages.sent_before(address, message_id) is None:
            self._messages.deliver(address, message_id, kept.claimed.execution, at, event)
