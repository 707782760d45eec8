"""Who may run beside whom: shared and exclusive turns, bounded, first come, first served."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass, field


@dataclass(eq=False)
class Place:
    """A place in the queue."""

    tool: str
    exclusive: bool
    limit: int | None
    """Of calls of this tool at once."""
    granted: Future[None] = field(default_factory=Future)


class Turns:
    """Grants turns to calls of one environment, on any loop and thread.

    A call whose tool does not support parallel execution runs alone. Nobody overtakes, with one
    exception: what only waits for a place of its own tool does not hold up the other tools.

    Args:
        limit: How many calls run at once.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._waiting: list[Place] = []
        self._running: set[Place] = set()
        self._of_tool: Counter[str] = Counter()

    def queue(self, tool: str, *, exclusive: bool, limit: int | None = None) -> Place:
        """Queue up for a turn. Whoever does so gives the place back in any case.

        Args:
            tool: Name of the tool.
            exclusive: Whether nothing may run beside it.
            limit: How many calls of this tool run at once.

        Returns:
            A place; its future `granted` is done when it has the turn.
        """
        place = Place(tool, exclusive, limit)
        with self._lock:
            self._waiting.append(place)
            self._grant()
        return place

    def give_back(self, place: Place) -> None:
        """End a turn, or leave the queue."""
        with self._lock:
            if place in self._running:
                self._running.remove(place)
                self._of_tool[place.tool] -= 1
            elif place in self._waiting:
                self._waiting.remove(place)
            self._grant()

    def _grant(self) -> None:
        kept: list[Place] = []
        for at, place in enumerate(self._waiting):
            if not self._fits(place):
                kept += self._waiting[at:]
                break
            if self._is_full(place):
                kept.append(place)
                continue
            self._running.add(place)
            self._of_tool[place.tool] += 1
            if place.granted.set_running_or_notify_cancel():
                place.granted.set_result(None)
        self._waiting = kept

    def _fits(self, place: Place) -> bool:
        if place.exclusive:
            return not self._running
        alone = any(running.exclusive for running in self._running)
        return not alone and len(self._running) < self._limit

    def _is_full(self, place: Place) -> bool:
        return place.limit is not None and self._of_tool[place.tool] >= place.limit
