"""Runs programs of models inside a sandbox. This file is sent there as text, and runs alone.

A program is a coroutine. It runs until all that it does waits for answers of tools. Then its calls
go to the host, and the next round begins with their answers. Between rounds it is suspended. If
its process is gone, it runs again from the start with the recorded answers.

The host trusts nothing that this returns. The sandbox may have Python 3.9.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import datetime
import io
import json
import linecache
import os
import random
import time
import traceback
from collections.abc import Iterator
from typing import Any, Callable, Optional  # noqa: UP035 - Python 3.9

_FILE = "<program>"
_PRINTED = 10_000
"""Maximum characters kept of a program's output."""
_PASSES = 10
"""Passes of the event loop without a further call, after which a round is complete."""


class ToolError(Exception):
    """A call of a tool failed, or was refused."""


class _Program:
    """A program that runs.

    Args:
        given: Its `code`, the `tools` with their parameters, the `seed` of chance, and the time at
            which it `began`.
    """

    def __init__(self, given: dict[str, Any]) -> None:
        self.began = float(given["began"])
        self.chance = random.Random(given["seed"])
        self.recorded: list[dict[str, Any]] = []
        self.calls: list[dict[str, Any]] = []
        self.delivered = 0
        self.printed = io.StringIO()
        self._waiting: list[asyncio.Future[Any]] = []
        self._loop = asyncio.get_running_loop()
        self._changed: Optional[asyncio.Future[None]] = None  # noqa: UP045 - Python 3.9
        names: dict[str, Any] = {"__name__": "__main__", "ToolError": ToolError}
        names.update({name: self._tool(name, takes) for name, takes in given["tools"].items()})
        self.task = self._loop.create_task(self._run(str(given["code"]), names))
        self.task.add_done_callback(lambda _: self._wake())

    async def _run(self, code: str, names: dict[str, Any]) -> Any:
        random.seed(self.chance.random())
        linecache.cache[_FILE] = (len(code), None, code.splitlines(keepends=True), _FILE)
        exec(_compiled(code), names)
        return _as_data(await names["__program__"]())

    def _tool(self, name: str, takes: list[str]) -> Callable[..., Any]:
        async def tool(*values: Any, **named: Any) -> Any:
            if len(values) > len(takes):
                raise TypeError(f"{name}() takes {len(takes)} arguments, not {len(values)}")
            twice = [one for one in takes[: len(values)] if one in named]
            if twice:
                raise TypeError(f"{name}() got two values for {twice[0]!r}")
            given = dict(zip(takes, values))  # noqa: B905 - Python 3.9
            return await self._call(name, {**given, **named})

        tool.__name__ = tool.__qualname__ = name
        return tool

    async def _call(self, name: str, args: dict[str, Any]) -> Any:
        plain = json.loads(json.dumps(args, allow_nan=False))
        self.calls.append({"name": name, "args": plain})
        answer = self._loop.create_future()
        self._waiting.append(answer)
        self._wake()
        return await answer

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    async def round(self) -> dict[str, Any]:
        """Continue until the program ends or needs answers that are not recorded."""
        while True:
            await self._settled()
            if self.task.done():
                if self.delivered < len(self.recorded):
                    return self._differs("it ended before them")
                return self._ended()
            if self.delivered == len(self.recorded):
                return {"asks": self.calls[self.delivered :]}
            if (fault := self._deliver()) is not None:
                self.task.cancel()
                return self._differs(fault)

    async def _settled(self) -> None:
        """Wait until the program has ended, or all its calls of this round are made."""
        while not self.task.done() and len(self.calls) == self.delivered:
            self._changed = self._loop.create_future()
            await self._changed
        seen = -1
        while seen != len(self.calls):
            seen = len(self.calls)
            for _ in range(_PASSES):
                await asyncio.sleep(0)

    def _deliver(self) -> Optional[str]:  # noqa: UP045 - Python 3.9
        """Answer the calls of this round. Return how they differ from those that are recorded."""
        due = self.recorded[self.delivered : len(self.calls)]
        for call, answer in zip(self.calls[self.delivered :], due):  # noqa: B905 - Python 3.9
            if (call["name"], call["args"]) != (answer["name"], answer["args"]):
                return f"it called {call['name']} instead of {answer['name']}, or with other values"
        if len(self.calls) > len(self.recorded):
            return "it called more tools at once"
        for answer in due:
            waiting = self._waiting.pop(0)
            if waiting.done():
                continue
            if answer["error"] is None:
                waiting.set_result(answer["result"])
            else:
                waiting.set_exception(ToolError(answer["error"]))
        self.delivered = len(self.calls)
        return None

    def _ended(self) -> dict[str, Any]:
        printed = self.printed.getvalue()
        if self.task.cancelled():
            return {"error": "it was cancelled", "printed": printed}
        error = self.task.exception()
        if error is None:
            return {"value": self.task.result(), "printed": printed}
        frames = traceback.TracebackException.from_exception(error)
        frames.stack[:] = [frame for frame in frames.stack if frame.filename == _FILE]
        return {"error": "".join(frames.format()), "printed": printed}

    def _differs(self, how: str) -> dict[str, Any]:
        message = (
            "the program had to run again, and did not repeat its earlier calls: "
            f"{how}. Its calls may depend only on answers of tools, random, uuid and time"
        )
        return {"error": message, "printed": self.printed.getvalue()}

    @contextlib.contextmanager
    def surroundings(self) -> Iterator[None]:
        """Fix time and chance, so that a repetition makes the same calls, and keep the output."""
        now, printed = self.began, _Printed(self.printed)

        class Moment(datetime.datetime):
            @classmethod
            def now(cls, tz: Any = None) -> Any:
                return cls.fromtimestamp(now, tz)

            @classmethod
            def utcnow(cls) -> Any:
                return cls.fromtimestamp(now, datetime.timezone.utc).replace(tzinfo=None)  # noqa: UP017

        class Day(datetime.date):
            @classmethod
            def today(cls) -> Any:
                return cls.fromtimestamp(now)

        fixed: list[tuple[Any, str, Any]] = [
            (os, "urandom", self._random_bytes),
            (random, "_urandom", self._random_bytes),
            (time, "time", lambda: now),
            (time, "time_ns", lambda: int(now * 1e9)),
            (datetime, "datetime", Moment),
            (datetime, "date", Day),
        ]
        before = [(module, name, getattr(module, name)) for module, name, _ in fixed]
        for module, name, value in fixed:
            setattr(module, name, value)
        try:
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                yield
        finally:
            for module, name, value in before:
                setattr(module, name, value)

    def _random_bytes(self, number: int) -> bytes:
        return self.chance.getrandbits(number * 8).to_bytes(number, "big") if number else b""


class _Printed(io.TextIOBase):
    """Keeps the beginning of the output."""

    def __init__(self, kept: io.StringIO) -> None:
        self._kept = kept

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._kept.write(text[: max(0, _PRINTED - self._kept.tell())])
        return len(text)


def _compiled(code: str) -> Any:
    """Return a program as the body of a coroutine, which returns its last expression."""
    body = ast.parse(code, _FILE).body or [ast.Pass()]
    last = body[-1]
    if isinstance(last, ast.Expr):
        body[-1] = ast.copy_location(ast.Return(last.value), last)
    tree = ast.parse("async def __program__(): pass")
    tree.body[0].body = body  # type: ignore[attr-defined]
    return compile(ast.fix_missing_locations(tree), _FILE, "exec")


def _as_data(value: Any) -> Any:
    try:
        return json.loads(json.dumps(value, default=str, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        return repr(value)


_programs: dict[str, _Program] = {}


async def program_round(given: dict[str, Any]) -> Any:
    """Run one round of a program.

    Args:
        given: The `key` of the program, the `answers` to its calls, and the number of calls
            answered `before`. To begin it anew, also what `_Program` takes.

    Returns:
        `{asks}`, or `{value, printed}`, or `{error, printed}`. None: this process does not know the
        program in this state.
    """
    program = _programs.get(given["key"])
    if "code" in given:
        if program is not None:
            program.task.cancel()
        program = _programs[given["key"]] = _Program(given)
    elif program is None or program.delivered != given["before"]:
        return None
    program.recorded += given["answers"]
    with program.surroundings():
        made = await program.round()
    if "asks" not in made:
        _programs.pop(given["key"], None)
    return made
