"""Locks between processes: files that one of them holds at a time."""

from __future__ import annotations

import fcntl
import os


def take_lock(path: str | os.PathLike[str], *, wait: bool = False) -> int | None:
    """Lock a file, which is created if it is missing, without following a link.

    Args:
        path: Its path.
        wait: Whether to wait until its holder closes it or ends.

    Returns:
        Its descriptor, which holds the lock until it is closed. None: another holder has it.

    Raises:
        OSError: It cannot be opened, or its file system has no locks.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(path, flags, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(file)
        return None
    except BaseException:
        os.close(file)
        raise
    return file
