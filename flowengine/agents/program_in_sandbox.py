"""Runs programs of models inside a sandbox. This file is sent there as text, and runs alone.

A program runs as a module that may use `await`, in its own process. When it can only wait for
answers of tools, its calls go to the host, and the next round begins with their answers. Between
rounds it waits where it is, in whatever function. If its process is gone, it runs again from the
start with the recorded answers.

Whatever may lead a program to its next call is the same in each run: chance, the order of its
tasks, and what it has seen on clocks, which its calls record. Calls take no time on its clock. The
calendar is that of the host at the beginning of each round.

The host trusts nothing that this returns. The sandbox may have Python 3.9.
"""

from __future__ import annotations

import ast
import asyncio
import atexit
import contextlib
import datetime
import functools
import gc
import io
import json
import linecache
import os
import random
import select
import selectors
import signal
import socket
import sys
import threading
import time
import traceback
import types
import uuid
import warnings
from ctypes import py_object, pythonapi
from typing import Any, Callable, Optional  # noqa: UP035 - Python 3.9

_FILE = "<program>"
_PRINTED = 40_000
"""Maximum bytes kept of a program's output."""
_TICK = 1e-6
"""Seconds that a look at a clock takes, so that no measured time is zero."""
_STEP = 2e-3
"""Seconds that must have passed for a clock to show them, times the number of such looks."""
_AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
_LARGEST, _MOST = 1 << 20, 1_000_000
"""Maximum bytes of a message of a program, and of its calls or its result."""
_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36
_COROUTINE, _ASYNCHRONOUS = 0x80, 0x380
_sleep, _monotonic = time.sleep, time.monotonic


class ToolError(Exception):
    """A call of a tool failed, or was not made."""


ToolError.__module__ = "__main__"


class Crashed(Exception):
    """The process of a program ended before the program."""


class _Returned(SystemExit):
    """The program returned a value, its `code`, outside of its functions."""


class _Call:
    """A call of a tool, with its arguments as JSON, and its answer."""

    def __init__(self, name: str, args: str) -> None:
        self.name = name
        self.args = args
        self.size = len(json.dumps({"name": name, "args": args})) + 2
        self.loop = asyncio.get_running_loop()
        self.answer = self.loop.create_future()

    def resolve(self, result: Any, error: Optional[str]) -> None:  # noqa: UP045 - Python 3.9
        """Answer it, in whatever thread its loop runs."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self._resolve, result, error)

    def _resolve(self, result: Any, error: Optional[str]) -> None:  # noqa: UP045 - Python 3.9
        if not self.answer.done() and error is None:
            self.answer.set_result(result)
        elif not self.answer.done():
            self.answer.set_exception(ToolError(error))


class _Selector(selectors.DefaultSelector):
    """Decides what happens when a loop has nothing to do but wait."""

    loop: _Loop

    def select(self, timeout: Optional[float] = None) -> Any:  # noqa: UP045 - Python 3.9
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        program = self.loop.program
        if self.loop.threads <= 0 and program.answered(self.loop):
            return []
        if not program.in_main_thread:
            return super().select(timeout)
        before = program.elapsed
        alone = len(self.get_map()) <= 1 and program.alone
        if timeout is None or not (alone and program.repeats):
            ready = super().select(timeout)
        if timeout is None or ready:
            program.read_clock()
        else:
            program.elapsed += timeout
        program.timers += program.elapsed - before
        return ready


class _Loop(asyncio.SelectorEventLoop):
    """An event loop of a program. In its main thread, the time is that of the program."""

    program: _Program

    def __init__(self, _selector: Any = None) -> None:
        selector = _Selector()
        selector.loop = self
        self.threads = 0
        """Threads that work for it, without those that wait for its calls."""
        super().__init__(selector)

    def time(self) -> float:
        return self.program.timers if self.program.in_main_thread else _monotonic()

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        future = super().run_in_executor(executor, func, *args)
        self.threads += 1
        future.add_done_callback(self._ended)
        return future

    def _ended(self, _future: Any) -> None:
        self.threads -= 1

    async def awaited(self, coro: Any) -> Any:
        """Await a coroutine for a thread, which waits for this loop meanwhile.

        Threads are counted here, in the thread of the loop, so that no count is lost.
        """
        self.threads -= 1
        try:
            return await coro
        finally:
            self.threads += 1


class _Policy(asyncio.DefaultEventLoopPolicy):
    _loop_factory = _Loop


class _Program:
    """A program in its process.

    Args:
        given: Its `code`, the `tools`: for each the names of its parameters in Python and in its
            schema, the `seed` of chance, and the time at which it `began`.
        host: What receives its calls and its outcome.
    """

    def __init__(self, given: dict[str, Any], host: _Link) -> None:
        self.elapsed = 0.0
        """Seconds on its clock."""
        self.timers = 0.0
        """Seconds that its loops count: what it slept and they waited, so that no call is late."""
        self.epoch = float(given["began"])
        """What the calendar adds to them."""
        self._zero, self._looks = _monotonic(), 0
        self._steps: list[tuple[int, float]] = []
        """Steps of the clock in this round, with the number of the look that showed each."""
        self._recorded_steps: list[tuple[int, float]] = []
        self.chance = random.Random(given["seed"])
        self.recorded: list[dict[str, Any]] = []
        """Answers that are not yet those of calls."""
        self.calls: list[_Call] = []
        """Calls without an answer."""
        self.node = self.chance.getrandbits(48) | 1 << 40  # as of a machine without an address
        self.task: Any = None
        """The task of the module, if it awaits anything."""
        self._host = host
        self._pid = os.getpid()
        self._thread = threading.get_native_id()  # not that of a fork
        self._exchange = threading.Lock()
        self._code = str(given["code"])
        module = types.ModuleType("__main__")
        self.names = module.__dict__
        self.names.update({one.__name__: one for one in (ToolError, _Returned)})
        self.names.update({name: self._tool(name, takes) for name, takes in given["tools"].items()})
        for fd, name in ((1, "stdout"), (2, "stderr")):
            raw: Any = io.FileIO(fd, "w", closefd=False)
            text = io.TextIOWrapper(raw, "utf-8", "backslashreplace", write_through=True)
            setattr(sys, name, text)
        sys.modules["__main__"] = module
        lines = [f"{line}\n" for line in self._code.split("\n")]  # as Python counts them
        linecache.cache[_FILE] = (len(self._code), None, lines, _FILE)

    @property
    def in_main_thread(self) -> bool:
        """Whether its main thread asks."""
        return threading.get_native_id() == self._thread

    def read_clock(self, step: float = _STEP) -> float:
        """Return the time on its clock, as the first run has seen it.

        Args:
            step: Minimum seconds by which it follows that of the sandbox, times their number.
        """
        self._looks += 1
        self.elapsed += _TICK
        passed = round(_monotonic() - self._zero - self.elapsed, 6)
        if self.repeats:
            while self._recorded_steps and self._recorded_steps[0][0] <= self._looks:
                self.elapsed += self._recorded_steps.pop(0)[1]
        elif passed > step * (len(self._steps) + 1):
            self.elapsed += passed
            self._steps.append((self._looks, passed))
        return self.elapsed

    @property
    def alone(self) -> bool:
        """Whether nothing but this thread works for it, so that it may skip what it sleeps."""
        others = threading.active_count() > 1 or any(signal.getitimer(signal.ITIMER_REAL))
        return self.in_main_thread and not others and not _children()

    @property
    def repeats(self) -> bool:
        """Whether it has not come to the end of its recorded calls."""
        return bool(self.recorded)

    def now(self) -> float:
        """Return the time of the calendar, in seconds since 1970."""
        return self.epoch + self.read_clock()

    def is_synchronous(self, frame: Any) -> bool:
        """Return whether code of the module calls, with no coroutine in between."""
        while frame is not None and (frame.f_code.co_filename, frame.f_code.co_name) != _TOP:
            if frame.f_code.co_flags & _ASYNCHRONOUS:
                return False
            frame = frame.f_back
        return frame is not None and asyncio.current_task() is self.task

    def run(self) -> None:
        """Run to the end, and send the host the outcome."""
        outcome = {"value": "null"}
        try:
            self._receive()
            value = _as_json(self._value())
            if len(json.dumps(value)) > _MOST:
                raise ValueError(f"the result of the program has more than {_MOST:,} bytes")
            outcome["value"] = value
        except BaseException as error:
            if not isinstance(error, SystemExit) or error.code:
                told = traceback.TracebackException(type(error), error, error.__traceback__)
                _keep_frames_of_program(told)
                outcome = {"error": "".join(told.format())[: _MOST // 12]}  # a sign may take 12
        if os.getpid() == self._pid:
            threading._shutdown()  # type: ignore[attr-defined] # waits as any Python does
            atexit._run_exitfuncs()
            self.names.clear()
            gc.collect()  # reports exceptions of tasks that were never retrieved
            if self.repeats:
                self._differs("it ended before them")
            self._host.send(outcome)

    def _value(self) -> Any:
        parts = _parts(self._code)
        self.names.setdefault("__annotations__", {})
        if any(part.co_flags & _COROUTINE for part in parts):
            return asyncio.run(self._awaited(parts))
        try:
            return [eval(part, self.names) for part in parts][-1]
        except _Returned as returned:
            return returned.code

    async def _awaited(self, parts: list[types.CodeType]) -> Any:
        self.task = asyncio.current_task()
        value = None
        try:
            for part in parts:
                value = eval(part, self.names)
                if part.co_flags & _COROUTINE:
                    value = await value
        except _Returned as returned:
            return returned.code
        return value

    def _tool(self, name: str, takes: dict[str, str]) -> Callable[..., Any]:
        order = [*takes.values()]

        async def tool(*values: Any, **named: Any) -> Any:
            if len(values) > len(order):
                raise TypeError(f"{name}() takes {len(order)} arguments, not {len(values)}")
            given = dict(zip(order, values))  # noqa: B905 - Python 3.9
            for one, value in named.items():
                if takes.get(one, one) in given:
                    raise TypeError(f"{name}() got two values for {one!r}")
                given[takes.get(one, one)] = value
            return await self._call(name, given)

        tool.__name__ = tool.__qualname__ = name
        return tool

    async def _call(self, name: str, args: dict[str, Any]) -> Any:
        try:
            text = json.dumps(args, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise ToolError(f"the arguments of {name} are not JSON: {error}") from None
        if os.getpid() != self._pid:
            raise ToolError(f"{name} was not called: a forked process can call no tools")
        call = _Call(name, text)
        if call.size + sum(one.size for one in self.calls) > _MOST:
            raise ToolError(f"{name} was not called: calls at once have at most {_MOST:,} bytes")
        self.calls.append(call)
        try:
            return await call.answer
        except asyncio.CancelledError:
            with self._exchange:
                if call in self.calls:  # the host does not know it yet
                    self.calls.remove(call)
            raise

    def answered(self, loop: _Loop) -> bool:
        """Get the answers of open calls, if a loop has any. Return whether there were some.

        Signals wait meanwhile, so that an exception of their handlers leaves no answer behind.
        """
        with self._exchange:
            if all(call.loop is not loop for call in self.calls):
                return False
            self.read_clock(0)
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            if not self.repeats:
                asks = [{"name": call.name, "args": call.args} for call in self.calls]
                asks[0]["clock"] = json.dumps(self._steps)
                self._host.send({"asks": asks})
                self._receive()
            self._deliver()
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return True

    def _receive(self) -> None:
        """Wait for the next round."""
        given = self._host.receive()
        self._now = float(given["now"])
        self.recorded += given["answers"]
        self._recorded_steps = [
            step for one in self.recorded for step in json.loads(one["clock"] or "[]")
        ]

    def _deliver(self) -> None:
        """Give recorded answers to the calls that are open, in the order of the first run."""
        made: dict[tuple[str, str], list[_Call]] = {}
        for call in reversed(self.calls):
            made.setdefault((call.name, call.args), []).append(call)
        left = []
        for answer in self.recorded:
            same = made.get((answer["name"], answer["args"]))
            if same:
                call = same.pop()
                self.calls.remove(call)
                call.resolve(answer["result"], answer["error"])
            else:
                left.append(answer)
        if len(left) == len(self.recorded):
            self._differs(f"it did not call {left[0]['name']} again, or with other values")
        self.recorded = left
        then = float(left[0]["at"]) if left else self._now
        self.epoch = max(self.epoch, then - self.elapsed)
        self._zero, self._steps = _monotonic() - self.elapsed, []

    def _differs(self, how: str) -> None:
        """End it, since its calls differ from those that are recorded."""
        error = (
            "the program had to run again, and did not repeat its earlier calls: "
            f"{how}. Its calls may depend only on answers of tools, random, uuid and time"
        )
        self._host.send({"error": error})
        os._exit(0)


_TOP = (_FILE, "<module>")


# The program as code


class _Returns(ast.NodeTransformer):
    """Lets code of the module return, which only functions may.

    A return raises, and every `try` passes that on.
    """

    def _leave(self, node: Any) -> Any:
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = _leave

    def visit_Return(self, node: Any) -> Any:
        value = node.value or ast.Constant(None)
        call = ast.Call(ast.Name(_Returned.__name__, ast.Load()), [value], [])
        return ast.copy_location(ast.Raise(call), node)

    def visit_Try(self, node: Any) -> Any:
        self.generic_visit(node)
        if node.handlers:
            passed = ast.ExceptHandler(
                ast.Name(_Returned.__name__, ast.Load()), None, [ast.Raise()]
            )
            node.handlers.insert(0, passed)
        return node


def _parts(code: str) -> list[types.CodeType]:
    """Return the code of a module, with its last expression as the last part."""
    body = _Returns().visit(ast.parse(code, _FILE)).body
    last: Any = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    parts = [_compiled(ast.Module(body, []), "exec")]
    return [*parts, _compiled(ast.Expression(last.value), "eval")] if last else parts


def _compiled(tree: Any, mode: str) -> types.CodeType:
    code: types.CodeType = compile(
        ast.fix_missing_locations(tree), _FILE, mode, _AWAIT, dont_inherit=True
    )
    return code


def _keep_frames_of_program(told: Any) -> None:
    pending: list[Any] = [told]
    seen: list[Any] = []
    while pending:
        one = pending.pop()
        if one is not None and not any(one is other for other in seen):
            seen.append(one)
            one.stack[:] = [frame for frame in one.stack if frame.filename == _FILE]
            pending += [one.__cause__, one.__context__, *(getattr(one, "exceptions", None) or ())]


def _as_json(value: Any) -> str:
    try:
        return json.dumps(value, default=str, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return json.dumps(repr(value))


# Loops, clocks and chance, which ask the program


def _fix(program: _Program, place: Any, name: str, of: Callable[..., Any]) -> None:
    """Replace a function of a module or class.

    Args:
        program: The program of this process.
        place: The module or class.
        name: Its name.
        of: Called with the program, the original and the arguments.
    """
    original = getattr(place, name)

    def fixed(*values: Any, **named: Any) -> Any:
        return of(program, original, *values, **named)

    setattr(place, name, functools.wraps(original)(fixed))


def _fix_loops(program: _Program) -> None:
    """Let code of the module run loops, and threads call tools through a loop."""

    def submitted(_: Any, original: Any, coro: Any, loop: Any) -> Any:
        if isinstance(loop, _Loop) and asyncio._get_running_loop() is not loop:
            coro = loop.awaited(coro)
        return original(coro, loop)

    _Loop.program = program
    for name in ("SelectorEventLoop", "EventLoop"):
        setattr(asyncio, name, _Loop)
    asyncio.set_event_loop_policy(_Policy())  # type: ignore[deprecated]
    asyncio.BaseEventLoop.time = lambda self: _monotonic()  # type: ignore[method-assign]
    _fix(program, asyncio, "run_coroutine_threadsafe", submitted)
    for place in (asyncio, getattr(asyncio, "Runner", None), asyncio.BaseEventLoop):
        for name in ("run", "run_until_complete", "run_forever"):
            if hasattr(place, name):
                _fix(program, place, name, _run_beside)


def _run_beside(program: _Program, original: Any, *values: Any, **named: Any) -> Any:
    """Run a loop, although that of the module runs, which stands still, or continues in it."""
    outer: Any = asyncio._get_running_loop()
    if outer is None or not program.is_synchronous(sys._getframe(2)):
        return original(*values, **named)
    thread, left = outer._thread_id, len(outer._ready)
    asyncio.tasks._leave_task(outer, program.task)
    asyncio._set_running_loop(None)
    outer._thread_id = None
    try:
        return original(*values, **named)
    finally:
        outer._thread_id = thread
        asyncio._set_running_loop(outer)
        asyncio.tasks._enter_task(outer, program.task)
        for _ in range(left):  # at most these handles were begun that are still expected
            outer.call_soon(int)


def _fix_clocks(program: _Program) -> None:
    local = time.localtime
    clocks: dict[str, Callable[..., float]] = {
        "time": lambda program, *_: program.now(),
        "clock_gettime": lambda p, _, id: p.now() if id == time.CLOCK_REALTIME else p.read_clock(),
    }
    for name in ("monotonic", "perf_counter", "process_time", "thread_time"):
        clocks[name] = lambda program, *_: program.read_clock()
    for name, clock in clocks.items():
        _fix(program, time, name, clock)
        ns = lambda *given, clock=clock: round(clock(*given) * 1e9)  # noqa: E731
        _fix(program, time, f"{name}_ns", ns)
    for name in ("localtime", "gmtime", "ctime"):
        _fix(program, time, name, lambda p, o, at=None: o(p.now() if at is None else at))
    _fix(program, time, "asctime", lambda p, o, at=None: o(local(p.now()) if at is None else at))
    _fix(program, time, "strftime", lambda p, o, form, at=None: o(form, at or local(p.now())))
    _fix(program, time, "sleep", _slept)


def _slept(program: _Program, original: Callable[[float], None], seconds: float) -> None:
    alone = program.alone
    original(0 if alone and program.repeats and seconds > 0 else seconds)
    program.elapsed += seconds if alone else 0
    program.timers += seconds if program.in_main_thread else 0


def _fix_dates(program: _Program) -> None:
    """Let `datetime.now` ask the program, too, under all names that modules have for the class."""
    [names] = (one for one in gc.get_referents(datetime.datetime.__dict__) if type(one) is dict)

    def now(cls: Any, tz: Any = None) -> Any:
        return cls.fromtimestamp(program.now(), tz)

    def utcnow(cls: Any) -> Any:
        return cls.now(datetime.timezone.utc).replace(tzinfo=None)  # noqa: UP017

    names.update(now=classmethod(now), utcnow=classmethod(utcnow))
    pythonapi.PyType_Modified(py_object(datetime.datetime))


def _fix_chance(program: _Program) -> None:
    def some(program: _Program, _: Any, number: int, *_flags: int) -> bytes:
        return program.chance.getrandbits(number * 8).to_bytes(number, "big") if number else b""

    def seeded(program: _Program, original: Any, *values: Any, **named: Any) -> None:
        mine = [one for one in values if isinstance(one, random.Random)]
        if named.get("a") is None and all(one is None for one in values[len(mine) :]):
            values, named = tuple(mine), {"a": program.chance.getrandbits(256)}
        original(*values, **named)

    random.seed(program.chance.random())
    for place, name in ((os, "urandom"), (os, "getrandom"), (random, "_urandom")):
        _fix(program, place, name, some)
    _fix(program, random, "seed", seeded)
    _fix(program, random.Random, "seed", seeded)
    for name in [one for one in vars(uuid) if one.startswith("_last_time")]:
        setattr(uuid, name, None)
    uuid._generate_time_safe = None  # type: ignore[attr-defined] # it reads a clock by itself
    _fix(program, uuid, "getnode", lambda program, _: program.node)


# The process of a program, and that of the namespace, which began it


class _Link:
    """Messages between the two."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self._reader = io.BufferedReader(io.FileIO(end.fileno(), closefd=False))

    def send(self, message: dict[str, Any]) -> None:
        data = json.dumps(message).encode()
        self.end.sendall(len(data).to_bytes(8, "big") + data)

    def receive(self, largest: int = sys.maxsize) -> Any:
        """Wait for a message.

        Args:
            largest: Maximum number of its bytes, of which none is read beyond it.

        Raises:
            ValueError: The other process has ended, or its message is too large.
        """
        size = int.from_bytes(self._reader.read(8), "big")
        return json.loads(self._reader.read(size) if size <= largest else b"")


_LINK = 200
"""Descriptor of a program's end, above those that a program may close by number."""


def _alone_with(link: socket.socket) -> socket.socket:
    """Return the only descriptor of the namespace that a program has, besides the standard streams.

    The others stay open on the null device: their objects would close what took their numbers.
    """
    fd, null = os.dup(link.detach()), os.open(os.devnull, os.O_RDWR)
    for other in map(int, os.listdir("/dev/fd")):
        if other not in {0, 1, 2, fd, null}:
            os.dup2(null, other, inheritable=False)
    os.dup2(fd, _LINK, inheritable=False)
    os.close(fd)
    return socket.socket(fileno=_LINK)


class _Process:
    """The process of a program.

    Args:
        given: As for `_Program`.
    """

    def __init__(self, given: dict[str, Any]) -> None:
        ours, theirs = socket.socketpair()
        self._output, output = os.pipe()
        self._printed = bytearray()
        """The beginning of what it and its children have written."""
        self.answers: list[Any] = []
        """Answers that it has not yet received."""
        self.known = 0
        self._link = _Link(ours)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about threads, of which it needs none
            self._pid = os.fork()
        if not self._pid:
            try:
                os.dup2(output, 1)
                os.dup2(output, 2)
                _begin(given, _Link(_alone_with(theirs)))
            finally:
                os._exit(0)
        theirs.close()
        os.close(output)

    def round(self, now: float) -> Any:
        """Return its next calls or its outcome. None: it ended between rounds."""
        try:
            self._link.send({"answers": self.answers, "now": now})
        except OSError:
            return None
        self.answers = []
        os.write(1, self._printed)
        poll, link, ready = select.poll(), self._link.end.fileno(), {0}
        for fd in (link, self._output):
            poll.register(fd, select.POLLIN)
        while link not in ready:
            ready = {fd for fd, _ in poll.poll()}
            if self._output in ready:  # all that the pipe can hold, so all before the message
                piece = os.read(self._output, 1 << 16)[: _PRINTED - len(self._printed)]
                self._printed += piece
                os.write(1, piece)
        try:
            return self._link.receive(_LARGEST)
        except (OSError, ValueError):
            code = self.end()
        how = (
            f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        )
        raise Crashed(f"the process of the program {how}")

    def end(self) -> int:
        """End it. Return its exit code, or the negative number of a signal."""
        with contextlib.suppress(OSError):
            self._link.end.close()
            os.close(self._output)
            os.kill(self._pid, signal.SIGTERM)
            return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return 0


def _begin(given: dict[str, Any], host: _Link) -> None:
    _guarded()
    os.register_at_fork(after_in_child=host.end.close)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    atexit._clear()
    program = _Program(given, host)
    for fix in (_fix_loops, _fix_clocks, _fix_dates, _fix_chance):
        fix(program)
    program.run()


def _guarded() -> None:
    """Return in a new process, and end all that it has started when it ends or SIGTERM arrives."""
    pythonapi.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    program, ended = os.fork(), 0
    if program:
        signal.signal(signal.SIGTERM, lambda *_: pythonapi.kill(program, signal.SIGKILL))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    if not program:
        pythonapi.prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        os.setsid()
        return
    os.close(_LINK)
    while ended != program:
        ended, status = os.waitpid(-1, 0)
    with contextlib.suppress(ChildProcessError):  # none is left
        while True:
            for child in _children():
                os.kill(child, signal.SIGKILL)
            os.waitpid(-1, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        with contextlib.suppress(OSError):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _children() -> list[int]:
    """Return the children of this process that its main thread has begun or adopted."""
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return [*map(int, file.read().split())]


_processes: dict[str, _Process] = {}


def program_round(given: dict[str, Any]) -> Any:
    """Run one round of a program.

    Args:
        given: The `key` of the program, the time `now`, the next `answers` to its calls, the number
            of answers sent `before`, and whether `more` of them follow. To begin it anew, also what
            `_Program` takes.

    Returns:
        `{asks}`, or `{value}`, or `{error}`. None: no process has the program in this state.

    Raises:
        Crashed: Its process ended.
    """
    key = given["key"]
    if "code" in given:
        if key in _processes:
            _processes.pop(key).end()
        _processes[key] = _Process(given)
    elif key not in _processes or _processes[key].known != given["before"]:
        return None
    process = _processes[key]
    process.answers += given["answers"]
    process.known += len(given["answers"])
    if given["more"]:
        return {}
    made = None
    try:
        made = process.round(given["now"])
    finally:
        if not isinstance(made, dict) or "asks" not in made:
            _processes.pop(key).end()
    return made
