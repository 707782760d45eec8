"""Chromium behind Playwright's server in a sandbox, and the connection to it.

The server starts Chromium and accepts WebSocket connections on the sandbox's loopback interface. A
script next to it forwards its only connection through the standard streams, which are the only way
out. Playwright connects here to a `BrowserServer`, which limits the size of each message from the
sandbox.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from flowengine.sdk import EnvironmentStartFailed
from flowengine.sdk.environments import Program, Sandbox
from flowengine.sdk.texts.sizes import size_text
from flowengine_envs.browser import installation, library
from flowengine_envs.browser.long_messages import Shortened
from flowengine_envs.kinds.supervised import start_program
from flowengine_envs.link.logs import Log

LARGEST_MESSAGE = 64 * 1024 * 1024
"""Maximum bytes of a message from the sandbox. In a longer one, long texts are truncated."""
_HEAD_END = b"\r\n\r\n"
_PIECE = 1 << 16
_ENDING = 3.0
"""Seconds for a requested shutdown."""
_HELD_ELSEWHERE = frozenset({"DATA", "FSIZE"})
"""Limits of single processes that prevent a browser from working.

It reserves far more memory than it uses, and its profile consists of many files.
"""
_TEXT = 0x81
"""First byte of an uncompressed single-frame text message, the only kind that the server sends."""
_CONTROLS = frozenset({0x88, 0x89, 0x8A})
_TWO_BYTES, _EIGHT_BYTES = 126, 127


class BrowserServer:
    """A running server.

    Args:
        program: The first process of its sandbox.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._log = Log()
        self._path = b""
        self._connected = False
        self._open = AsyncExitStack()
        self._tasks = [asyncio.ensure_future(self._log.read(program.stderr))]

    @property
    def alive(self) -> bool:
        """Whether it runs, as far as is known without I/O."""
        return self._program.returncode is None

    async def connect(self) -> library.Browser:
        """Return its browser.

        Raises:
            EnvironmentStartFailed: The server has ended.
            playwright.async_api.Error: The connection failed.
        """
        starting = asyncio.ensure_future(self._open.enter_async_context(playwright()))
        try:
            address = await self.listen()
        finally:
            client = await starting
        try:
            return await client.chromium.connect(address)
        except library.Error:
            replace_ended()
            if self._connected:
                raise
        client = await self._open.enter_async_context(playwright())
        return await client.chromium.connect(address)

    async def listen(self) -> str:
        """Return the address of the server for Playwright, its only client.

        Raises:
            EnvironmentStartFailed: The server has ended.
        """
        assert self._program.stdout is not None
        with suppress(ValueError):  # Its first line is too long for any path.
            self._path = (await self._program.stdout.readline()).strip()
        if not self._path.startswith(b"/"):
            self._program.kill()
            await asyncio.wait(self._tasks, timeout=0.5)
            raise EnvironmentStartFailed(str(self._log) or "Playwright's server has ended")
        listener = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=_PIECE)
        self._open.callback(listener.close)
        port = listener.sockets[0].getsockname()[1]
        return f"ws://127.0.0.1:{port}{self._path.decode()}"

    async def close(self) -> None:
        """End the server, the browser and all other processes that it started."""
        if self._program.stdin is not None:
            with suppress(OSError, RuntimeError):
                self._program.stdin.close()
        try:
            async with asyncio.timeout(_ENDING):
                await self._program.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                self._program.kill()
            await self._program.wait()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._open.aclose()

    async def _accept(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """Connect the client, which is identified by a path that no other program knows."""
        try:
            head = await source.readuntil(_HEAD_END)
            if self._connected or head.split(b" ", 2)[1:2] != [self._path]:
                return
            self._connected = True
            inside = self._program.stdin
            assert inside is not None
            inside.write(_uncompressed(head))
            self._tasks += [
                asyncio.ensure_future(_copy(source, inside)),
                outward := asyncio.ensure_future(self._take_out(sink)),
            ]
            await asyncio.wait([outward])
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            sink.close()

    async def _take_out(self, sink: asyncio.StreamWriter) -> None:
        """Forward the server's messages to the client until either of them ends."""
        source = self._program.stdout
        assert source is not None
        try:
            sink.write(await source.readuntil(_HEAD_END))
            while True:
                sink.write(await _message(source))
                await sink.drain()
        except (_Refused, asyncio.LimitOverrunError) as error:
            self._log.add(f"\nthe browser's server sent {error}, and was ended".encode())
            self._program.kill()
        except (OSError, asyncio.IncompleteReadError):
            pass  # One of them has ended.


class _Refused(Exception):
    """Data that the server never sends, but that a compromised server may send."""


def _uncompressed(head: bytes) -> bytes:
    """Return the head of a request without extensions, because messages are parsed in transit."""
    lines = head.split(b"\r\n")
    return b"\r\n".join(
        line for line in lines if not line.lower().startswith(b"sec-websocket-extensions:")
    )


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(_PIECE):
            sink.write(data)
            await sink.drain()


async def _message(source: asyncio.StreamReader) -> bytes:
    """Read a message of the server, and return it as a frame.

    Raises:
        _Refused: It is too long and cannot be truncated, or is invalid.
        asyncio.IncompleteReadError: The server has ended.
    """
    first, length = await source.readexactly(2)
    if first not in _CONTROLS and first != _TEXT:
        raise _Refused(f"a frame of an unknown kind ({first:#x})")
    if length == _TWO_BYTES:
        length = int.from_bytes(await source.readexactly(2), "big")
    elif length == _EIGHT_BYTES:
        length = int.from_bytes(await source.readexactly(8), "big")
    elif length > _EIGHT_BYTES:
        raise _Refused("a masked frame")
    if length > LARGEST_MESSAGE:
        data = await _shortened(source, length)
    else:
        data = await source.readexactly(length)
    size = len(data)
    if size < _TWO_BYTES:
        return bytes([first, size]) + data
    if size < 1 << 16:
        return bytes([first, _TWO_BYTES]) + size.to_bytes(2, "big") + data
    return bytes([first, _EIGHT_BYTES]) + size.to_bytes(8, "big") + data


async def _shortened(source: asyncio.StreamReader, length: int) -> bytes:
    """Return an overlong message with its long texts truncated, or an error if it is a response.

    Raises:
        _Refused: It is still too long, and not a response.
    """
    message, left = Shortened(LARGEST_MESSAGE), length
    size = f"of {size_text(length)}, of at most {size_text(LARGEST_MESSAGE)}"
    while left:
        piece = await source.read(min(left, _PIECE))
        if not piece:
            raise asyncio.IncompleteReadError(b"", left)
        left -= len(piece)
        message.add(piece)
        if not message.fits and not message.answers:
            raise _Refused(f"a message {size}")
    if message.fits:
        return message.data
    error = {"error": {"name": "Error", "message": f"the page gave an answer {size}"}}
    return b'{"id":%s,"error":%s}' % (message.answers, json.dumps(error).encode())


async def start_server(sandbox: Sandbox, options: Mapping[str, Any]) -> BrowserServer:
    """Start the server, and so Chromium, in an open sandbox.

    Args:
        sandbox: The sandbox, which ends remaining processes when it closes.
        options: Options of `launchServer`.

    Returns:
        The server.
    """
    folder = installation.driver()
    assert folder is not None, "`probe` looks for it"
    script = Path(__file__).with_name("chromium_server.js").read_text(encoding="utf-8")
    argv = [str(folder / "node"), "-e", script, str(folder / "package")]
    argv.append(json.dumps({"host": "127.0.0.1", **options}))
    limits = {
        name: value
        for name, value in sandbox.resource_limits().items()
        if name not in _HELD_ELSEWHERE
    }
    env = {"HOME": sandbox.home, "TMPDIR": sandbox.scratch, "LANG": "C.UTF-8"}
    return BrowserServer(await start_program(sandbox, argv, env=env, limits=limits))


# Playwright in this process: one instance per event loop, while any of its browsers is open.


class _Client:
    """Playwright in one event loop, with its number of users."""

    def __init__(self) -> None:
        self.users = 0
        self.starting: asyncio.Future[library.Playwright] | None = None


_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, _Client] = WeakKeyDictionary()


@asynccontextmanager
async def playwright() -> AsyncIterator[library.Playwright]:
    """Use Playwright. The first user starts it, and the last one ends it."""
    client = _clients.setdefault(asyncio.get_running_loop(), _Client())
    client.users += 1
    if client.starting is None:
        client.starting = asyncio.ensure_future(library.async_playwright().start())
    try:
        yield await asyncio.shield(client.starting)
    finally:
        client.users -= 1
        if not client.users:
            last, client.starting = client.starting, None
            with suppress(Exception):  # It did not start.
                await (await last).stop()


def replace_ended() -> None:
    """Let the next user start another one, after a call showed that this one may have ended."""
    _clients.pop(asyncio.get_running_loop(), None)
