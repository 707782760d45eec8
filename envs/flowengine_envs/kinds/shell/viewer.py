"""Shows a terminal that another process uses: `python viewer.py SOCKET`.

It reads screens, each a line of JSON, from the socket of a `mirror` and draws them. The only keys
with an effect are `q`, Ctrl-C and Ctrl-D, which end it. It needs only the standard library and no
module search path.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import select
import shutil
import signal
import socket
import sys
import termios
import tty
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from flowengine.sdk import printable
from flowengine.sdk.errors import EnvironmentLost, StepError
from flowengine.sdk.files.private_sockets import connected, listening
from flowengine.sdk.processes import make_scratch, remove_scratch
from flowengine_envs.link.channel import OnAnswer

_ENDING = b"q\x03\x04"
_CONNECTING = 5.0
_BEGIN = "\x1b[?1049h\x1b[?7l"
_END = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"


def main(path: str) -> int:
    """Show screens until the terminal ends or a key ends the viewer.

    Args:
        path: Path of the socket.

    Returns:
        The exit code.
    """
    try:
        connection = connected(os.path.abspath(path), _CONNECTING)
    except OSError as error:
        sys.stderr.write(f"there is no terminal to watch at {path}: {error.strerror}\n")
        return 1
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    with connection, _drawing():
        ended = _follow(connection)
    if ended:
        sys.stderr.write("the terminal has ended\n")
    return 0


def _follow(connection: socket.socket) -> bool:
    """Draw screens. Return whether the terminal ended, not the viewer by a key."""
    data = b""
    sources: list[int] = [connection.fileno()]
    if sys.stdin is not None and sys.stdin.isatty():
        sources.append(sys.stdin.fileno())
    while True:
        ready = select.select(sources, [], [])[0]
        if connection.fileno() in ready:
            part = connection.recv(1 << 16)
            if not part:
                return True
            *screens, data = (data + part).split(b"\n")
            for screen in screens:
                _draw(json.loads(screen))
        elif any(key in _ENDING for key in os.read(sources[-1], 1024) or b"\x04"):
            return False


def _draw(screen: dict[str, list[object]]) -> None:
    """Draw a screen. If it is larger than this terminal, draw the part around the cursor."""
    rows = shutil.get_terminal_size().lines
    column, row = (int(str(each)) for each in screen["cursor"])
    lines = screen["lines"]
    first = max(0, min(row - rows + 1, len(lines) - rows))
    text = "\x1b[?25l"
    for at, line in enumerate(lines[first : first + rows], start=1):
        text += f"\x1b[{at};1H\x1b[0m{line}\x1b[0m\x1b[K"
    text += f"\x1b[J\x1b[{row - first + 1};{column + 1}H\x1b[?25h"
    sys.stdout.write(text)
    sys.stdout.flush()


@contextmanager
def _drawing() -> Iterator[None]:
    """Use the whole terminal, without echoing keys, inside the block."""
    before = None
    if sys.stdin is not None and sys.stdin.isatty():
        before = termios.tcgetattr(sys.stdin.fileno())
        tty.setraw(sys.stdin.fileno())
    sys.stdout.write(_BEGIN)
    try:
        yield
    finally:
        with suppress(OSError):
            sys.stdout.write(_END)
            sys.stdout.flush()
        if before is not None:
            with suppress(termios.error):
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, before)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))


# Shows a sandbox's terminal on this machine without connecting to anything inside the sandbox.
#
# The terminal's server runs in the sandbox and is controlled by the code there. A client on this
# machine that connected to it would obey it. Instead, the supervisor sends the content of the
# screen over its own connection, and control sequences that could affect a terminal are removed
# here. A viewer (`viewer.py`) reads the rest from a socket of this process, which programs in the
# sandbox cannot reach.

SOCKET = "screen"
_VIEWERS = 16
_LONGEST = 1000
"""Maximum number of characters shown per line, and of lines per screen."""
_COLOUR = re.compile(r"(\x1b\[[0-9;:]{0,64}m)")


class Mirror:
    """One terminal, for any number of viewers.

    Args:
        watch: Reports the content of the screen at each change until it is cancelled.
        loop: The loop that it runs on.

    Raises:
        EnvironmentLost: No socket can be created.
    """

    def __init__(
        self, watch: Callable[[OnAnswer], Awaitable[Any]], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._watch = watch
        self._loop = loop
        self._folder = make_scratch()
        self.path = self._folder / SOCKET
        self._viewers: dict[asyncio.Task[Any], asyncio.Event] = {}
        self._screen = b""
        self._watcher: asyncio.Task[Any] | None = None
        self._closed = False
        try:
            self._listening = listening(self.path, _VIEWERS)
        except OSError as error:
            remove_scratch(self._folder)
            raise EnvironmentLost(
                f"the terminal cannot be watched: {self.path}: {error.strerror}"
            ) from error
        loop.call_soon_threadsafe(self._serve)

    def close(self) -> None:
        """Disconnect all viewers. Call on its loop."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._listening)
        self._listening.close()
        if self._watcher is not None:
            self._watcher.cancel()
        self._send_away()
        remove_scratch(self._folder)

    def _serve(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        try:
            connection, _ = self._listening.accept()
        except (BlockingIOError, ConnectionAbortedError):  # The viewer has already disconnected.
            return
        connection.setblocking(False)
        if len(self._viewers) >= _VIEWERS:
            connection.close()
            return
        changed = asyncio.Event()
        task = self._loop.create_task(self._show(connection, changed))
        self._viewers[task] = changed
        task.add_done_callback(partial(self._left, connection))
        if self._watcher is None:
            self._watcher = self._loop.create_task(self._follow())
        elif self._screen:
            changed.set()

    def _send_away(self) -> None:
        """Disconnect all viewers."""
        for task in self._viewers:
            # It is closing its socket, which a second cancellation would interrupt.
            if not task.cancelling():
                task.cancel()

    async def _follow(self) -> None:
        """Receive screens while there are viewers."""
        with suppress(StepError):
            await self._watch(self._update)
        self._watcher = None
        self._screen = b""
        self._send_away()  # The terminal has ended.

    def _update(self, header: dict[str, Any], data: bytes) -> None:
        lines = data.decode("utf-8", "replace").split("\n")[:_LONGEST]
        shown = {"lines": [shown_line(line) for line in lines], "cursor": header["cursor"]}
        self._screen = json.dumps(shown).encode() + b"\n"
        for changed in self._viewers.values():
            changed.set()

    async def _show(self, connection: socket.socket, changed: asyncio.Event) -> None:
        """Send one viewer the newest screen. Slow viewers skip intermediate ones."""
        sending = asyncio.ensure_future(self._send(connection, changed))
        leaving = asyncio.ensure_future(self._loop.sock_recv(connection, 1))
        both = (sending, leaving)
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in both:
                each.cancel()
            await asyncio.gather(*both, return_exceptions=True)

    async def _send(self, connection: socket.socket, changed: asyncio.Event) -> None:
        while True:
            await changed.wait()
            changed.clear()
            await self._loop.sock_sendall(connection, self._screen)

    def _left(self, connection: socket.socket, task: asyncio.Task[Any]) -> None:
        # Closed here, because a task cancelled before it starts runs no cleanup.
        connection.close()
        self._viewers.pop(task, None)
        if not self._viewers and self._watcher is not None:
            self._watcher.cancel()
            self._watcher = None
            self._screen = b""


def shown_line(line: str) -> str:
    """Return a line of a screen without control sequences other than colors."""
    parts = _COLOUR.split(line[: 4 * _LONGEST])
    return "".join(each if at % 2 else printable(each) for at, each in enumerate(parts))
