"""The timers of an execution: which are set, which is due next, which are worth staying for."""

from __future__ import annotations

from heapq import heappop, heappush

from flowengine.kernel.commands import SetTimer

MOVES_NOTHING = frozenset({"remind", "escalate"})
"""Reasons of recurring timers, for which no process stays."""


class Timers:
    """The timers of one execution."""

    __slots__ = ("_heap", "_pauses", "_set")

    def __init__(self) -> None:
        self._set: dict[int, SetTimer] = {}
        self._pauses: set[int] = set()
        self._heap: list[tuple[int, int]] = []
        """(due, number) of each. A cleared timer stays in the heap until it reaches the top."""

    def set(self, timer: SetTimer) -> None:
        """Set a timer."""
        self._set[timer.timer] = timer
        if timer.why == "pause":
            self._pauses.add(timer.timer)
        heappush(self._heap, (timer.due, timer.timer))

    def clear(self, number: int) -> bool:
        """Clear an obsolete or fired timer, and return whether it was set."""
        self._pauses.discard(number)
        return self._set.pop(number, None) is not None

    def clear_all(self) -> None:
        """Clear all timers."""
        self._set.clear()
        self._pauses.clear()
        self._heap.clear()

    def next(self) -> int | None:
        """Return when the next timer is due (ms), or None."""
        heap = self._heap
        while heap and heap[0][1] not in self._set:
            heappop(heap)
        return heap[0][0] if heap else None

    def next_number(self) -> int:
        """Return the number of the next timer. There must be one."""
        self.next()
        return self._heap[0][1]

    def due(self, now: int) -> list[tuple[int, int]]:
        """Return (due, number) of the due timers, ordered by time. Each is returned only once."""
        found = []
        while (due := self.next()) is not None and due <= now:
            found.append(heappop(self._heap))
        return found

    def stays(self, until: int) -> bool:
        """Return whether to stay for a timer: a pause, or a timer due by `until`."""
        first = self.next()
        if self._pauses or first is None or first > until:
            return bool(self._pauses)
        return any(
            timer.due <= until and timer.why not in MOVES_NOTHING for timer in self._set.values()
        )
