"""The context of a running tool: its abort signal, its state, its turn among concurrent calls."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, UserDict, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from flowengine.engines.attempts.serialization import copy
from flowengine.sdk import Plain, Processes, StepContext, StepError
from flowengine.sdk.plain_values import to_plain
from flowengine.sdk.resources import refuse_in_loop
from flowengine.tool_environment.errors import StateError

# The context of a running tool: its abort signal, its state and its reports.

REPORTS = 32
"""Maximum unpublished reports. The oldest are dropped first."""
PAUSE = 0.05
"""Seconds between two batches of reports."""
PRODUCED = 256 * 1024
"""Maximum characters kept of a tool's partial output."""


class Aborted(Exception):
    """Raised by `AbortSignal.check` in a tool that must stop."""


class AbortSignal:
    """Signals a tool to stop. Every call has its own signal, which any thread can use.

    Args:
        stopped: Receives the reason, or None when the call has ended.
    """

    def __init__(self, stopped: Future[str | None]) -> None:
        self._stopped = stopped

    @property
    def aborted(self) -> bool:
        """Whether the tool must stop."""
        return bool(self.reason)

    @property
    def reason(self) -> str:
        """The reason: `aborted` or `timed_out`. Empty if the tool need not stop."""
        return (self._stopped.result() or "") if self._stopped.done() else ""

    def check(self) -> None:
        """Raise `Aborted` if the tool must stop.

        Raises:
            Aborted: The tool must stop.
        """
        if self.aborted:
            raise Aborted(self.reason)

    def wait(self, timeout: float | None = None) -> bool:
        """Block the thread until the tool must stop or the call has ended, and return which it is.

        Args:
            timeout: Maximum seconds to wait.

        Returns:
            Whether the tool must stop.

        Raises:
            RuntimeError: The thread runs an event loop, which this would block.
        """
        refuse_in_loop(None, "await async_wait()")
        wait([self._stopped], timeout)
        return self.aborted

    async def async_wait(self) -> None:
        """Wait in a coroutine until the tool must stop or the call has ended."""
        await asyncio.wrap_future(self._stopped)


class ToolState(UserDict[str, Any]):
    """A mapping from text to plain data, which is copied on every read and write.

    To change a nested value, read the entry, change it, and store it again.

    Args:
        tool: Name of the tool, for messages.
        values: The previous content.
        number: How often it was stored before.
    """

    def __init__(self, tool: str, values: Mapping[str, Plain], number: int) -> None:
        super().__init__()
        self._tool = tool
        self.data = dict(values)
        self._number = number
        self._is_changed = False

    def to_keep(self) -> dict[str, Any] | None:
        """Return the data to store with the result of a call, or None if it is unchanged."""
        if not self._is_changed:
            return None
        self._is_changed = False
        self._number += 1
        return {"number": self._number, "values": dict(self.data)}

    def __getitem__(self, key: str) -> Any:
        return copy(self.data[key])

    def __setitem__(self, key: str, value: Any) -> None:
        if not isinstance(key, str):
            raise StateError(f"{self._tool}: the key {key!r} of ctx.state is not text")
        try:
            self.data[key] = to_plain(value)
        except StepError as error:
            raise StateError(
                f"{self._tool}: ctx.state['{key}'] was not set: {error.message}",
                hint="keep what is live in a resource, and plain data in ctx.state",
            ) from None
        self._is_changed = True

    def __delitem__(self, key: str) -> None:
        del self.data[key]
        self._is_changed = True


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


# Turns of concurrent calls: shared and exclusive, limited in number, first come, first served.


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
