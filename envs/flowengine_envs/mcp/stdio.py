"""An MCP server started as a process: one JSON message per line, in both directions.

The transport is our own because no server is trusted, wherever it runs. Messages have a maximum
size, only the end of the error stream is kept, and the whole process tree ends with the server.
Source: the Model Context Protocol, revision 2025-11-25, Transports / stdio.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from flowengine.sdk.environments import Program
from flowengine_envs.mcp.messages import ENDS, TOO_LARGE, PendingRequests, too_large
from flowengine_envs.mcp.sandboxed import SandboxedServer

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.shared.message import SessionMessage

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

    async def __aenter__(
        self,
    ) -> tuple[
        MemoryObjectReceiveStream[SessionMessage | Exception],
        MemoryObjectSendStream[SessionMessage],
    ]:
        """Start the server.

        Returns:
            The streams from the server and to it.

        Raises:
            EnvironmentStartFailed: It cannot be started.
        """
        import anyio

        self._process = await self._sandboxed.start()
        self._to_session, from_server = anyio.create_memory_object_stream[Any](0)
        to_server, self._from_session = anyio.create_memory_object_stream[Any](0)
        self._tasks = [
            asyncio.create_task(work) for work in (self._read(), self._write(), self._listen())
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
        if polite and not await self._ends(process) and self._sandboxed.terminate():
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

    async def _read(self) -> None:
        """Forward messages to the session until the server's output ends."""
        from mcp.shared.message import SessionMessage

        assert self._process is not None
        assert self._process.stdout is not None
        with self._to_session:
            async for line, left_out in _lines(self._process.stdout, self._largest):
                if left_out:
                    why = too_large(self._largest, len(line) + left_out)
                    messages = self._requests.failed(line[:ENDS], line[-ENDS:], why, TOO_LARGE)
                else:
                    messages = self._requests.received(line)
                for message in messages:
                    await self._to_session.send(SessionMessage(message))
                if not messages:
                    await asyncio.sleep(0)  # Lets other tasks run, even during many invalid lines.
                await self._requests.room()

    async def _write(self) -> None:
        """Forward messages of the session to the server until either of them ends."""
        assert self._process is not None
        assert self._process.stdin is not None
        with self._from_session:
            async for message in self._from_session:
                self._requests.sent(message.message)
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                try:
                    self._process.stdin.write(text.encode() + b"\n")
                    await self._process.stdin.drain()
                except (ConnectionError, BrokenPipeError):
                    self._to_session.close()
                    return

    async def _listen(self) -> None:
        """Read the whole error stream, so that the server never blocks, and keep its end."""
        assert self._process is not None
        assert self._process.stderr is not None
        rest = b""
        while block := await self._process.stderr.read(_BLOCK):
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
