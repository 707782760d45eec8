"""What all kinds that run programs have in common: a sandbox, a supervisor in it, and its files.

A kind adds what a call is. Where the sandbox is does not matter to it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from flowengine.sdk import (
    EnvironmentUnavailable,
    LimitExceeded,
    ValidationError,
)
from flowengine.sdk.environments import (
    Capabilities,
    Provider,
    Request,
    Resource,
    Sandbox,
    Spec,
    awaitable,
    blocking,
)
from flowengine_envs.channel import COMMAND, Channel
from flowengine_envs.results import CommandResult, OnOutput, Streams
from flowengine_envs.supervisor.frames import PIECE

if TYPE_CHECKING:
    from flowengine.sdk.models import Limits

OUTPUT = 100_000
"""Bytes kept of each stream of a call, where the spec says nothing."""
FILE = 256 * 1024 * 1024
"""Bytes of output that a file of the workspace may have."""
TIMEOUT = 30.0
"""Seconds of a call, where neither the spec nor the caller says anything."""
UNBOUNDED = float("inf")
"""As a timeout: no bound but the spec's. Steps have a `timeout` of their own."""
GRACE = 2.0
"""Seconds between being told to end and being killed."""
OWN = ".flowengine"
"""Folder of the workspace for the home folder, output files and what steps hand in."""
SEARCH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_PIP = """\
[global]
disable-pip-version-check = true
[install]
user = true
break-system-packages = true
"""
"""Packages go below the home folder, that is into the workspace, and so last as long as it."""
_NOT_STARTED = {2: 127, 20: 127, 13: 126, 8: 126}
"""Number of an error → the exit code that shells have for it."""


class Entry(NamedTuple):
    """Something in the workspace."""

    path: str
    """Relative to the workspace."""
    kind: str
    """`file`, `folder`, `link`, `pipe`, `socket`, `device`."""
    size: int
    mode: int
    modified: float
    """Seconds since 1970."""


class Supervised(Resource):
    """An open sandbox with a supervisor in it.

    Args:
        request: What was asked for.
        sandbox: The open sandbox.
        channel: The connection to its supervisor.
    """

    def __init__(self, request: Request, sandbox: Sandbox, channel: Channel) -> None:
        super().__init__(request)
        self.sandbox = sandbox
        self.limits: Limits = request.limits
        self.workspace = request.workspace
        """Folder on the host. Programs can put links there: read it with `get`, not by hand."""
        self._channel = channel
        self._spent = 0.0
        self._variables = variables(request, sandbox)

    @property
    def workdir(self) -> str:
        """The workspace as programs see it."""
        return self.sandbox.workdir

    @property
    def isolation(self) -> str:
        """How far programs are kept from the machine: `container`, `namespace`, `none`."""
        return self.sandbox.capabilities().isolation

    @property
    def healthy(self) -> bool:
        """Whether it can be used, as far as is known at once."""
        return self._channel.alive and self.sandbox.alive()

    async def _put(self, path: str, data: bytes | Path, mode: int = 0o644) -> None:
        """Write a file of the workspace; its folders are made.

        Args:
            path: Relative to the workspace, or absolute as programs see it.
            data: Its bytes, or a file of the host.
            mode: Its permissions.

        Raises:
            PathEscape: The path leads out of the workspace.
            NotAFile: There is something of this name that is no file.
        """
        exchange = self._channel.begin("put", about=repr(path), path=path, mode=mode)
        try:
            async for piece, last in _pieces(data):
                if exchange.done.done():
                    break
                self._channel.tell("write", piece, to=exchange.id, last=last)
                await self._channel.drained()
        except BaseException:
            self._channel.tell("cancel", to=exchange.id)
            raise
        await self._channel.end(exchange)

    async def _get(self, path: str) -> bytes:
        """Read a file of the workspace.

        Args:
            path: Relative to the workspace, or absolute as programs see it.

        Returns:
            Its bytes.

        Raises:
            PathEscape: The path leads out of the workspace.
            NotAFile: There is no such file.
        """
        parts: list[bytes] = []
        await self._read(path, parts.append)
        return b"".join(parts)

    async def _fetch(self, path: str, to: Path) -> None:
        """Copy a file of the workspace to the host, with its permissions.

        Args:
            path: Relative to the workspace, or absolute as programs see it.
            to: The file to write.

        Raises:
            PathEscape: The path leads out of the workspace.
            NotAFile: There is no such file.
        """
        copy = _Copy(to)
        try:
            copy.finish(await self._read(path, copy.write))
        except BaseException:
            copy.drop()
            raise

    async def _read(self, path: str, take: Callable[[bytes], Any]) -> int:
        mode = 0o644

        def said(header: dict[str, Any], payload: bytes) -> None:
            nonlocal mode
            mode = header.get("mode", mode)
            take(payload)

        await self._channel.request("get", about=repr(path), said=said, path=path)
        return mode

    async def _list(self, path: str = ".", *, deep: bool = False) -> list[Entry]:
        """List a folder of the workspace.

        Args:
            path: Relative to the workspace, or absolute as programs see it.
            deep: Whether with all below it.

        Returns:
            What is there, sorted by path; links are not followed.

        Raises:
            PathEscape: The path leads out of the workspace.
            NotAFile: There is no such folder.
        """
        answer = await self._channel.request("list", about=repr(path), path=path, deep=deep)
        return [Entry(**entry) for entry in answer["entries"]]

    async def _remove(self, path: str) -> None:
        """Remove a file or an empty folder of the workspace; of a link the link.

        Args:
            path: Relative to the workspace, or absolute as programs see it.

        Raises:
            PathEscape: The path leads out of the workspace.
            NotAFile: There is no such thing.
        """
        await self._channel.request("remove", about=repr(path), path=path)

    put = blocking(_put)
    async_put = awaitable(_put)
    get = blocking(_get)
    async_get = awaitable(_get)
    fetch = blocking(_fetch)
    async_fetch = awaitable(_fetch)
    list = blocking(_list)
    async_list = awaitable(_list)
    remove = blocking(_remove)
    async_remove = awaitable(_remove)

    async def ping(self) -> bool:
        """Return whether the supervisor answers; on the background loop."""
        return await self._channel.ping()

    async def program(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        on_output: OnOutput | None = None,
    ) -> CommandResult:
        """Run a program to its end; on the background loop.

        Args:
            argv: Program and arguments; no shell.
            cwd: Working directory inside; default: the workspace.
            timeout: Seconds; default and maximum: the spec's.
            env: Variables beside the declared ones.
            stdin: What it reads; None: nothing.
            on_output: Called with output as it comes.

        Returns:
            How it ended and what it wrote.

        Raises:
            LimitExceeded: The time of all calls together is used up.
        """
        result, _ = await self._program(argv, cwd, timeout, env, stdin, on_output)
        return result

    async def _program(
        self,
        argv: Sequence[str],
        cwd: str | None,
        timeout: float | None,
        env: Mapping[str, str] | None,
        stdin: bytes | None,
        on_output: OnOutput | None,
        *,
        result: bool = False,
    ) -> tuple[CommandResult, bytes]:
        """Run a program; return its result and what it wrote to descriptor 3."""
        check_words(argv, env or {})
        streams = Streams(on_output)
        seconds = self._seconds(timeout)
        kills = self.sandbox.memory_kills()
        began = time.monotonic()
        exchange = self._channel.begin(
            "run",
            about=argv[0],
            said=streams.take,
            argv=[*argv],
            env={**self._variables, **(env or {})},
            cwd=self._directory(cwd),
            limits=dict(self.sandbox.resource_limits()),
            timeout=seconds,
            grace=GRACE,
            result=result,
            **self._bounds(),
        )
        if stdin is None:
            self._channel.tell("write", to=exchange.id, last=True)
        else:
            await self._feed(exchange, stdin)
        answer = await self._channel.end(exchange)
        duration = time.monotonic() - began
        self._spent += duration
        told = _command_result(answer, streams, duration)
        if told.signal == 9 and self.sandbox.memory_kills() > kills:
            told = told._replace(stderr=f"{told.stderr}{self._out_of_memory()}\n")
        if told.stopped == "disk":
            told = told._replace(stderr=f"{told.stderr}{self._disk_full()}\n")
        return told, answer["payload"]

    async def _feed(self, exchange: Any, data: bytes) -> None:
        try:
            async for piece, last in _pieces(data):
                self._channel.tell("write", piece, to=exchange.id, last=last)
                await self._channel.drained()
        except BaseException:
            self._channel.tell("cancel", to=exchange.id)
            raise

    def _bounds(self) -> dict[str, Any]:
        """Return how much output is kept, and how much goes to a file."""
        file = FILE if self.limits.disk is None else min(FILE, self.limits.disk)
        return {"kept": self.limits.output or OUTPUT, "file": file}

    def _directory(self, cwd: str | None) -> str:
        if cwd is None:
            return self.sandbox.workdir
        return cwd if cwd.startswith("/") else f"{self.sandbox.workdir}/{cwd}"

    def _seconds(self, timeout: float | None) -> float | None:
        return call_seconds(self.name, self.limits, self._spent, timeout)

    def _out_of_memory(self) -> str:
        return out_of_memory(self.limits)

    def _disk_full(self) -> str:
        return disk_full(self.limits)

    async def close(self) -> None:
        """End everything inside and take the sandbox away; on the background loop."""
        try:
            await self._channel.close()
        finally:
            await self.sandbox.close()


class _Copy:
    """A file of the host that is being written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("wb")
        self.write = self._file.write

    def finish(self, mode: int) -> None:
        self._file.close()
        self._path.chmod(mode & 0o777)

    def drop(self) -> None:
        self._file.close()
        self._path.unlink(missing_ok=True)


_Kind = TypeVar("_Kind", bound=Supervised)


class SupervisedProvider(Provider[_Kind]):
    """Base of providers whose resource is `Supervised`."""

    sandbox = "namespace"

    def capabilities(self, sandbox: Capabilities) -> Capabilities:
        """Return what the sandbox holds, and what a supervisor holds in each."""
        return sandbox.also(
            {
                "time": "the supervisor ends a call, and kills what does not end",
                "total_time": "the supervisor",
                "output": "cut in the sandbox; all of it is in a file of the workspace",
            }
        )

    async def probe(self, spec: Spec) -> None:
        """Nothing is needed beside the sandbox."""

    async def open(self, request: Request, make: Callable[..., _Kind], late: Any = None) -> _Kind:
        """Open the sandbox and start a supervisor in it.

        Args:
            request: What was asked for.
            make: Makes the resource from request, sandbox and channel.
            late: Called with output that comes after the end of its call.

        Returns:
            The resource.

        Raises:
            EnvironmentUnavailable: No sandbox was chosen.
        """
        if request.sandbox is None:
            raise EnvironmentUnavailable(f"{request.spec}: no sandbox was chosen for it")
        sandbox = request.sandbox(request)
        await sandbox.open()
        try:
            environment = {"LANG": "C.UTF-8"}
            program = await sandbox.start(COMMAND, env=environment)
            channel = Channel(program, f"{request.spec}", late)
            try:
                await channel.hello(request.deadline, **_facts(request, sandbox))
                return make(request, sandbox, channel)
            except BaseException:
                await asyncio.shield(channel.close(0))
                raise
        except BaseException:
            await asyncio.shield(sandbox.close())
            raise

    def health_check(self, resource: _Kind) -> bool:
        """Return whether its supervisor is there."""
        return resource.healthy

    async def release(self, resource: _Kind) -> None:
        """End everything inside; the workspace stays."""
        await resource.close()


def call_seconds(name: str, limits: Limits, spent: float, timeout: float | None) -> float | None:
    """Return how long a call may take; None: as long as it likes.

    Args:
        name: Names the environment in messages.
        limits: Of the environment.
        spent: Seconds that its calls have taken.
        timeout: Seconds that the caller asks for.

    Returns:
        Seconds.

    Raises:
        ValidationError: The timeout is no positive number.
        LimitExceeded: The time of all calls together is used up.
    """
    if timeout is not None and not timeout > 0:
        raise ValidationError(f"{name}: timeout must be a positive number, not {timeout}")
    seconds = limits.time or TIMEOUT if timeout is None else timeout
    if limits.time is not None:
        seconds = min(seconds, limits.time)
    total = limits.total_time
    if total is not None:
        if spent >= total:
            raise LimitExceeded(
                f"{name}: its calls have taken {spent:.1f} s, total_time is {total:g} s",
                data={"limit": "total_time", "value": total},
            )
        seconds = min(seconds, total - spent)
    return None if seconds == UNBOUNDED else seconds


def out_of_memory(limits: Limits) -> str:
    """Say that memory was at its limit."""
    limit = limits.memory
    return "out of memory" if limit is None else f"out of memory: the limit is {_size(limit)}"


def disk_full(limits: Limits) -> str:
    """Say that the workspace was at its limit."""
    return f"the workspace is full: its quota (limits.disk) is {_size(limits.disk or 0)}"


def variables(request: Request, sandbox: Sandbox) -> dict[str, str]:
    """Return the whole environment of programs: what is declared, and a few that are always there.

    Args:
        request: What was asked for; `env` of its config may hold secrets.
        sandbox: Where they run.

    Returns:
        Text by name.
    """
    declared = getattr(request.config, "env", None) or {}
    return {
        "PATH": SEARCH,
        "HOME": f"{sandbox.workdir}/{OWN}/home",
        "LANG": "C.UTF-8",
        **{name: revealed(value) for name, value in declared.items()},
        **sandbox.variables,
    }


def revealed(value: Any) -> str:
    """Return the text of a configuration's field that may be a secret."""
    return str(value.reveal()) if hasattr(value, "reveal") else str(value)


def _facts(request: Request, sandbox: Sandbox) -> dict[str, Any]:
    """Return what a supervisor has to know."""
    own = f"{sandbox.workdir}/{OWN}"
    return {
        "workspace": sandbox.workdir,
        "output": f"{own}/output",
        "quota": request.limits.disk,
        "folders": [f"{own}/home"],
        "files": {f"{own}/home/.config/pip/pip.conf": _PIP},
    }


def check_words(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Refuse what is no command, with `ValidationError`."""
    if not argv or not all(isinstance(word, str) for word in argv):
        raise ValidationError(f"a command is a text or a list of texts, not {argv!r}")
    for text in (*argv, *env, *env.values()):
        if "\0" in text:
            raise ValidationError("a command or variable has a null character")


def _command_result(answer: dict[str, Any], streams: Streams, duration: float) -> CommandResult:
    told = answer["streams"]
    stderr = streams.text("stderr", told["stderr"])
    exit_code = answer["exit_code"]
    if answer["failed"] is not None:
        import os

        exit_code = _NOT_STARTED.get(answer["failed"], 126)
        stderr += f"it cannot be started: {os.strerror(answer['failed'])}\n"
    elif exit_code is None:
        exit_code = 128 + answer["signal"]
    return CommandResult(
        exit_code=exit_code,
        stdout=streams.text("stdout", told["stdout"]),
        stderr=stderr,
        timed_out=answer["stopped"] == "timeout",
        truncated=any("left_out" in stream for stream in told.values()),
        duration=duration,
        signal=answer["signal"],
        stopped=answer["stopped"],
        stdout_file=told["stdout"].get("file"),
        stderr_file=told["stderr"].get("file"),
    )


async def _pieces(data: bytes | Path) -> Any:
    """Yield the pieces of bytes or of a file, and with each whether it is the last."""
    if isinstance(data, Path):
        with data.open("rb") as file:
            piece = file.read(PIECE)
            while True:
                following = file.read(PIECE)
                yield piece, not following
                if not following:
                    return
                piece = following
    view = memoryview(data)
    for start in range(0, max(len(view), 1), PIECE):
        yield bytes(view[start : start + PIECE]), start + PIECE >= len(view)


def _size(count: int) -> str:
    for unit, bytes_ in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= bytes_ and count % bytes_ == 0:
            return f"{count // bytes_} {unit}"
    return f"{count} bytes"
