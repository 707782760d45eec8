"""Shows a terminal that another process uses: `python viewer.py SOCKET`.

It reads screens, each a line of JSON, from the socket of a `mirror` and draws them. The only keys
with an effect are `q`, Ctrl-C and Ctrl-D, which end it. It needs only the standard library and no
module search path.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_ENDING = b"q\x03\x04"
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
        connection = _connected(path)
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


def _connected(path: str) -> socket.socket:
    """Connect to a socket whose path may exceed the length limit of socket addresses."""
    folder, name = os.path.split(os.path.abspath(path))
    below = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(f"/proc/self/fd/{below}/{name}")
    except OSError:
        connection.close()
        raise
    finally:
        os.close(below)
    return connection


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
