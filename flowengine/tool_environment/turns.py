"""Turns of concurrent calls: shared and exclusive, limited in number, first come, first served."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(eq=False)
class QueuedCall:
    """A call that waits for its turn, or has it."""

    tool: str
    exclusive: bool
    limit: int | None
    """Maximum concurrent calls of this tool."""
    granted: Future[None] = field(default_factory=Future)


class Turns:
    """Grants turns to calls of one environment, on any loop and thread.

    A call whose tool does not support parallel execution runs alone. Turns are granted in order,
    with one exception: a call that only waits for the
    limit of its tool does not delay other tools.

    Args:
        limit: Maximum concurrent calls.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._waiting: list[QueuedCall] = []
        self._running: set[QueuedCall] = set()
        self._of_tool: Counter[str] = Counter()

    @contextmanager
    def queue(
        self, tool: str = "", *, exclusive: bool = True, limit: int | None = None
    ) -> Iterator[Future[None]]:
        """Queue up for a turn, which ends with the block.

        Args:
            tool: Name of the tool.
            exclusive: Whether no other call may run concurrently.
            limit: Maximum concurrent calls of this tool.

        Yields:
            A future that is done when it is the caller's turn.
        """
        queued = QueuedCall(tool, exclusive, limit)
        with self._lock:
            self._waiting.append(queued)
            self._grant()
        try:
            yield queued.granted
        finally:
            with self._lock:
                if queued in self._running:
                    self._running.remove(queued)
                    self._of_tool[queued.tool] -= 1
                else:
                    self._waiting.remove(queued)
                self._grant()

    def _grant(self) -> None:
        kept: list[QueuedCall] = []
        for at, queued in enumerate(self._waiting):
            if not self._fits(queued):
                kept += self._waiting[at:]
                break
            if self._is_full(queued):
                kept.append(queued)
                continue
            self._running.add(queued)
            self._of_tool[queued.tool] += 1
            if queued.granted.set_running_or_notify_cancel():
                queued.granted.set_result(None)
        self._waiting = kept

    def _fits(self, queued: QueuedCall) -> bool:
        if queued.exclusive:
            return not self._running
        alone = any(running.exclusive for running in self._running)
        return not alone and len(self._running) < self._limit

    def _is_full(self, queued: QueuedCall) -> bool:
        return queued.limit is not None and self._of_tool[queued.tool] >= queued.limit
