"""Runs programs of models inside a sandbox. This file is sent there as text, and runs alone.

A program runs as a module that may use `await`, on its own event loop. When it can only wait for
answers of tools, its calls go to the host, and the next round begins with their answers. Between
rounds it is suspended. If its process is gone, it runs again from the start with the recorded
answers.

Whatever may lead a program to its next call is the same in each run: chance, the order of its
tasks, and the time, which passes only while it sleeps. Calls take no time on the clock of its
timers. The calendar is that of the host at the beginning of each round.

The host trusts nothing that this returns. The sandbox may have Python 3.9.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import datetime
import gc
import io
import json
import linecache
import os
import random
import selectors
import symtable
import sys
import threading
import time
import traceback
import types
import uuid
from collections.abc import Iterator
from ctypes import py_object, pythonapi
from typing import Any, Callable, Optional  # noqa: UP035 - Python 3.9

_FILE = "<program>"
_PRINTED = 40_000
"""Maximum bytes kept of a program's output."""
_TICK = 1e-6
"""Seconds that a look at a clock takes, so that no measured time is zero."""
_AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
_COROUTINE = 0x80
_sleep, _monotonic = time.sleep, time.monotonic


class ToolError(Exception):
    """A call of a tool failed, or was not made."""


ToolError.__module__ = "__main__"


class _Call:
    """A call of a tool, with its arguments as JSON, and its answer."""

    def __init__(self, name: str, args: str, answer: asyncio.Future[Any]) -> None:
        self.name = name
        self.args = args
        self.answer = answer


class _Selector(selectors.DefaultSelector):
    """Decides what happens when a program has nothing to do but wait."""

    program: _Program

    def select(self, timeout: Optional[float] = None) -> Any:  # noqa: UP045 - Python 3.9
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        program = self.program
        if not program.threads and (program.ends or program.open_calls):
            program.loop.stop()
            return []
        alone = len(self.get_map()) <= 1 and threading.active_count() == 1
        if timeout is not None and alone and program.repeats:
            program.elapsed += timeout
            return []
        began = _monotonic()
        ready = super().select(timeout)
        passed = _monotonic() - began
        program.elapsed += passed if timeout is None or ready else timeout
        return ready


class _Loop(asyncio.SelectorEventLoop):
    """The event loop of one program, whose time is that of the program."""

    def __init__(self, program: _Program) -> None:
        selector = _Selector()
        selector.program = self._program = program
        super().__init__(selector)

    def time(self) -> float:
        return self._program.elapsed

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        future = super().run_in_executor(executor, func, *args)
        self._program.threads += 1
        future.add_done_callback(self._ended)
        return future

    def _ended(self, _future: Any) -> None:
        self._program.threads -= 1


class _Program:
    """A program that runs.

    Args:
        given: Its `code`, the `tools`: for each the names of its parameters in Python and in its
            schema, the `seed` of chance, and the time at which it `began`.
    """

    def __init__(self, given: dict[str, Any]) -> None:
        self.elapsed = 0.0
        """Seconds on the clock of its timers."""
        self.epoch = float(given["began"])
        """What the calendar adds to them."""
        self.chance = random.Random(given["seed"])
        self.recorded: list[dict[str, Any]] = []
        self.calls: list[_Call] = []
        self.delivered = 0
        self.thread = threading.get_native_id()  # not that of a fork
        self.threads = 0
        """Threads that work for it, without those that wait for its calls."""
        self.ends = False
        self.exit: Optional[SystemExit] = None  # noqa: UP045 - Python 3.9
        self.loop = _Loop(self)
        self.output = _Output()
        self._code = str(given["code"])
        module = types.ModuleType("__main__")
        self.names = module.__dict__
        self.names["ToolError"] = ToolError
        self.names.update({name: self._tool(name, takes) for name, takes in given["tools"].items()})
        output: Any = self.output
        text = io.TextIOWrapper(output, "utf-8", "backslashreplace", write_through=True)
        self._own: _Entries = [
            (vars(sys), "stdout", text),
            (vars(sys), "stderr", text),
            (sys.modules, "__main__", module),
            # the last times that `uuid` has used
            *((vars(uuid), name, None) for name in vars(uuid) if name.startswith("_last_time")),
        ]
        self._random = random.Random(self.chance.random()).getstate()
        self.node = self.chance.getrandbits(48) | 1 << 40  # as of a machine without an address
        self.task = self.loop.create_task(self._run())
        self.task.add_done_callback(lambda _: self.loop.stop())

    running: Optional[_Program] = None  # noqa: UP045 - Python 3.9

    async def awaited(self, coro: Any) -> Any:
        """Await a coroutine for a thread, which waits for this program meanwhile.

        Threads are counted here, in the thread of the loop, so that no count is lost.
        """
        self.threads -= 1
        try:
            return await coro
        finally:
            self.threads += 1

    def looked_at(self, caller: types.FrameType) -> None:
        """Let a moment pass if the program itself looks at a clock."""
        if caller.f_globals is self.names:
            self.elapsed += _TICK

    @property
    def repeats(self) -> bool:
        """Whether it has not come to the end of its recorded calls."""
        return self.delivered < len(self.recorded)

    @property
    def open_calls(self) -> list[_Call]:
        """The calls without an answer."""
        return self.calls[self.delivered :]

    def now(self) -> float:
        """Return the time of the calendar, in seconds since 1970."""
        return self.epoch + self.elapsed

    async def _run(self) -> str:
        value = None
        for part in _parts(self._code):
            value = eval(part, self.names)
            if part.co_flags & _COROUTINE:
                value = await value
        if _FUNCTION in self.names:
            value = await self.names.pop(_FUNCTION)()
        return _as_json(value)

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
        call = _Call(name, text, self.loop.create_future())
        self.calls.append(call)
        try:
            return await call.answer
        except asyncio.CancelledError:
            if call in self.open_calls:  # the host does not know it yet
                self.calls.remove(call)
            raise

    def round(self, now: float) -> dict[str, Any]:
        """Continue until the program ends or needs answers that are not recorded.

        Args:
            now: The time of the host.
        """
        with self._surroundings():
            self.output.again()
            if not self.calls:
                self._run_on()
            while not self.ended:
                if not self.repeats:
                    return {"asks": [{"name": c.name, "args": c.args} for c in self.open_calls]}
                if (fault := self._deliver(now)) is not None:
                    return self._differs(fault)
                self._run_on()
            return self._differs("it ended before them") if self.repeats else self._outcome()

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.exit is not None or self.task.done()

    def _run_on(self) -> None:
        try:
            self.loop.run_forever()
        except SystemExit as exit:
            self.exit = exit

    def _deliver(self, now: float) -> Optional[str]:  # noqa: UP045 - Python 3.9
        """Answer the calls of this round. Return how they differ from those that are recorded."""
        last = len(self.calls)
        if last > len(self.recorded):
            return "it called more tools at once"
        made: dict[tuple[str, str], list[_Call]] = {}
        for call in reversed(self.open_calls):
            made.setdefault((call.name, call.args), []).append(call)
        for answer in self.recorded[self.delivered : last]:  # in the order of the first run
            same = made.get((answer["name"], answer["args"]))
            if not same:
                return f"it did not call {answer['name']} again, or with other values"
            if answer["error"] is None:
                same.pop().answer.set_result(answer["result"])
            else:
                same.pop().answer.set_exception(ToolError(answer["error"]))
        self.delivered = last
        then = float(self.recorded[last]["at"]) if self.repeats else now
        self.epoch = max(self.epoch, then - self.elapsed)
        return None

    def _outcome(self) -> dict[str, Any]:
        if self.exit is None and self.task.cancelled():
            return {"error": "it was cancelled"}
        known = self.task.exception() if self.task.done() else None
        error = self.exit or known
        if error is None or (isinstance(error, SystemExit) and not error.code):
            return {"value": "null" if error else self.task.result()}
        told = traceback.TracebackException(type(error), error, error.__traceback__)
        _keep_frames_of_program(told)
        return {"error": "".join(told.format())}

    def _differs(self, how: str) -> dict[str, Any]:
        return {
            "error": "the program had to run again, and did not repeat its earlier calls: "
            f"{how}. Its calls may depend only on answers of tools, random, uuid and time"
        }

    def close(self) -> None:
        """Cancel what is left of it, as `asyncio.run` does."""
        with self._surroundings():
            self.ends = True
            left = asyncio.all_tasks(self.loop)
            for task in left:
                task.cancel()
                task.add_done_callback(
                    lambda _: self.loop.stop() if all(task.done() for task in left) else None
                )
            with contextlib.suppress(SystemExit):
                if left:
                    self.loop.run_forever()
                with contextlib.suppress(RuntimeError):  # it waits for tools
                    self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            if self.task.done() and not self.task.cancelled():
                self.task.exception()
            self.names.clear()
            gc.collect()  # reports exceptions of tasks that were never retrieved
            self.loop.set_exception_handler(lambda *_: None)
            self.loop.close()

    @contextlib.contextmanager
    def _surroundings(self) -> Iterator[None]:
        """Run with its own module, output, clocks and chance."""
        lines = self._code.splitlines(keepends=True)
        linecache.cache[_FILE] = (len(self._code), None, lines, _FILE)
        before, chance = _exchanged(self._own), random.getstate()
        random.setstate(self._random)
        _Program.running = self
        try:
            yield
        finally:
            _Program.running = None
            self._own, self._random = _exchanged(before), random.getstate()
            random.setstate(chance)


class _Output(io.BufferedIOBase):
    """Writes output, and keeps its beginning for the next round."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self.quiet = False

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 1

    def write(self, data: Any) -> int:
        piece = bytes(data)
        shown = piece[: max(0, _PRINTED - len(self._kept))]
        self._kept += shown
        self._write(shown)
        return len(piece)

    def again(self) -> None:
        """Write what earlier rounds have written."""
        self._write(bytes(self._kept))

    def _write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # the program may have closed it
            while data and not self.quiet:
                data = data[os.write(1, data) :]


# The program as code


_FUNCTION = "<module>"
"""Name of a program that returns a value, in tracebacks."""


def _parts(code: str) -> list[types.CodeType]:
    """Return the code of a module whose last part is its last expression.

    A program with a `return` outside of functions is a function whose names are those of a module.
    """
    tree = ast.parse(code, _FILE)
    reader = _Reader()
    body = [reader.visit(one) for one in tree.body]
    if reader.returns:
        return [_compiled(ast.Module(_as_function(body), []), "exec")]
    parts = []
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    parts.append(_compiled(ast.Module(body, []), "exec"))
    if last is not None:
        parts.append(_compiled(ast.Expression(last.value), "eval"))
    return parts


def _compiled(tree: Any, mode: str) -> types.CodeType:
    code: types.CodeType = compile(
        ast.fix_missing_locations(tree), _FILE, mode, _AWAIT, dont_inherit=True
    )
    return code


class _Reader(ast.NodeTransformer):
    """Awaits the argument of `asyncio.run`, since the event loop runs already."""

    def __init__(self) -> None:
        self.returns = False

    def _leave(self, node: Any) -> Any:
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _leave
    visit_Lambda = visit_GeneratorExp = _leave

    def visit_Return(self, node: Any) -> Any:
        self.returns = True
        return self.generic_visit(node)

    def visit_Call(self, node: Any) -> Any:
        self.generic_visit(node)
        if getattr(node.func, "attr", "") != "run" or ast.unparse(node.func) != "asyncio.run":
            return node
        return ast.copy_location(ast.Await(node.args[0]), node) if len(node.args) == 1 else node


class _Plain(_Reader):
    """Writes what only a module may contain in a way that a function may."""

    def visit_AnnAssign(self, node: Any) -> Any:
        if not isinstance(node.target, ast.Name):
            return node
        made = ast.Assign([node.target], node.value) if node.value else ast.Pass()
        return ast.copy_location(made, node)

    def visit_ImportFrom(self, node: Any) -> Any:
        if node.names[0].name != "*":
            return node
        call = ast.parse(f"exec({ast.unparse(node)!r}, globals())").body[0]
        return ast.copy_location(call, node)


def _as_function(body: list[Any]) -> list[Any]:
    begin = 0
    while getattr(body[begin], "module", "") == "__future__" or _is_text(body[begin]):
        begin += 1
    head, body = body[:begin], [_Plain().visit(one) for one in body[begin:]]
    if isinstance(body[-1], ast.Expr):
        body[-1] = ast.copy_location(ast.Return(body[-1].value), body[-1])
    [function] = ast.parse("async def program(): pass").body
    function.body = body  # type: ignore[attr-defined]
    [table] = symtable.symtable(ast.unparse(function), _FILE, "exec").get_children()
    names = [symbol.get_name() for symbol in table.get_symbols() if symbol.is_local()]
    if names:
        body.insert(0, ast.Global(names))
    function.name = _FUNCTION  # type: ignore[attr-defined]
    return [*head, function]


def _is_text(node: Any) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


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


# Clocks and chance, which ask the program that runs


_Entries = list[tuple[dict[str, Any], str, Any]]


def _exchanged(entries: _Entries) -> _Entries:
    """Set entries of dicts, and return the former ones."""
    before = [(place, name, place.get(name)) for place, name, _ in entries]
    for place, name, value in entries:
        place[name] = value
    return before


def _fix(place: Any, name: str, of: Callable[..., Any]) -> None:
    """Replace a function of a module or class, for programs only.

    Args:
        place: The module or class.
        name: Its name.
        of: Called with the program, the original and the arguments.
    """
    original = getattr(place, name)

    def fixed(*values: Any, **named: Any) -> Any:
        program = _Program.running
        if program is None:
            return original(*values, **named)
        program.looked_at(sys._getframe(1))
        return of(program, original, *values, **named)

    fixed.__name__ = fixed.__qualname__ = name
    fixed.__doc__ = original.__doc__
    setattr(place, name, fixed)


def _fix_threads() -> None:
    """Let threads call tools through the program's loop, and have their own loops."""

    def submitted(program: _Program, original: Any, coro: Any, loop: Any) -> Any:
        if loop is program.loop and threading.get_native_id() != program.thread:
            coro = program.awaited(coro)
        return original(coro, loop)

    _fix(asyncio, "run_coroutine_threadsafe", submitted)
    asyncio.BaseEventLoop.time = lambda self: _monotonic()  # type: ignore[method-assign]


def _fix_clocks() -> None:
    local = time.localtime

    def calendar(program: _Program, *_: Any) -> float:
        return program.now()

    def timers(program: _Program, *_: Any) -> float:
        return program.elapsed

    def of(program: _Program, _: Any, id: int) -> float:
        return program.now() if id == time.CLOCK_REALTIME else program.elapsed

    clocks = {"time": calendar, "clock_gettime": of}
    for name in ("monotonic", "perf_counter", "process_time", "thread_time"):
        clocks[name] = timers
    for name, clock in clocks.items():
        _fix(time, name, clock)
        _fix(time, f"{name}_ns", lambda *given, clock=clock: round(clock(*given) * 1e9))
    for name in ("localtime", "gmtime", "ctime"):
        _fix(time, name, lambda p, o, at=None: o(p.now() if at is None else at))
    _fix(time, "asctime", lambda p, o, at=None: o(local(p.now()) if at is None else at))
    _fix(time, "strftime", lambda p, o, form, at=None: o(form, at or local(p.now())))
    _fix(time, "sleep", _slept)
    _fix(threading.Condition, "wait", _waited)
    _fix(selectors.PollSelector, "select", _waited)


def _slept(program: _Program, original: Callable[[float], None], seconds: float) -> None:
    alone = threading.active_count() == 1 and threading.get_native_id() == program.thread
    original(0 if program.repeats and seconds > 0 and alone else seconds)
    program.elapsed += seconds


def _waited(program: _Program, original: Any, place: Any, timeout: Any = None) -> Any:
    made = original(place, timeout)
    program.elapsed += 0 if made else max(_TICK, timeout or 0)
    return made


def _fix_dates() -> None:
    """Let `datetime.now` ask the program, too, under all names that modules have for the class."""
    [names] = (one for one in gc.get_referents(datetime.datetime.__dict__) if type(one) is dict)
    now_of, utc_of = names["now"], names["utcnow"]

    def now(cls: Any, tz: Any = None) -> Any:
        program = _Program.running
        if program is None:
            return now_of.__get__(None, cls)(tz)
        program.looked_at(sys._getframe(1))
        return cls.fromtimestamp(program.now(), tz)

    def utcnow(cls: Any) -> Any:
        utc = datetime.timezone.utc  # noqa: UP017
        is_free = _Program.running is None
        return utc_of.__get__(None, cls)() if is_free else cls.now(utc).replace(tzinfo=None)

    names.update(now=classmethod(now), utcnow=classmethod(utcnow))
    pythonapi.PyType_Modified(py_object(datetime.datetime))


def _fix_chance() -> None:
    def some(program: _Program, _: Any, number: int, *_flags: int) -> bytes:
        return program.chance.getrandbits(number * 8).to_bytes(number, "big") if number else b""

    def seeded(program: _Program, original: Any, *values: Any, **named: Any) -> None:
        mine = [one for one in values if isinstance(one, random.Random)]
        if named.get("a") is None and all(one is None for one in values[len(mine) :]):
            values, named = tuple(mine), {"a": program.chance.getrandbits(256)}
        original(*values, **named)

    for place, name in ((os, "urandom"), (os, "getrandom"), (random, "_urandom")):
        _fix(place, name, some)
    _fix(random, "seed", seeded)
    _fix(random.Random, "seed", seeded)
    uuid._generate_time_safe = None  # type: ignore[attr-defined] # it reads a clock by itself
    _fix(uuid, "getnode", lambda program, _: program.node)


_fix_threads()
_fix_clocks()
_fix_dates()
_fix_chance()
_programs: dict[str, _Program] = {}


def program_round(given: dict[str, Any]) -> Any:
    """Run one round of a program.

    Args:
        given: The `key` of the program, the time `now`, the next `answers` to its calls, the number
            of answers sent `before`, and whether `more` of them follow. To begin it anew, also what
            `_Program` takes.

    Returns:
        `{asks}`, or `{value}`, or `{error}`. None: this process does not know the program in this
        state.
    """
    key = given["key"]
    if "code" in given:
        if key in _programs:
            _programs[key].output.quiet = True  # this run writes it again
            _programs.pop(key).close()
        _programs[key] = _Program(given)
    elif key not in _programs or len(_programs[key].recorded) != given["before"]:
        return None
    program = _programs[key]
    program.recorded += given["answers"]
    if given["more"]:
        return {}
    made: dict[str, Any] = {}
    try:
        made = program.round(given["now"])
    finally:
        if "asks" not in made:
            _programs.pop(key).close()
    return made
