"""Sockets between processes of one user, below a directory that only the user can enter.

The path of a socket's address is limited to about 100 characters. These functions reach longer
paths through a descriptor of the directory.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager


def listening(path: str | os.PathLike[str], backlog: int) -> socket.socket:
    """Return a non-blocking socket that listens at a path.

    Args:
        path: Path of the socket, which must not exist yet.
        backlog: Number of connections that may wait to be accepted.

    Raises:
        OSError: It cannot be created.
    """
    made = socket.socket(socket.AF_UNIX)
    try:
        with _address(path) as address:
            made.bind(address)
        made.listen(backlog)
        made.setblocking(False)
    except BaseException:
        made.close()
        raise
    return made


def connected(path: str | os.PathLike[str], seconds: float) -> socket.socket:
    """Return a socket that is connected to the one at a path.

    Args:
        path: Path of the listening socket.
        seconds: Time limit of the connection, and of each later call.

    Raises:
        OSError: No process listens there in time.
    """
    made = socket.socket(socket.AF_UNIX)
    try:
        made.settimeout(seconds)
        with _address(path) as address:
            made.connect(address)
    except BaseException:
        made.close()
        raise
    return made


@contextmanager
def _address(path: str | os.PathLike[str]) -> Iterator[str]:
    folder, name = os.path.split(path)
    below = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{below}/{name}"
    finally:
        os.close(below)
