"""Lock cycles across executions that wait for each other's locks.

Within an execution the kernel detects a cycle before it closes (`LockCycle`). Across executions
each only has its own state, so a cycle is detected when a user asks why an execution makes no
progress.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.kernel.view import View, is_shared

if TYPE_CHECKING:
    from flowengine.engines.host import Host
    from flowengine.journal.records import Claimed


def circle(host: Host, execution: str, unit: int, lock: str) -> list[str]:
    """Return the executions that prevent a lock from ever becoming free for a waiting unit.

    Args:
        host: Provides the store.
        execution: Id of the waiting execution.
        unit: The waiting unit.
        lock: Name of the lock.

    Returns:
        Ids of the other executions, nearest first. Empty: the lock may become free.
    """
    found = _Circle(host, execution, unit)
    return list(found.others) if found.closes(lock) else []


class _Circle:
    def __init__(self, host: Host, execution: str, unit: int) -> None:
        self._host = host
        self._execution = execution
        self._views: dict[str, View] = {}
        self._mine = self._outer(execution, unit)
        self._seen: set[str] = set()
        self.others: dict[str, bool] = {}

    def closes(self, lock: str) -> bool:
        """Return whether all holders of a lock wait, directly or not, for the first unit."""
        if lock in self._seen or not self._mine:
            return False
        self._seen.add(lock)
        holders = [claim for claim in self._host.store.claims(lock) if claim.held]
        return bool(holders) and all(map(self._waits_for_mine, holders))

    def _waits_for_mine(self, holder: Claimed) -> bool:
        if holder.execution == self._execution and holder.unit in self._mine:
            return True
        if holder.execution != self._execution:
            self.others[holder.execution] = True
        waiting = self._view(holder.execution).state.get("claims", {})
        return any(
            holder.unit in self._outer(holder.execution, unit) and self.closes(lock)
            for unit, lock in waiting.items()
            if unit
        )

    def _outer(self, execution: str, unit: int) -> set[int]:
        """Return the enclosing units that hold locks shared between executions."""
        view = self._view(execution)
        act = view.act_of(view.state["units"][unit])
        return {
            outer["id"]
            for outer in view.enclosing(act)
            if outer.get("has_lock") and is_shared(outer["lock"])
        }

    def _view(self, execution: str) -> View:
        if execution not in self._views:
            stored = self._host.stored(execution, 0)
            self._views[execution] = View(stored.linked.graph, stored.state)
        return self._views[execution]
