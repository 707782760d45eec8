"""An MCP server started as a process: one JSON message per line, in both directions.

The transport is our own because no server is trusted, wherever it runs. Messages have a maximum
size, only the end of the error stream is kept, and the whole process tree ends with the server.
Source: the Model Context Protocol, revision 2025-11-25, Transports / stdio.
"""

from __future__ import annotations

import asyncio
import math
import os
import shutil
import signal
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import anyio

from flowengine.sdk import EnvironmentStartFailed, EnvironmentUnavailable
from flowengine.sdk.environments import VARIABLE, Program, Request, Sandbox
from flowengine.sdk.processes import Family
from flowengine_envs.kinds.supervised import start_program
from flowengine_envs.mcp import library
from flowengine_envs.mcp.downloads import ProgramDownload, download_of
from flowengine_envs.mcp.messages import ENDS, TOO_LARGE, PendingRequests, too_large
from flowengine_envs.sandboxes.installations import OWN, is_below
from flowengine_envs.sandboxes.mounts import identities
from flowengine_envs.sandboxes.processes import PATH

HOST = "host"
"""The provider without isolation."""
_ENDING = 20.0
"""Seconds within which the first process must have killed the server's descendants."""


class SandboxedServer:
    """One run of a server in its own sandbox, or on the host.

    Args:
        request: The request to open the environment. Its id and mark belong only to this server.
        config: The server's config.
    """

    def __init__(self, request: Request, config: Any) -> None:
        assert request.sandbox is not None
        self._config = config
        self._on_host = request.spec.provider == HOST
        self._folder, self._path = "", PATH
        self._download: ProgramDownload | None = None if self._on_host else download_of(config)
        self._request = self._here(request) if self._on_host else self._inside(request)
        assert self._request.sandbox is not None
        self._sandbox: Sandbox = self._request.sandbox(self._request)
        self._open = False
        self._folder = self._folder or os.path.join(self._sandbox.workdir, config.cwd or "")
        self._program: Program | None = None

    async def start(self) -> Program:
        """Open the sandbox and start the server. If this raises, nothing is left behind.

        Returns:
            The server, with its streams.

        Raises:
            EnvironmentStartFailed: The program or directory does not exist.
        """
        self._open = True
        try:
            await self._sandbox.open()
            self._program = await self._start()
        except BaseException:
            await asyncio.shield(self.end())
            raise
        return self._program

    async def _start(self) -> Program:
        request, sandbox = self._request, self._sandbox
        env = {"PATH": self._path, "HOME": sandbox.home, "LANG": "C.UTF-8"}
        if sandbox.proxies:
            env["NODE_USE_ENV_PROXY"] = "1"  # Otherwise Node.js ignores the proxy.
        if self._download is not None:
            env |= self._download.variables
        env |= {name: text_of(value) for name, value in self._config.env.items()}
        if self._on_host:
            return await start_program(sandbox, self._argv, env=env, cwd=self._folder, limits={})
        ids = await asyncio.to_thread(identities, request) if sandbox.same_files else {}
        return await start_program(
            sandbox,
            self._argv,
            env=env,
            cwd=self._folder,
            limits=sandbox.resource_limits(),
            mounts=ids,
        )

    def send_signal(self, number: signal.Signals) -> bool:
        """Send a signal to the first process, which must be on this machine."""
        if not self._on_host or self._program is None or self._program.returncode is not None:
            return False
        with suppress(ProcessLookupError):
            os.kill(self._program.pid, number)
        return True

    async def end(self) -> None:
        """Kill the server with its descendants, and remove the sandbox."""
        if not self._open:
            return
        self._open = False
        if self._on_host:
            self.send_signal(signal.SIGCONT)  # A stopped process would not end.
            if self.send_signal(signal.SIGINT) and self._program is not None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_ENDING):
                        await self._program.wait()
            # Processes that the first process left, because it was killed, have the mark.
            await asyncio.to_thread(Family(self._request.mark, variable=VARIABLE).kill)
        await self._sandbox.close()

    def why(self) -> str:
        """Return the sandbox's part in the end of the server, for messages."""
        reasons = ""
        if self._sandbox.memory_kills():
            reasons += "; a process was killed: its memory was used up (limits.memory)"
        refused = [what for _, what in self._sandbox.refused_connections()]
        if refused:
            reasons += f"; it was refused connections, the last one: {refused[-1]}"
        if self._download is not None:
            reasons += self._download.missing(self._request.policy.network)
        return reasons

    # Start of the server

    def _here(self, request: Request) -> Request:
        """Return the request for a server that runs on this machine, in one of its directories."""
        self._argv = _argv(request, self._config)
        self._path = os.environ.get("PATH", os.defpath)
        self._folder = os.path.abspath(os.path.join(request.spec.folder, self._config.cwd or "."))
        return request

    def _inside(self, request: Request) -> Request:
        """Return the request for a server that sees only its sandbox."""
        spec, policy = request.spec, request.policy
        [program, *_] = self._argv = _words(self._config)
        shown = None
        if spec.provider == "namespace" and not is_below(program, (*OWN, *request.mounts)):
            shown = _program_of_machine(request, program)
        if self._download is not None:
            policy = self._reaching(self._download, request)
        config = request.config.model_copy(update={"interpreter": shown, "whole_folder": False})
        if shown is not None:
            self._argv[0] = shown
            self._path = f"{os.path.dirname(shown)}:{PATH}"
        spec = spec._replace(config=config, policy=policy)
        return request._replace(spec=spec, config=config, policy=policy)

    def _reaching(self, download: ProgramDownload, request: Request) -> Any:
        """Return a policy that allows downloading the server, unless the spec sets one."""
        policy, missing = request.policy, download.missing(request.policy.network)
        if policy.network is None:
            if not download.registries:
                raise EnvironmentUnavailable(
                    f"{request.spec}: it is not known where {download.program} fetches from; name "
                    "the registry in policy.network: [host:port]"
                )
            return policy.model_copy(update={"network": download.registries})
        was_fetched = request.spec.provider != "namespace" or any(request.home.iterdir())
        if missing and not was_fetched:
            raise EnvironmentUnavailable(f"{request.spec}{missing}; add it, or install the server")
        return policy


def text_of(value: Any) -> str:
    """Return the text that a configuration contains or refers to."""
    return value if isinstance(value, str) else str(value.reveal())


def _words(config: Any) -> list[str]:
    """Return program and arguments as configured."""
    command = config.command
    return [*([command] if isinstance(command, str) else command), *config.args]


def _argv(request: Request, config: Any) -> list[str]:
    """Return program and arguments, with the absolute path of an existing program."""
    program, *args = _words(config)
    if os.path.dirname(program):  # Relative to the directory that the file's paths refer to.
        program = os.path.abspath(os.path.join(request.spec.folder, program))
    return [_program_inside(request, program), *args]


def _program_of_machine(request: Request, program: str) -> str | None:
    """Return a program of this machine to show in the sandbox. None: it is already there."""
    is_inside = "/" in program and not os.path.isabs(program)
    # System programs come first: one earlier in PATH may be a shim that needs the home directory.
    if is_inside or ("/" not in program and shutil.which(program, path=PATH)):
        return None
    path = _program_inside(request, program)
    return None if is_below(path, ("/usr", "/bin", "/sbin")) else path


def _program_inside(request: Request, program: str) -> str:
    """Return the absolute path of a program of this machine."""
    path = shutil.which(program)
    if path is None:
        message = f"{request.spec}: there is no program {program}"
        raise EnvironmentStartFailed(message, retryable=False)
    return os.path.abspath(path)


GRACE = 2.0
"""Seconds for a server to end after its input ends, and again after SIGTERM."""
_LAST_WORDS = 1 << 20
"""Bytes that it may write in that time. A server that writes more is not about to end."""
_TAIL = 20
"""Lines of the error stream that are kept."""
_LINE = 2000
"""Characters of such a line."""
_BLOCK = 1 << 16


class StdioServer:
    """One run of a server: an asynchronous context with the two streams of the session.

    Args:
        sandboxed: Its sandbox.
        largest: Maximum bytes of a message.
    """

    def __init__(self, sandboxed: SandboxedServer, *, largest: int) -> None:
        self._sandboxed = sandboxed
        self._largest = largest
        self._process: Program | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._requests = PendingRequests()
        self.errors: deque[str] = deque(maxlen=_TAIL)
        """The last lines of its error stream."""

    @property
    def ended(self) -> bool:
        """Whether it has closed its output itself, as an exiting program does."""
        return bool(self._tasks) and self._tasks[0].done() and not self._tasks[0].cancelled()

    def last_output(self) -> str:
        """Return the server's last output outside the protocol, for messages."""
        text = "; it wrote last:\n" + "\n".join(self.errors) if self.errors else ""
        if self._requests.noise:
            text += (
                f"; lines on its standard output that are not messages: {self._requests.noise}, "
                f"the last one: {self._requests.last_noise}"
            )
        return text + self._sandboxed.why()

    async def __aenter__(self) -> tuple[Any, Any]:
        """Start the server.

        Returns:
            The streams from the server and to it.

        Raises:
            EnvironmentStartFailed: It cannot be started.
        """
        process = self._process = await self._sandboxed.start()
        assert process.stdin is not None
        assert process.stdout is not None
        self._to_session, from_server = anyio.create_memory_object_stream[Any](0)
        to_server, self._from_session = anyio.create_memory_object_stream[Any](0)
        self._tasks = [
            asyncio.create_task(self._read(process.stdout)),
            asyncio.create_task(self._write(process.stdin)),
            asyncio.create_task(self._listen(process.stderr)),
        ]
        return from_server, to_server

    async def __aexit__(self, *exc_info: object) -> None:
        """End the server and its descendants."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        # Its messages are no longer needed, but a full pipe would keep it from ending.
        self._tasks[0].cancel()
        await asyncio.wait(self._tasks[:1])
        process.stdin.close()
        polite = exc_info[0] is None  # A server that did not respond receives no more time.
        if polite and not await self._ends(process) and self._sandboxed.send_signal(signal.SIGTERM):
            await self._ends(process)
        await asyncio.shield(self._sandboxed.end())  # Nothing else would remove the sandbox.
        with suppress(asyncio.TimeoutError):
            async with asyncio.timeout(GRACE):
                await _drain(process.stdout)  # A pipe that stays full is never closed.
        await process.wait()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._to_session.close()
        self._from_session.close()

    async def _ends(self, process: Program) -> bool:
        """Wait some time for the server to end. Return whether it did."""
        with suppress(asyncio.TimeoutError):
            async with asyncio.timeout(GRACE):
                if await _drain(process.stdout, _LAST_WORDS):
                    await process.wait()
        return process.returncode is not None

    async def _read(self, stdout: asyncio.StreamReader) -> None:
        """Forward messages to the session until the server's output ends."""
        with self._to_session:
            async for line, left_out in _lines(stdout, self._largest):
                if left_out:
                    why = too_large(self._largest, len(line) + left_out)
                    messages = self._requests.failed(line[:ENDS], line[-ENDS:], why, TOO_LARGE)
                else:
                    messages = self._requests.received(line)
                for message in messages:
                    await self._to_session.send(library.SessionMessage(message))
                if not messages:
                    await asyncio.sleep(0)  # Lets other tasks run, even during many invalid lines.
                await self._requests.room.wait()

    async def _write(self, stdin: asyncio.StreamWriter) -> None:
        """Forward messages of the session to the server until either of them ends."""
        with self._from_session:
            async for message in self._from_session:
                self._requests.sent(message.message)
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                try:
                    stdin.write(text.encode() + b"\n")
                    await stdin.drain()
                except (ConnectionError, BrokenPipeError):
                    self._to_session.close()
                    return

    async def _listen(self, stderr: asyncio.StreamReader | None) -> None:
        """Read the whole error stream, so that the server never blocks, and keep its end."""
        rest = b""
        while stderr is not None and (block := await stderr.read(_BLOCK)):
            *lines, rest = (rest + block).split(b"\n")
            self.errors.extend(_text(line) for line in lines[-_TAIL:])
            rest = rest[-_LINE:]
        if rest:
            self.errors.append(_text(rest))


async def _drain(stream: asyncio.StreamReader | None, most: float = math.inf) -> bool:
    """Read a pipe to its end or up to a number of bytes. Return whether it has ended."""
    assert stream is not None
    size = 0
    while size <= most and (block := await stream.read(_BLOCK)):
        size += len(block)
    return size <= most


async def _lines(stream: asyncio.StreamReader, largest: int) -> AsyncIterator[tuple[bytes, int]]:
    """Yield the lines of a stream. Of an overlong line, yield both ends and the bytes left out."""
    kept = bytearray()
    left_out = 0
    while block := await stream.read(_BLOCK):
        pieces = block.split(b"\n")
        for number, piece in enumerate(pieces):
            kept += piece
            if len(kept) > largest or left_out:
                # Beginning and end suffice to identify its request.
                left_out += max(0, len(kept) - 2 * ENDS)
                del kept[ENDS:-ENDS]
            if number < len(pieces) - 1:
                if kept:
                    yield bytes(kept), left_out
                kept.clear()
                left_out = 0


def _text(line: bytes) -> str:
    return line[:_LINE].decode("utf-8", "replace")
