"""Playwright's driver in a sandbox, and the connection to it.

The driver is a program that starts Chromium and speaks to it through a pipe. Playwright's Python
package normally starts it beside itself; here it runs inside the sandbox, with all that it writes,
and only its standard streams lead out. How the package speaks to its driver is no public interface,
so all that is known of it is in this module, and the version of the package is bounded.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any

from playwright._impl.connection import Connection
from playwright._impl.transport import PipeTransport
from playwright._impl.utils.tasks import wait_for_next_task
from playwright.async_api import Download, Playwright

from flowengine.sdk import EnvironmentStartFailed
from flowengine.sdk.environments import Program, Sandbox
from flowengine_envs.browser import installation
from flowengine_envs.browser.long_messages import Shortened
from flowengine_envs.kinds.one_program import start_program

LARGEST_MESSAGE = 64 * 1024 * 1024
"""Bytes of a message from the driver; in a longer one, long texts are cut."""
_PIECE = 1 << 16
_ENDING = 3.0
"""Seconds for an end that was asked for."""
_LOG = 4096
_HELD_ELSEWHERE = frozenset({"DATA", "FSIZE"})
"""Limits of single processes that a browser cannot work under: it reserves far more than it uses,
and its profile is one of many files."""


class Driver:
    """A driver that runs.

    Args:
        program: The first process of its sandbox.
    """

    def __init__(self, program: Program) -> None:
        loop = asyncio.get_running_loop()
        self._program = program
        self._log = bytearray()
        self._connection = Connection(loop)
        # Files go through the connection: the two sides see different file systems.
        self._connection.mark_as_remote()
        self._transport = _Streams(loop, program)
        self._transport.on_message = self._take
        self._connection.onmessage = self._transport.send
        self._tasks = [asyncio.ensure_future(self._read())]
        if program.stderr is not None:
            self._tasks.append(asyncio.ensure_future(self._read_log(program.stderr)))

    @property
    def alive(self) -> bool:
        """Whether it runs, as far as is known at once."""
        return self._program.returncode is None and not self._tasks[0].done()

    @property
    def log(self) -> str:
        """The last lines that it wrote to standard error."""
        return self._log.decode(errors="replace").strip()

    async def playwright(self) -> Playwright:
        """Return the object with which Playwright's interface begins.

        Raises:
            EnvironmentStartFailed: The driver has ended.
        """
        starting = asyncio.ensure_future(self._connection.initialize_playwright())
        try:
            await asyncio.wait([starting, self._tasks[0]], return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                return Playwright(starting.result())
        finally:
            starting.cancel()  # else it would fail when the connection ends, and nobody would ask
        await asyncio.wait(self._tasks, timeout=0.5)
        raise EnvironmentStartFailed(f"Playwright's driver did not start: {self.log}")

    async def close(self) -> None:
        """End it, the browser, and all else that it started."""
        with suppress(OSError, RuntimeError):
            self._transport.request_stop()
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
            self._connection.close()

    def _take(self, message: dict[str, Any]) -> None:
        try:
            self._connection.dispatch(message)
        except Exception as error:  # of a listener: the next call raises it
            self._connection._on_event_listener_error(error)

    async def _read(self) -> None:
        try:
            await self._transport.run()
        except _TooLarge as error:
            self._log += f"\n{error}".encode()
            self._program.kill()
        finally:
            self._connection.close()  # calls that still wait fail

    async def _read_log(self, stream: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while data := await stream.read(_LOG):
                self._log = (self._log + data)[-_LOG:]


class _TooLarge(Exception):
    """A message that no driver sends, but perhaps a page that has taken it over."""


class _Streams(PipeTransport):
    """The pipes of a program that runs already."""

    async def run(self) -> None:
        """Take messages until the program ends; the package's own reader has no bound for one."""
        source = self._proc.stdout
        assert source is not None
        try:
            while True:
                length = int.from_bytes(await source.readexactly(4), "little")
                if length > LARGEST_MESSAGE:
                    data = await _shortened(source, length)
                else:
                    data = await source.readexactly(length)
                if not self._stopped:
                    self.on_message(self.deserialize_message(data))
                await wait_for_next_task()
        except asyncio.IncompleteReadError:
            pass
        finally:
            if not self._stopped_future.done():
                self._stopped_future.set_result(None)

    def __init__(self, loop: asyncio.AbstractEventLoop, program: Program) -> None:
        super().__init__(loop)
        self._proc = program  # type: ignore[assignment] # its streams are all that is used
        self._output = program.stdin
        self._stopped_future = loop.create_future()
        # Nobody looks at it here: the reader's end is enough.
        self.on_error_future.add_done_callback(lambda ended: ended.cancelled() or ended.exception())


async def _shortened(source: asyncio.StreamReader, length: int) -> bytes:
    """Return a message that is too long with its long texts cut; of an answer, else an error.

    Raises:
        _TooLarge: It is still too long, and no answer.
    """
    message, left = Shortened(LARGEST_MESSAGE), length
    while left:
        piece = await source.read(min(left, _PIECE))
        if not piece:
            raise asyncio.IncompleteReadError(b"", left)
        left -= len(piece)
        message.add(piece)
    if message.fits:
        return message.data
    said = f"of {length:,} bytes, of at most {LARGEST_MESSAGE:,}"
    if not message.answers:
        raise _TooLarge(f"the driver sent a message {said}, and was ended")
    error = {"error": {"name": "Error", "message": f"the page gave an answer {said}"}}
    return b'{"id":%s,"error":%s}' % (message.answers, json.dumps(error).encode())


async def start_driver(sandbox: Sandbox) -> Driver:
    """Start the driver in an open sandbox.

    Args:
        sandbox: The sandbox; it ends what is left when it closes.

    Returns:
        The driver.
    """
    folder = installation.driver()
    assert folder is not None, "`probe` looks for it"
    argv = [str(folder / "node"), str(folder / "package" / "cli.js"), "run-driver"]
    limits = {
        name: value
        for name, value in sandbox.resource_limits().items()
        if name not in _HELD_ELSEWHERE
    }
    env = {
        "HOME": sandbox.home,
        "TMPDIR": sandbox.scratch,
        "LANG": "C.UTF-8",
        "PW_LANG_NAME": "python",
        "PW_LANG_NAME_VERSION": f"{sys.version_info.major}.{sys.version_info.minor}",
    }
    return Driver(await start_program(sandbox, argv, env=env, limits=limits))


def arriving_name(download: Download) -> str:
    """Return the name of the file as which a download arrives."""
    artifact: Any = download._impl_obj._artifact
    return PurePosixPath(artifact._initializer["absolutePath"]).name


async def content(download: Download, largest: int) -> bytes | None:
    """Return the bytes of a download that has arrived; None: it has more than so many."""
    artifact: Any = download._impl_obj._artifact
    stream = await artifact.create_read_stream()
    data = bytearray()
    try:
        async for piece in stream:
            data += piece
            if len(data) > largest:
                return None
    finally:
        stream.destroy()
    return bytes(data)
