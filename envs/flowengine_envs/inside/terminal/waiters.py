"""Who waits for an answer of the terminal, and for how long."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Optional

from flowengine_envs.inside.commands import Say
from flowengine_envs.inside.loop import Loop, Timer
from flowengine_envs.link.frames import PIECE


class Answer(NamedTuple):
    """How a command stands, and what it wrote."""

    header: dict[str, Any]
    raw: bytes
    background: bytes

    def tell(self, say: Say) -> None:
        """Say it: pieces of output first."""
        for name, data in (("raw", self.raw), ("background", self.background)):
            for start in range(0, len(data), PIECE):
                say({"part": name}, data[start : start + PIECE])
        say({"done": True, **self.header}, b"")


class Waiters:
    """Requests that wait for the command that runs.

    Args:
        loop: The loop.
        stands: Called for the answer to one that waits no longer.
    """

    def __init__(self, loop: Loop, stands: Callable[[], Optional[Answer]]) -> None:  # noqa: UP045
        self._loop = loop
        self._stands = stands
        self._waiting: dict[int, tuple[Say, Optional[Timer]]] = {}  # noqa: UP045

    def __contains__(self, request: int) -> bool:
        return request in self._waiting

    def add(self, request: int, wait: Optional[float], say: Say) -> None:  # noqa: UP045
        """Let a request wait.

        Args:
            request: Its number.
            wait: Seconds after which it is answered in any case; None: no such bound.
            say: Called with the answer.
        """
        timer = None
        if wait is not None:
            timer = self._loop.after(wait, partial(self._over, request))
        self._waiting[request] = (say, timer)

    def forget(self, request: int) -> bool:
        """Let a request wait no more; returns whether it did."""
        found = self._waiting.pop(request, None)
        if found is None:
            return False
        say, timer = found
        if timer is not None:
            timer.cancel()
        say({"done": True, "status": "running"}, b"")
        return True

    def answer(self, answer: Answer) -> None:
        """Answer all."""
        waiting, self._waiting = self._waiting, {}
        for say, timer in waiting.values():
            if timer is not None:
                timer.cancel()
            answer.tell(say)

    def _over(self, request: int) -> None:
        found = self._waiting.pop(request, None)
        answer = self._stands() if found is not None else None
        if found is not None and answer is not None:
            answer.tell(found[0])
