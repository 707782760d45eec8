"""Circles of locks over executions: who waits for what another one gives back only after it.

Within an execution the kernel finds a circle before it closes (`LockCycle`). Over executions each
knows its own part only, so a circle is found by whoever asks why an execution does not move.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.kernel.view import View, is_shared

if TYPE_CHECKING:
    from flowengine.engines.host import Host
    from flowengine.journal.records import Claimed


def circle(host: Host, execution: str, unit: int, lock: str) -> list[str]:
    """Return the executions because of which a lock can never come free for who waits for it.

    Args:
        execution: Id of the execution that waits.
        unit: Which of its units does.
        lock: Name of the lock.

    Returns:
        Ids of the other executions, nearest first; empty: it may come free.
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
        """Return whether all who hold a lock wait, in the end, for what the first one holds."""
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
        """Return the units around one that hold locks which executions share."""
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
