"""The supervisor's own children: keepers and others, and strangers left by a killed keeper."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Container
from contextlib import suppress

from flowengine_envs.inside.killing import kill_below
from flowengine_envs.inside.loop import EventLoop


class Children:
    """Reaps children as they end, and kills strangers.

    Args:
        own: Returns the processes that are not strangers.
        ended: Called with each child that has ended.
    """

    def __init__(
        self,
        loop: EventLoop,
        own: Callable[[], Container[int]],
        ended: Callable[[int], None],
    ) -> None:
        self._own = own
        self._ended = ended
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
                self._ended(pid)
        if orphaned:
            end_strangers(self._own())


def end_strangers(own: Container[int]) -> None:
    """Kill the other children of this process, because their keeper was killed."""
    kill_below(os.getpid(), without=own)
