"""Detection of processes and sockets that a step leaves open when it ends.

Python raises an audit event for each process that is about to be started and each socket that is
bound, in the thread and context of the code that does so. This identifies the owner even if steps
run concurrently, and costs nothing for steps that start nothing. The operating system lists child
processes by the thread that started them. Children that appear after a start belong to that start.

Processes whose parent has ended are found by an environment variable that names this process.

Functions that start something on their own threads are not detected. Programs (`run`) are marked,
each with its attempt: see `flowengine.sdk.process_tree`.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from flowengine.named_tuples import NamedTuple
from flowengine.sdk import ExecutionContext, StepError

if TYPE_CHECKING:
    import logging
    import socket

    from flowengine.sdk.process_tree import ProcessEntry

_Value = TypeVar("_Value")

_STARTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"})
_EVENTS = _STARTS | {"socket.bind"}
_VARIABLE = "FLOWENGINE_PROCESS"
"""Environment variable of this process and its children that identifies this process."""


class LeftRunning(StepError):
    """A step left a process or a listening socket open, and the settings are strict."""

    type = "LeftRunning"


class Leak(NamedTuple):
    """A process or socket that outlives the step that started it."""

    what: str
    """`process` or `socket`."""
    name: str
    """Name of the program, or the address that the socket listens on."""
    pid: int

    def __str__(self) -> str:
        if self.what == "socket":
            return f"a socket that listens on {self.name} (process {self.pid})"
        return f"process {self.pid} ({self.name})"


class LeakDetector:
    """Detects everything an attempt starts: `with LeakDetector() as started`. Almost free."""

    since: int | None = None
    """When it first started a process, in ticks since boot."""
    threads: frozenset[int] = frozenset()
    """The threads on which it did so."""
    children: frozenset[int] = frozenset()
    sockets: tuple[weakref.ref[socket.socket], ...] = ()

    def __enter__(self) -> Self:
        _listen()
        self._token = _current.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)
        _running.pop(self, None)

    def __bool__(self) -> bool:
        return self.since is not None or bool(self.sockets)

    def left(self) -> tuple[list[ProcessEntry], list[socket.socket]]:
        """Return the processes and listening sockets that still exist."""
        for thread in self.threads:
            _settle(thread, self)
        found = self._processes(with_orphans=not _running) if self.since is not None else []
        made = [each for ref in self.sockets if (each := ref()) is not None]
        return found, [each for each in made if _listens(each)]

    def _processes(self, *, with_orphans: bool) -> list[ProcessEntry]:
        """Return the leftover processes, except those of environments and of other steps' programs.

        Args:
            with_orphans: Whether to include processes whose parent has ended. No other step may
                have started any.
        """
        from flowengine.sdk.process_tree import MARK, VARIABLE, has_other, outside, processes

        children = [process for process in processes() if process.pid in self.children]
        if with_orphans:
            children += outside(_VARIABLE, _listen(), self.since or 0)
        return [each for each in children if not has_other(each.pid, (MARK, VARIABLE))]


def noticing(
    function: Callable[..., _Value], *arguments: Any
) -> tuple[_Value, LeakDetector | None]:
    """Call a function, and return its result and everything it started, if anything."""
    _listen()
    started = LeakDetector()
    token = _current.set(started)
    try:
        value = function(*arguments)
    finally:
        _current.reset(token)
        _running.pop(started, None)
    return value, None if started.since is None and not started.sockets else started


_current: ContextVar[LeakDetector | None] = ContextVar("started", default=None)
_forked: dict[int, tuple[LeakDetector, frozenset[int]]] = {}
"""Thread → the owner of its last unsettled start, and the thread's children before it."""
_running: dict[LeakDetector, None] = {}
"""Running attempts that have started a process."""


@contextmanager
def unnoticed() -> Iterator[None]:
    """Exclude processes that are attributed by other means."""
    token = _current.set(None)
    try:
        yield
    finally:
        _current.reset(token)


class LeakReceiver(Protocol):
    """The attempt to report to."""

    @property
    def execution(self) -> ExecutionContext:
        """The execution."""

    @property
    def address(self) -> str:
        """Address of the step."""

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """Log of the attempt."""


def judge(
    started: LeakDetector,
    attempt: LeakReceiver,
    close: Callable[[socket.socket], object] | None = None,
) -> None:
    """Report the leftovers of a step. If they are an error, end them.

    Args:
        started: Everything that the step has started.
        attempt: The attempt of the step.
        close: Closes a socket that an event loop may be watching. Default: no event loop watches
            any.

    Raises:
        LeftRunning: Leaving something running is an error.
    """
    from flowengine.sdk.process_tree import Family

    found, listening = started.left()
    if not found and not listening:
        return
    left = [process_left(each.pid) for each in found]
    left += [Leak("socket", _address(each), os.getpid()) for each in listening]
    if attempt.execution.strict:
        for process in found:
            Family(None, process.pid).kill()
        for each in listening:
            close(each) if close else each.close()
    tell_left(left, attempt, ended=attempt.execution.strict)


def tell_left(left: Iterable[Leak], attempt: LeakReceiver, *, ended: bool) -> None:
    """Report the leftovers of a step.

    Args:
        left: The leftovers, at least one.
        attempt: The attempt of the step.
        ended: Whether they were ended.

    Raises:
        LeftRunning: The settings treat it as an error.
    """
    parts: Any = [each._asdict() for each in left]
    text = f"still running after the step ended: {', '.join(map(str, left))}"
    text += "; it was ended" if ended else "; nothing will end it"
    text += ". End it before the step ends, or open it as an environment"
    if attempt.execution.strict:
        raise LeftRunning(text, data=parts, retryable=False)
    attempt.log.warning("%s", text)
    attempt.execution.warn(text, {"address": attempt.address, "left": parts, "ended": ended})


def process_left(pid: int) -> Leak:
    """Return a process as a leftover."""
    with suppress(OSError), open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
        return Leak("process", file.read().strip(), pid)
    return Leak("process", "?", pid)


@cache
def _listen() -> str:
    """Observe everything that this process starts from now on, and return its mark."""
    from flowengine.sdk.process_identity import as_text, this_process

    mark = os.environ[_VARIABLE] = as_text(this_process())
    sys.addaudithook(_on_audit_event)
    return mark


def _on_audit_event(
    event: str,
    args: tuple[Any, ...],
    *,
    events: frozenset[str] = _EVENTS,
    is_ending: Callable[[], bool] = sys.is_finalizing,
) -> None:
    """Handle an audit event. Must not raise, and must be quick, as it sees every event.

    A hook cannot be removed and is called until the interpreter exits. The names of this module no
    longer exist by then, so the function binds the names required for that check.
    """
    if event not in events or is_ending():
        return
    started = _current.get()
    if event == "socket.bind":
        if started is not None:
            with suppress(TypeError):  # not an object of Python's own class
                started.sockets += (weakref.ref(args[0]),)
        return
    thread = threading.get_native_id()
    if thread in _forked:
        _settle(thread, None)
    if started is not None:
        if started.since is None:
            # Code that replaced the environment may have removed it.
            os.environ[_VARIABLE] = _listen()
            now = time.clock_gettime(time.CLOCK_BOOTTIME)
            started.since = int(now * os.sysconf("SC_CLK_TCK"))
            _running[started] = None
        started.threads |= {thread}
        _forked[thread] = (started, _children(thread))


def _settle(thread: int, of: LeakDetector | None) -> None:
    """Determine the children created by the last start on a thread."""
    last = _forked.get(thread)
    if last is not None and of in {None, last[0]}:
        _forked.pop(thread, None)
        last[0].children |= _children(thread) - last[1]


def _children(thread: int) -> frozenset[int]:
    try:
        with open(f"/proc/self/task/{thread}/children", "rb") as file:
            return frozenset(map(int, file.read().split()))
    except OSError:  # the thread has ended
        return frozenset()


def _listens(each: socket.socket) -> bool:
    import socket

    with suppress(OSError):
        return bool(each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    return False


def _address(each: socket.socket) -> str:
    with suppress(OSError):
        name = each.getsockname()
        return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else str(name)
    return "?"
