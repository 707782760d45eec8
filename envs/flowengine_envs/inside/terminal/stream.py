"""The output of a terminal, split where a command begins or ends.

A number is written to the terminal itself, after all earlier output. When it is read back, all of
that output has been read.
"""

from __future__ import annotations

import os
import secrets
from functools import partial
from typing import Optional, Protocol

from flowengine_envs.inside.loop import Call, EventLoop, ScheduledCall

_MARK = 5.0
"""Seconds within which a number written to the terminal must be read back."""
_AGAIN = 0.3
_FULL = 0.005


class Sink(Protocol):
    """Receives output."""

    def add(self, data: bytes) -> None:
        """Add output."""


class TerminalStream:
    """The output of a terminal.

    Args:
        loop: The loop.
    """

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._tty: Optional[int] = None  # noqa: UP045
        self._barriers: list[tuple[bytes, Call, ScheduledCall]] = []
        self._held = b""
        self.sink: Optional[Sink] = None  # noqa: UP045
        """Receives the output. None: it is discarded."""

    @property
    def tty(self) -> Optional[int]:  # noqa: UP045
        """The terminal, opened for writing. None: it does not exist yet."""
        return self._tty

    def open(self, path: str) -> bool:
        """Switch to a terminal. The previous one is closed.

        Returns:
            Whether the terminal exists. If not, nothing changes.
        """
        try:
            tty = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            return False
        if not os.isatty(tty):
            os.close(tty)
            return False
        if self._tty is not None:
            os.close(self._tty)
        self._tty = tty
        for number, _call, _timer in list(self._barriers):
            self._give_up(number)
        return True

    def close(self) -> None:
        """Stop writing, and drop pending calls."""
        for _number, _call, timer in self._barriers:
            timer.cancel()
        self._barriers.clear()
        if self._tty is not None:
            os.close(self._tty)
            self._tty = None

    def take(self, data: bytes) -> None:
        """Process output of the terminal."""
        self._held += data
        while self._barriers:
            number, call, timer = self._barriers[0]
            before, separator, after = self._held.partition(number)
            if not separator:
                keep = len(number) - 1
                self._pass(self._held[:-keep])
                self._held = self._held[-keep:]
                return
            self._pass(before)
            self._held = after
            timer.cancel()
            self._barriers.pop(0)
            call()
        self._pass(self._held)
        self._held = b""

    def barrier(self, call: Call, before: bytes = b"") -> None:
        """Call a function once all earlier output of the terminal has been processed.

        Args:
            call: The function. After a timeout it is called even if the terminal is stopped.
            before: Written to the terminal first.
        """
        number = b"\x1b]7777;%020d\x1b\\" % secrets.randbelow(10**20)
        timer = self._loop.after(_MARK, partial(self._give_up, number))
        self._barriers.append((number, call, timer))
        self._write(number, before + number)

    def _pass(self, data: bytes) -> None:
        if self.sink is not None and data:
            self.sink.add(data)

    def _write(self, number: bytes, rest: bytes) -> None:
        if self._tty is None or all(each[0] != number for each in self._barriers):
            return
        try:
            rest = rest[os.write(self._tty, rest) :]
        except BlockingIOError:
            pass
        except OSError:  # The shell or the whole terminal has ended, which will be reported soon.
            self._loop.after(_AGAIN, partial(self._give_up, number))
            return
        if rest:
            self._loop.after(_FULL, partial(self._write, number, rest))

    def _give_up(self, number: bytes) -> None:
        """Continue without the number: the terminal is stopped, or has ended."""
        for each in self._barriers:
            if each[0] == number:
                self._barriers.remove(each)
                each[2].cancel()
                each[1]()
                return
