"""Runs functions as an ordinary user, in tests that run as root."""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 - an ordinary user may not be able to read it
import os
import pickle
import signal
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

NOBODY = 65534


def as_ordinary_user(work: Callable[[Path], Any], groups: Sequence[int] = ()) -> Any:
    """Call a function with a temporary folder, in a forked child without root privileges.

    Args:
        work: The function. Its result is returned.
        groups: Supplementary groups of the user.
    """
    folder = Path(tempfile.mkdtemp(prefix="flowengine-user-"))
    if os.getuid() != 0:
        return work(folder)
    os.chown(folder, NOBODY, NOBODY)
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups(groups)
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os.environ["HOME"] = "/nonexistent"  # as in the user database
            told = (True, work(folder))
        except BaseException:
            told = (False, traceback.format_exc())
        with open(sink, "wb") as file:
            pickle.dump(told, file)
        os.kill(os.getpid(), signal.SIGKILL)  # runs nothing that the parent has registered
    os.close(sink)
    with open(source, "rb") as file:
        worked, result = pickle.load(file)
    os.waitpid(child, 0)
    assert worked, result
    return result
