"""The context of a running tool: its abort signal, its state, its turn among concurrent calls."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from flowengine.sdk import Processes, StepContext
from flowengine.sdk.environments.resources import refuse_in_loop
from flowengine.sdk.python.user_code import lasting

Stop = Literal["aborted", "timed_out"]
_Turn = tuple[Future[Any], bool]
PRODUCED = 256 * 1024
"""Maximum characters kept of a tool's partial output."""


class Aborted(Exception):
    """Raised by `AbortSignal.check` in a tool that must stop."""


class AbortSignal:
    """Signals a tool to stop. Every call has its own signal, which any thread can use.

    Args:
        stopped: Receives the reason, or None when the call has ended.
    """

    def __init__(self, stopped: Future[Stop | None]) -> None:
        self._stopped = stopped

    @property
    def aborted(self) -> bool:
        """Whether the tool must stop."""
        return bool(self.reason)

    @property
    def reason(self) -> Stop | Literal[""]:
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

    async def async_wait(self, work: asyncio.Future[Any] | Future[Any] | None = None) -> bool:
        """Wait in a coroutine until the tool must stop or the call has ended.

        Args:
            work: A task or future. The wait also ends when this is done, and does not cancel it.

        Returns:
            Whether the tool must stop.
        """
        waits = [asyncio.wrap_future(each) for each in (self._stopped, work) if each is not None]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                if wait is not work:
                    wait.cancel()
        return self.aborted


@dataclass(eq=False)
class ToolContext:
    """The context of a running tool."""

    tool_call_id: str
    """Id of the call."""
    execution_id: str
    """Id of the execution that the environment belongs to."""
    signal: AbortSignal
    """Signals the tool to stop."""
    parallel: bool
    """Whether other calls may run concurrently."""
    state: dict[str, Any]
    """Values that this tool keeps from call to call, as long as the environment exists."""
    resources: Mapping[str, Any]
    """The resources that the tool declares, by name."""
    report: Callable[[Any], None]
    """Reports progress to clients, as plain data."""
    _step: StepContext
    _produced: list[str]
    _size: int = 0

    @cached_property
    def processes(self) -> Processes:
        """Runs programs, which end with the call, together with their child processes."""
        return self._step.processes

    def write(self, text: str) -> None:
        """Append to the partial output, which is the content of the result if the call is stopped.

        Args:
            text: The next piece.
        """
        if (room := PRODUCED - self._size) > 0:
            self._size += len(text)
            self._produced.append(text[:room])


class Turns:
    """Grants turns to calls of one environment, on any loop and thread, in order.

    A call whose tool does not support parallel execution runs alone.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._line: list[_Turn] = []
        """Those who run, whose futures are done, and behind them those who wait."""

    @contextmanager
    def queue(self, *, exclusive: bool = True) -> Iterator[Future[Any]]:
        """Queue up for a turn, which ends with the block.

        Args:
            exclusive: Whether no other call may run concurrently.

        Yields:
            A future that is done when it is the caller's turn.
        """
        turn = (lasting(), exclusive)
        self._change(self._line.append, turn)
        try:
            yield turn[0]
        finally:
            self._change(self._line.remove, turn)

    def _change(self, change: Callable[[_Turn], None], turn: _Turn) -> None:
        with self._lock:
            change(turn)
            for place, (granted, exclusive) in enumerate(self._line):
                if place and (exclusive or self._line[0][1]):
                    return
                if not granted.done():
                    granted.set_result(None)
