"""The context of a running tool."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from flowengine.sdk import Processes, StepContext
from flowengine.tool_environment.abort import AbortSignal
from flowengine.tool_environment.state import ToolState

REPORTS = 32
"""Maximum unpublished reports. The oldest are dropped first."""
PAUSE = 0.05
"""Seconds between two batches of reports."""
PRODUCED = 256 * 1024
"""Maximum characters kept of a tool's partial output."""


class ProgressReports:
    """Takes reports on any thread, and publishes them in batches on the loop of the call.

    Args:
        publish: Publishes one report, with the number of reports dropped before it.
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
        """Add a report. This takes about a microsecond."""
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
        """Publish a batch, and check again after a pause."""
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
        """Publish the remaining reports, and drop later ones."""
        self._flush()
        with self._lock:
            self._closed = True


class ToolContext:
    """The context of a running tool.

    Attributes:
        signal: Signals the tool to stop.
        tool_call_id: Id of the call.
        execution_id: Id of the execution that the environment belongs to.
        parallel: Whether other calls may run concurrently.
        state: Plain data of this tool that persists from call to call in this execution.
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
        step: StepContext,
        progress: ProgressReports,
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
        self._step = step

    @cached_property
    def processes(self) -> Processes:
        """Runs programs, which end with the call, together with their child processes."""
        return self._step.processes

    def report(self, what: Any) -> None:
        """Report progress to clients. The rate of reports is unlimited.

        Args:
            what: Plain data. If reports arrive faster than they are read, the oldest are dropped.
        """
        self._progress.report(what)

    def write(self, text: str) -> None:
        """Append to the partial output, which is the content of the result if the call is stopped.

        Args:
            text: The next piece.
        """
        room = PRODUCED - self._size
        if room > 0:
            self._size += len(text)
            self._produced.append(text[:room])
