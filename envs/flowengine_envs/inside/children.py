"""The supervisor's own children: keepers, and strangers left by a killed keeper."""

from __future__ import annotations

import os
import signal
from collections.abc import Container
from contextlib import suppress

from flowengine_envs.inside.killing import kill_below
from flowengine_envs.inside.loop import EventLoop


class Children:
    """Reaps children as they end, and kills strangers.

    Args:
        keepers: Processes that are not strangers.
    """

    def __init__(self, loop: EventLoop, keepers: Container[int]) -> None:
        self._keepers = keepers
        self._source, sink = os.pipe()
        for fd in (self._source, sink):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(sink, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        loop.reading(self._source, self._reap)

    def _reap(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._source, 4096)
        orphaned = False
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    break
                orphaned = orphaned or status != 0
        if orphaned:
            end_strangers(self._keepers)


def end_strangers(keepers: Container[int]) -> None:
    """Kill children of this process that are not keepers, because their keeper was killed."""
    kill_below(os.getpid(), without=keepers)
