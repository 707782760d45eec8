"""Reports files that are created, opened and closed in a directory."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable

from flowengine_envs.inside.loop import EventLoop

OPENED, CLOSED, MADE = 0x20, 0x08, 0x100
_EVENT = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)


class WatchedFolder:
    """Reports events in a directory.

    Args:
        on_event: Called with `MADE`, `OPENED` or `CLOSED` (after writing) and the name of a file.

    Raises:
        OSError: The system cannot watch it.
    """

    def __init__(self, loop: EventLoop, path: str, on_event: Callable[[int, str], None]) -> None:
        self._loop = loop
        self._on_event = on_event
        self._fd = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        if _libc.inotify_add_watch(self._fd, os.fsencode(path), OPENED | CLOSED | MADE) < 0:
            code = ctypes.get_errno()
            os.close(self._fd)
            raise OSError(code, os.strerror(code))
        loop.reading(self._fd, self._read)

    def close(self) -> None:
        """Stop reporting."""
        self._loop.forget(self._fd)
        os.close(self._fd)

    def _read(self) -> None:
        try:
            data = os.read(self._fd, 1 << 16)
        except BlockingIOError:
            return
        at = 0
        while at < len(data):
            _watch, what, _cookie, length = _EVENT.unpack_from(data, at)
            at += _EVENT.size
            name = os.fsdecode(data[at : at + length].rstrip(b"\0"))
            at += length
            for each in (OPENED, MADE, CLOSED):
                if what & each and name:
                    self._on_event(each, name)
