"""What an attempt prints: its end is kept for the case that it fails, and followers get the lines.

Text comes from the loop and from the threads of functions. Nothing leaves here unmasked: lines are
handed on when they are whole, and the kept end is masked before it is cut.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from flowengine.engines.attempts.evidence import STREAMS, tail

if TYPE_CHECKING:
    from flowengine.engines.attempts.evidence import Mask
    from flowengine.engines.attempts.parts import Parts, Tell
    from flowengine.kernel.events import Evidence

KEPT = 16 * 1024
"""Characters of each stream that are held in memory."""
LONGEST = 64 * 1024
"""Characters of a line that is shown without its end."""

PRINTING: ContextVar[Printed | None] = ContextVar("flowengine_printing", default=None)
"""What takes the output of the function that runs in this context."""

Follow = Callable[[str, str], None]
"""Takes `stdout` or `stderr`, and whole lines."""


class Follower(NamedTuple):
    """Who follows an attempt."""

    lines: Follow
    part: Tell


class Printed:
    """What one attempt prints.

    Args:
        mask: Replaces the values of secrets.
        follow: Takes the lines as they come; None: nobody follows.
        parts: Takes parts of a reply; None: nobody follows.
    """

    __slots__ = ("_ends", "_follow", "_lines", "_lock", "_mask", "parts")

    def __init__(
        self, mask: Mask, follow: Follow | None = None, parts: Parts | None = None
    ) -> None:
        self._mask = mask
        self._follow = follow
        self.parts = parts
        """Takes parts of a reply; None: nobody follows, or the attempt is over."""
        self._ends = dict.fromkeys(STREAMS, "")
        self._lines = dict.fromkeys(STREAMS, "")
        self._lock = threading.Lock()

    def take(self, stream: str, text: str) -> None:
        """Take the next piece of a stream.

        Args:
            stream: `stdout` or `stderr`.
            text: The piece.
        """
        with self._lock:
            end = self._ends[stream] + text
            if len(end) > 2 * KEPT:  # a secret of which only a part is there yet stays at the end
                end = str(self._mask(end))[-KEPT:]
            self._ends[stream] = end
            if self._follow is None:
                return
            lines, found, rest = (self._lines[stream] + text).rpartition("\n")
            if not found and len(rest) > LONGEST:
                masked = str(self._mask(rest))
                lines, rest = masked[:-KEPT], masked[-KEPT:]
            self._lines[stream] = rest
            if found or lines:
                with unheard():
                    self._follow(stream, str(self._mask(lines)))

    @property
    def followed(self) -> bool:
        """Whether its lines are shown as they come."""
        return self._follow is not None

    def close(self) -> None:
        """Hand on the lines that were not ended."""
        with self._lock:
            self.parts = None
            follow, self._follow = self._follow, None
            if follow is None:
                return
            for stream, rest in self._lines.items():
                if rest:
                    with unheard():
                        follow(stream, str(self._mask(rest)))

    def evidence(self) -> Evidence:
        """Return the end of each stream that has any."""
        with self._lock:
            ends = {name: tail(text, self._mask) for name, text in self._ends.items()}
        return {name: text for name, text in ends.items() if text.strip()}  # type: ignore[return-value]


@contextmanager
def unheard() -> Iterator[None]:
    """Mark what is written here as the engine's own output, not the step's."""
    token = PRINTING.set(None)
    try:
        yield
    finally:
        PRINTING.reset(token)


@contextmanager
def heard() -> Iterator[None]:
    """Note what functions of steps print with Python's own streams, whichever steps print.

    Lines that are followed are left to who follows; all else is written as ever.
    """
    with ExitStack() as stack:
        stack.enter_context(redirect_stdout(_Heard(sys.stdout, "stdout")))
        stack.enter_context(redirect_stderr(_Heard(sys.stderr, "stderr")))
        yield


def is_heard() -> bool:
    """Return whether what functions print is noted: if not, nothing needs to be made ready."""
    return type(sys.stdout) is _Heard


class _Heard:
    """A stream that notes what steps write to it."""

    def __init__(self, stream: TextIO, name: str) -> None:
        self._stream = stream
        self._name = name

    def write(self, text: str) -> int:
        printed = PRINTING.get()
        if printed is not None:
            printed.take(self._name, text)
            if printed.followed:
                return len(text)
        with suppress(OSError):  # nobody reads it, which is no fault of the step
            self._stream.write(text)
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
