"""The process that runs Python code, whose names persist between calls.

It receives a call (code, inputs and two pipes) over its control socket, makes the pipes its
standard output and error, runs the code in its main thread and answers. Each call has its own
pipes, so that output is attributed to the call that caused it. Later output of a child process
arrives through the pipes of its call, and output of a thread goes to those of the call that started
it.

The supervisor trusts nothing here, because the code may change this process in any way.
"""

from __future__ import annotations

import ast
import errno
import fcntl
import importlib
import io
import json
import linecache
import os
import signal
import site
import socket
import sys
import threading
import traceback
import types
from contextlib import suppress
from typing import Any, Optional

from flowengine.sdk.texts.exception_text import message_of
from flowengine_envs.link import parts, plain

_HIGH = 200
"""Lowest number of the worker's descriptors, because code often closes the first ones."""
_AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
_THREADS_END = 0.3
"""Seconds for threads of an interrupted call to end."""
_LEFT = 100
"""Maximum number of threads named that outlive their call."""
_NAME = 200
"""Maximum characters of such a name."""
_TEXT = 64 * 1024
"""Maximum characters of a message, a traceback, or the text of a value."""


def main(number: int) -> None:
    """Serve calls until the supervisor ends.

    Args:
        number: Descriptor of the control socket.
    """
    high = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, _HIGH)
    os.close(number)
    NamespaceWorker(socket.socket(fileno=high)).serve()


class NamespaceWorker:
    """One namespace and the calls that use it.

    Args:
        control: Socket to the supervisor.
    """

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._pid = os.getpid()
        self._running = False
        self._interrupted = False
        self._file_is_full = False
        """Whether the kernel refused to extend a file during this call. It sends a signal then, so
        that an error which code raises by itself is not mistaken for it."""
        self._call = 0
        self._pipes: dict[int, tuple[int, int]] = {}
        self._loop: Any = None
        module = types.ModuleType("__main__")
        module.__dict__["__builtins__"] = __builtins__
        sys.modules["__main__"] = module
        self._names = module.__dict__
        self._streams = tuple(_text(_Stream(self, fd)) for fd in (1, 2))
        _mark_threads(self)
        sys.argv = [""]
        sys.path.insert(0, "")
        with suppress(Exception):
            packages = site.getusersitepackages()
            os.makedirs(
                packages, exist_ok=True
            )  # Python never looks again for a directory that is missing now.
            site.addsitedir(packages)

    def serve(self) -> None:
        """Run calls until the supervisor ends."""
        signal.signal(signal.SIGINT, self._interrupt)
        signal.signal(signal.SIGXFSZ, self._refuse_size)
        while True:
            request, pipes = self._receive()
            if request is None:
                return
            _take_over(pipes)
            self._forget_pipes()
            importlib.invalidate_caches()  # An earlier call may have written modules.
            sys.stdout, sys.stderr = self._streams
            answer = self._answer(request)
            if os.getpid() != self._pid:  # A forked copy of the code returned here.
                os._exit(0)
            self._send(answer)

    def descriptor(self, fd: int) -> int:
        """Return the descriptor for the calling thread's output, which depends on its call.

        Args:
            fd: 1 or 2.
        """
        thread = threading.current_thread()
        call = getattr(thread, "_flowengine_call", self._call)
        pipes = self._pipes.get(call) if call != self._call else None
        return fd if pipes is None else pipes[fd - 1]

    def call_of_thread(self) -> int:
        """Return the call that the calling thread belongs to."""
        return int(getattr(threading.current_thread(), "_flowengine_call", self._call))

    # Calls

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        self._call = request["call"]
        self._interrupted = self._file_is_full = False
        answer: dict[str, Any] = {"id": request["id"]}
        self._names.pop("_result", None)
        self._names["inputs"] = plain.decode(request["inputs"])
        try:
            try:
                value = self._run(request["code"], f"<call {self._call}>")
                self._running = True  # The value's own code may also take long.
                answer.update(_described(value, request["largest"]))
            finally:
                self._running = False
        except BaseException as error:
            answer["error"] = self._error(error)
        self._running = False
        answer["interrupted"] = self._interrupted
        answer["left"] = self._end_threads() if self._interrupted else []
        self._keep_pipes()
        self._flush()
        return answer

    def _run(self, code: str, name: str) -> Any:
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
        tree = compile(code, name, "exec", _AWAIT | ast.PyCF_ONLY_AST, dont_inherit=True)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = ast.Expression(tree.body.pop().value)
        value = None
        self._running = True
        if tree.body:
            self._evaluate(compile(tree, name, "exec", _AWAIT, dont_inherit=True))
        if last is not None:
            value = self._evaluate(compile(last, name, "eval", _AWAIT, dont_inherit=True))
        self._running = False
        return self._names.get("_result", value)

    def _evaluate(self, code: types.CodeType) -> Any:
        if not code.co_flags & 0x80:  # Not a coroutine: the code has no top-level `await`.
            return eval(code, self._names)
        import asyncio

        if self._loop is None or self._loop.is_closed():
            self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        task = self._loop.create_task(eval(code, self._names))
        try:
            return self._loop.run_until_complete(task)
        except KeyboardInterrupt:
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                self._loop.run_until_complete(task)
            raise

    def _interrupt(self, _number: int, _frame: Any) -> None:
        if self._running:
            self._interrupted = True
            raise KeyboardInterrupt

    def _refuse_size(self, _number: int, _frame: Any) -> None:
        self._file_is_full = True

    def _error(self, error: BaseException) -> dict[str, Any]:
        """Return the description of an error, and print its traceback as Python would."""
        summary = traceback.TracebackException(type(error), error, error.__traceback__)
        _without_own_frames(summary)
        text = "".join(summary.format())
        with suppress(OSError):
            _write(2, _cut(text).encode("utf-8", "backslashreplace"))
        described = {
            "type": str(type(error).__name__),
            "message": _cut(
                message_of(error, error.msg if isinstance(error, SyntaxError) else None)
            ),
            "traceback": _cut(text),
            "line": _line_of(error),
        }
        if self._file_is_full and _is_about_size(error):
            described["file_is_full"] = True
        return described

    # Threads and output

    def _end_threads(self) -> list[str]:
        """End the threads that the call has started. Return those that do not end."""
        import ctypes

        mine = [
            thread
            for thread in threading.enumerate()
            if getattr(thread, "_flowengine_call", None) == self._call
        ]
        for thread in mine:
            if thread.ident is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit)
                )
        for thread in mine:
            thread.join(_THREADS_END / len(mine))
        left = [thread for thread in mine if thread.is_alive()]
        return [f"thread {str(thread.name)[:_NAME]}" for thread in left[:_LEFT]]

    def _keep_pipes(self) -> None:
        """Keep the pipes of the call for its remaining threads."""
        if self._has_threads(self._call):
            with suppress(OSError):
                copies = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH) for fd in (1, 2)]
                self._pipes[self._call] = (copies[0], copies[1])

    def _forget_pipes(self) -> None:
        for call in [call for call in self._pipes if not self._has_threads(call)]:
            for fd in self._pipes.pop(call):
                os.close(fd)

    def _has_threads(self, call: int) -> bool:
        if threading.active_count() == 1:
            return False
        return any(
            getattr(thread, "_flowengine_call", None) == call for thread in threading.enumerate()
        )

    def _flush(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        if "_ctypes" in sys.modules:  # C code may have printed into a buffer.
            import ctypes

            with suppress(Exception):
                ctypes.CDLL(None).fflush(None)

    # The control socket

    def _receive(self) -> tuple[Optional[dict[str, Any]], list[int]]:  # noqa: UP045
        head, pipes, _flags, _address = socket.recv_fds(self._control, 4, 2)
        data = parts.read(self._control.recv, begun=head) if head else None
        return (None, []) if data is None else (json.loads(data), pipes)

    def _send(self, answer: dict[str, Any]) -> None:
        self._control.sendall(parts.part(json.dumps(answer).encode()))


def _take_over(pipes: list[int]) -> None:
    """Make pipes the standard output and error, even if code has closed those descriptors."""
    if min(pipes, default=3) < 3:  # They have the numbers of closed standard descriptors.
        low, pipes = pipes, [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH) for fd in pipes]
        for fd in low:
            os.close(fd)
    for fd, target in zip(pipes, (1, 2)):  # noqa: B905 - Python 3.9
        os.dup2(fd, target)
        os.close(fd)
    try:
        os.fstat(0)
    except OSError:
        os.open(os.devnull, os.O_RDONLY)


class _Stream(io.RawIOBase):
    """Standard output or error, whose target depends on the writing thread."""

    def __init__(self, worker: NamespaceWorker, fd: int) -> None:
        self._worker = worker
        self._fd = fd

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def write(self, data: Any, /) -> int:
        return os.write(self._worker.descriptor(self._fd), data)


def _text(stream: _Stream) -> io.TextIOWrapper:
    # Unbuffered, to keep the order with output of child processes and C code.
    return io.TextIOWrapper(
        _Whole(stream), encoding="utf-8", errors="backslashreplace", write_through=True
    )


class _Whole(io.BufferedWriter):
    """Writes everything at once, while `BufferedWriter` would keep small pieces."""

    def write(self, data: Any, /) -> int:
        view = memoryview(data).cast("B")
        size = len(view)
        while view:
            view = view[self.raw.write(view) or 0 :]
        return size


def _mark_threads(worker: NamespaceWorker) -> None:
    """Record for each thread the call in which it was started."""
    start = threading.Thread.start

    def marked(self: threading.Thread) -> None:
        self._flowengine_call = worker.call_of_thread()  # type: ignore[attr-defined]
        start(self)

    threading.Thread.start = marked  # type: ignore[method-assign]


def _described(value: Any, largest: int) -> dict[str, Any]:
    """Return a value as data if it is plain data below the size limit, and as text."""
    if value is None:
        return {}
    text = value if isinstance(value, str) else _shown(value)
    described: dict[str, Any] = {"text": _cut(str(text))}
    try:
        data = plain.encode(value)
        fits = len(json.dumps(data)) <= largest
    except (TypeError, ValueError, RecursionError):
        return described
    if fits:
        described["value"] = data
    else:
        described["large"] = True
    return described


def _shown(value: Any) -> str:
    try:
        return repr(value)
    except Exception as error:
        return f"<{type(value).__name__} whose repr fails with {type(error).__name__}>"


def _cut(text: str) -> str:
    if len(text) <= _TEXT:
        return text
    left_out = len(text) - _TEXT
    return f"{text[: _TEXT // 2]}\n... {left_out} characters left out ...\n{text[-_TEXT // 2 :]}"


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _without_own_frames(summary: traceback.TracebackException) -> None:
    """Keep only frames of the code, without frames of this module, also in causes."""
    seen: list[Any] = []
    waiting: list[Any] = [summary]
    while waiting:
        each = waiting.pop()
        if each is None or any(each is other for other in seen):
            continue
        seen.append(each)
        each.stack[:] = [frame for frame in each.stack if frame.filename != _HERE]
        waiting += [each.__cause__, each.__context__, *(getattr(each, "exceptions", None) or ())]


def _is_about_size(error: BaseException) -> bool:
    """Return whether an error is, or comes from, the refusal to extend a file."""
    seen: list[BaseException] = []
    waiting: list[Optional[BaseException]] = [error]  # noqa: UP045
    while waiting:
        each = waiting.pop()
        if each is None or any(each is other for other in seen):
            continue
        if isinstance(each, OSError) and each.errno == errno.EFBIG:
            return True
        seen.append(each)
        waiting += [each.__cause__, each.__context__]
    return False


def _line_of(error: BaseException) -> Optional[int]:  # noqa: UP045
    """Return the line of the submitted code that raised the error."""
    if isinstance(error, SyntaxError) and str(error.filename).startswith("<call "):
        return error.lineno
    for frame, number in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename.startswith("<call "):
            return number
    return None


_HERE = main.__code__.co_filename
