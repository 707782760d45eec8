"""How the process of a command line ends."""

from __future__ import annotations

import _thread
import signal
import time
from types import FrameType
from typing import Any

_HELD_SECONDS = 10.0
"""Seconds after which an import is interrupted nevertheless."""
_PAUSE = 0.01
_IMPORT = "<frozen importlib._bootstrap>"
_LOOP = "new_event_loop"


class ProcessEnd:
    """Whether this process ends as soon as its command has.

    Attributes:
        ends_at_once: Set by `script`. Nothing has to be closed then: the system does it.
    """

    ends_at_once = False


def hold_interrupts() -> None:
    """Let an interrupt (SIGINT) wait until no module is being imported and no event loop created.

    A library in Rust ends its import with a panic otherwise, and a module could be left half
    imported. An event loop that is half created prints a traceback. A second interrupt does not
    wait.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return  # it is ignored
    module: Any = signal
    module.default_int_handler = _Interrupts().handle  # asyncio replaces no other handler
    signal.signal(signal.SIGINT, signal.default_int_handler)


class _Interrupts:
    def __init__(self) -> None:
        self._until: float | None = None
        """How long an interrupt that has come may wait."""
        self._repeats = False
        self._main = _thread.get_ident()

    def handle(self, _: int, frame: FrameType | None) -> None:
        """Interrupt the program, or later if it must not be interrupted here.

        Raises:
            KeyboardInterrupt: Always, unless it waits.
        """
        now, repeats, self._repeats = time.monotonic(), self._repeats, False
        if self._until is None:
            self._until = now + _HELD_SECONDS
            repeats = True
        if not repeats or now > self._until or not _is_delicate(frame):
            self._until = None
            raise KeyboardInterrupt
        _thread.start_new_thread(self._repeat, ())

    def _repeat(self) -> None:
        time.sleep(_PAUSE)
        if self._until is not None:
            self._repeats = True
            # `interrupt_main` would not wake it from a lock, such as of a call to Temporal.
            signal.pthread_kill(self._main, signal.SIGINT)


def _is_delicate(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == _IMPORT or frame.f_code.co_name == _LOOP:
            return True
        frame = frame.f_back
    return False
