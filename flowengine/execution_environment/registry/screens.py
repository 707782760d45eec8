"""Looks into open environments from other processes of the user.

Only the process that opened an environment can look into it. While the environment is open, this
process answers connections to a socket beside the registry's entry:

    FOLDER/screens/ID           one for each environment that has a screen

An answer is one line of JSON, `{at, text, title, address, size}` or `{error}`, followed by `size`
bytes of a picture. It is made anew for each connection, and nothing of it is stored.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from flowengine.errors import Conflict
from flowengine.execution_environment.registry.entries import RegistryEntry
from flowengine.sdk.environments import Screen
from flowengine.sdk.errors import StepError
from flowengine.sdk.files.private_sockets import connected, listening
from flowengine.sdk.processes import is_dead, this_process
from flowengine.sdk.texts.sizes import size_text

SECONDS = 5.0
"""Time that an environment has to show its screen."""
_PATIENCE = 10.0
"""Seconds that a reader waits for the answer, or for the next part of it."""
LARGEST_PICTURE = 8 * 1024 * 1024
"""Maximum size of a picture in bytes."""
LONGEST_TEXT = 100_000
"""Maximum number of characters of a terminal's screen. The rest is left out."""
_LONGEST_TITLE = 1000
_LONGEST_HEAD = 16 * LONGEST_TEXT
_AT_ONCE = 4
"""Maximum number of connections that one environment answers at the same time."""
_PNG = b"\x89PNG\r\n\x1a\n"


class ScreenAnswer(NamedTuple):
    """An answer."""

    at: int
    """When the environment showed it (ms)."""
    screen: Screen


class Window:
    """Lets other processes look at one open environment. Create and close it on its event loop.

    Args:
        path: Path of the socket.
        show: Returns the screen.
        mask: Replaces the values of secrets in plain data.

    Raises:
        OSError: There can be no socket.
    """

    def __init__(
        self, path: Path, show: Callable[[], Awaitable[Screen]], mask: Callable[[Any], Any]
    ) -> None:
        self._path = path
        self._show = show
        self._mask = mask
        self._loop = asyncio.get_running_loop()
        self._answering: set[asyncio.Task[None]] = set()
        self._listening: socket.socket | None = listening(path, _AT_ONCE)
        self._loop.add_reader(self._listening, self._accept)

    def close(self) -> None:
        """Accept no more connections, and end those that wait for an answer."""
        if self._listening is None:
            return
        self._loop.remove_reader(self._listening)
        self._listening.close()
        self._listening = None
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
        for task in self._answering:
            task.cancel()

    def _accept(self) -> None:
        assert self._listening is not None
        try:
            connection, _ = self._listening.accept()
        except OSError:  # the reader is gone, or there are too many open files
            return
        if len(self._answering) >= _AT_ONCE:
            connection.close()
            return
        connection.setblocking(False)
        task = self._loop.create_task(self._answer(connection))
        self._answering.add(task)

        def over(done: asyncio.Task[None]) -> None:
            connection.close()  # here, because a task that is cancelled early runs no cleanup
            self._answering.discard(done)
            if not done.cancelled():
                done.exception()  # of a reader that has left

        task.add_done_callback(over)

    async def _answer(self, connection: socket.socket) -> None:
        head, picture = await self._look()
        data = json.dumps(self._mask(head)).encode() + b"\n" + picture
        async with asyncio.timeout(_PATIENCE):
            await self._loop.sock_sendall(connection, data)

    async def _look(self) -> tuple[dict[str, Any], bytes]:
        try:
            async with asyncio.timeout(SECONDS):
                screen = await self._show()
        except TimeoutError:
            return {"error": f"it does not show its screen within {SECONDS:g} s"}, b""
        except StepError as error:
            return {"error": error.message}, b""
        except Exception as error:  # of a plug-in, or of a browser that ends
            return {"error": f"{type(error).__name__}: {error}"[:_LONGEST_TITLE]}, b""
        if len(screen.picture) > LARGEST_PICTURE:
            size, most = size_text(len(screen.picture)), size_text(LARGEST_PICTURE)
            return {"error": f"its picture has {size}, more than {most}"}, b""
        head = {
            "at": time.time_ns() // 1_000_000,
            "text": screen.text[:LONGEST_TEXT],
            "title": screen.title[:_LONGEST_TITLE],
            "address": screen.address[:_LONGEST_TITLE],
            "size": len(screen.picture),
        }
        return head, screen.picture


def look(entry: RegistryEntry) -> ScreenAnswer:
    """Return the screen of an environment of a process of this user. It blocks for some seconds.

    Args:
        entry: Its entry in the registry.

    Raises:
        Conflict: It cannot be looked into, for the reason given by the message.
    """
    name, owner = entry.data["resource_key"] or entry.id, entry.leftover.owner
    if is_dead(owner):
        raise Conflict(
            f"environment '{name}' was left open by process {owner.pid}, which has ended, so "
            "it cannot be looked into"
        )
    if owner.host != this_process().host:
        raise Conflict(f"environment '{name}' is open on {owner.host}, and only seen from there")
    if not os.path.lexists(entry.screen):
        raise Conflict(
            f"environment '{name}' of kind '{entry.data['kind']}' has nothing to look at: it is "
            "not a browser or terminal, or it is not open yet"
        )
    try:
        with connected(entry.screen, _PATIENCE) as connection:
            answer = _answer_in(_received(connection))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        raise Conflict(
            f"process {owner.pid}, which has environment '{name}' open, does not answer",
            hint="look again. If it never answers, the process hangs",
        ) from None
    if isinstance(answer, str):
        raise Conflict(f"environment '{name}' cannot be looked into: {answer}")
    return answer


def _received(connection: socket.socket) -> bytes:
    """Return the bytes that the other end sends until it closes the connection.

    Raises:
        OSError: It does not send in time.
        ValueError: It sends too much.
    """
    data = bytearray()
    while part := connection.recv(1 << 16):
        data += part
        if len(data) > LARGEST_PICTURE + _LONGEST_HEAD:
            raise ValueError("too long")
    return bytes(data)


def _answer_in(data: bytes) -> ScreenAnswer | str:
    """Return an answer, or why there is none.

    Raises:
        ValueError: It is incomplete, or not an answer.
        TypeError: It is not an answer.
        KeyError: It is not an answer.
        RecursionError: It is not an answer.
    """
    line, _, picture = data.partition(b"\n")
    head = json.loads(line)
    if not isinstance(head, dict):
        raise TypeError("not a map")
    if "error" in head:
        return _clean(head["error"])
    if len(picture) != head["size"] or (picture and not picture.startswith(_PNG)):
        raise ValueError("not complete")
    text, title, address = (_clean(head[part]) for part in ("text", "title", "address"))
    return ScreenAnswer(int(head["at"]), Screen(text, picture, title, address))


def _clean(text: Any) -> str:
    """Return a text without the halves of characters that a page's title can have."""
    return str(text).encode(errors="replace").decode()
