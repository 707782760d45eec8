"""Files of stores that this process reads directly, each opened once and shared.

SQLite's locks are POSIX locks, which belong to the process: closing *any* descriptor of a file
drops all of them (https://sqlite.org/howtocorrupt.html, 2.2). Another process would then consider
the store unused, and remove the log that this one still writes to. A process therefore has its own
single descriptor for a file, and closes it after the last connection.
"""

from __future__ import annotations

import errno
import os
import stat
from _thread import RLock
from collections.abc import Callable
from typing import ClassVar

from flowengine.store_folder import in_use


class OpenFile:
    """A use of a file, which stays open until its last use is released.

    Args:
        path: The path of the file.

    Raises:
        OSError: It cannot be opened, or is a directory, pipe or device.
    """

    _lock: ClassVar = RLock()
    _open: ClassVar[dict[tuple[int, int], list[int]]] = {}
    """Device and inode number of each file → number of uses, and its descriptors."""

    def __init__(self, path: str) -> None:
        self._is_used = False
        with self._lock:
            status = os.stat(path)
            if (status.st_dev, status.st_ino) not in self._open:
                if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for a writer
                    raise OSError(errno.EINVAL, "it is not a regular file")
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
                status = os.fstat(descriptor)  # the file may have been replaced in between
                self._open.setdefault((status.st_dev, status.st_ino), [0]).append(descriptor)
            self.identity = (status.st_dev, status.st_ino)
            in_use[self.identity] = os.path.abspath(path)
            self._entry = self._open[self.identity]
            self._entry[0] += 1
            self._is_used = True

    def release(self, close: Callable[[int], None] = os.close) -> None:
        """End this use. A second call has no effect."""
        with self._lock:
            if not self._is_used:
                return
            self._is_used = False
            self._entry[0] -= 1
            if not self._entry[0]:
                del self._open[self.identity]
                del in_use[self.identity]
                for descriptor in self._entry[1:]:
                    close(descriptor)

    def read(self, size: int) -> bytes:
        """Return the first bytes of the file."""
        return os.pread(self._entry[1], size, 0)

    def size(self) -> int:
        """Return the size of the file in bytes."""
        return os.fstat(self._entry[1]).st_size
