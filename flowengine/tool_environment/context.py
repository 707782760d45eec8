"""What a tool may use while it runs."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from flowengine.sdk import Processes
from flowengine.tool_environment.abort import AbortSignal
from flowengine.tool_environment.state import ToolState

REPORTS = 32
"""Reports that wait to be published; of more than these the oldest are dropped."""
PAUSE = 0.05
"""Seconds between two lots of reports."""
PRODUCED = 256 * 1024
"""Characters kept of what a tool has produced."""


class Progress:
    """Takes reports on any thread, and publishes them in lots on the loop of the call.

    Args:
        publish: Publishes one report, with how many were dropped before it.
    """

    def __init__(self, publish: Callable[[Any, int], object]) -> None:
        self._publish = publish
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._waiting: deque[Any] = deque(maxlen=REPORTS)
        self._taken = 0
        self._scheduled = False
        self._closed = False

    def report(self, what: Any) -> None:
        """Take a report; it costs about a microsecond."""
        with self._lock:
            if self._closed:
                return
            self._waiting.append(what)
            self._taken += 1
            if self._scheduled:
                return
            self._scheduled = True
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._lot)

    def _lot(self) -> None:
        """Publish what waits, and look again after a pause."""
        if self._flush():
            self._loop.call_later(PAUSE, self._lot)

    def _flush(self) -> bool:
        with self._lock:
            reports, taken = list(self._waiting), self._taken
            self._waiting.clear()
            self._taken = 0
            self._scheduled = bool(reports)
        for number, report in enumerate(reports):
            self._publish(report, taken - len(reports) if number == 0 else 0)
        return bool(reports)

    def close(self) -> None:
        """Publish what still waits; later reports are dropped."""
        self._flush()
        with self._lock:
            self._closed = True


class ToolContext:
    """What a tool may use while it runs.

    Attributes:
        signal: Says when the tool is to stop.
        tool_call_id: Id of the call.
        execution_id: Id of the execution that the environment belongs to.
        parallel: Whether other calls may run beside this one.
        state: Plain data that lasts from call to call of this tool in this execution.
        resources: The resources that the tool declares, by name.
    """

    def __init__(
        self,
        *,
        tool_call_id: str,
        execution_id: str,
        signal: AbortSignal,
        produced: list[str],
        parallel: bool,
        state: ToolState,
        resources: Mapping[str, Any],
        processes: Callable[[], Processes],
        progress: Progress,
    ) -> None:
        self._produced = produced
        self._progress = progress
        self._size = 0
        self.signal = signal
        self.tool_call_id = tool_call_id
        self.execution_id = execution_id
        self.parallel = parallel
        self.state = state
        self.resources = resources
        self._make_processes = processes

    @cached_property
    def processes(self) -> Processes:
        """Runs programs; they end with the call, and with all that they started."""
        return self._make_processes()

    def report(self, what: Any) -> None:
        """Report progress to whoever follows. It may be called as often as you like.

        Args:
            what: Plain data; of reports that come too fast to be read, the oldest are dropped.
        """
        self._progress.report(what)

    def write(self, text: str) -> None:
        """Add to what is kept as the content of the result if the call is stopped.

        Args:
            text: The next piece.
        """
        room = PRODUCED - self._size
        if room > 0:
            self._size += len(text)
            self._produced.append(text[:room])
