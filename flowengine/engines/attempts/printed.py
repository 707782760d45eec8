"""Printed output of an attempt: its end is kept as evidence, followers receive the lines.

Text comes from the event loop and from the threads of functions. All output is masked: lines are
forwarded when complete, and the kept end is masked before it is cut.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol, TextIO

from flowengine.engines.attempts.failures import Mask, tail
from flowengine.engines.attempts.lines_at_work import LogLines
from flowengine.engines.attempts.serialization import keep
from flowengine.kernel.events import Evidence
from flowengine.kernel.graph.compiled import Plain
from flowengine.masking import StreamMasker
from flowengine.sdk.steps.context import WRITING
from flowengine.secrets import Secrets

KEPT = 16 * 1024
"""Characters of each stream to keep in memory."""
LONGEST = 64 * 1024
"""Length of a line above which it is shown before its end arrives."""

PRINTING: ContextVar[Printed | None] = ContextVar("flowengine_printing", default=None)
"""Receives the output of the function that runs in this context."""

Follow = Callable[[str, str], None]
"""Receives `stdout` or `stderr`, and complete lines."""


# Parts of a reply that an attempt forwards as they arrive, without storing them.
#
# Texts are masked as streams, one for each kind and subject. The text of a reply and the arguments
# of each call are separate streams, even if their pieces alternate.

Tell = Callable[[Mapping[str, Plain]], None]
"""Receives a part: `{part, text?, …}`."""


class AttemptParts:
    """The parts that one attempt forwards.

    Args:
        secrets: Secrets of the flow.
        tell: Receives each part, with secrets masked.
        end: Called when the attempt is over.
    """

    def __init__(self, secrets: Secrets, tell: Tell, end: Callable[[], None]) -> None:
        self.close = end
        self._secrets = secrets
        self._tell = tell
        self._texts: dict[str, tuple[Mapping[str, Any], StreamMasker]] = {}
        self._lock = threading.Lock()

    def feed(self, part: str, text: str | None, data: Mapping[str, Plain]) -> None:
        """Receive a part.

        Args:
            part: Its kind.
            text: The next piece of a text. None: the part has no text.
            data: The subject of the text. For a part without text, its content.

        Raises:
            ValidationError: The data is not plain data.
        """
        with self._lock:
            shown: dict[str, Any] = {"part": part} | self._secrets.mask(keep(dict(data)).value)
            if text is not None:
                key = repr(shown)
                if key not in self._texts:
                    self._texts[key] = (shown.copy(), self._secrets.stream())
                stream = self._texts[key][1]
                shown["text"] = stream.feed(text)
                if text and not shown["text"]:
                    return
            elif part == "end":
                for subject, stream in self._texts.values():  # held back as the start of a secret
                    if rest := stream.close():
                        self._tell({**subject, "text": rest})
                self._texts.clear()
            elif part in ("start", "restart"):
                self._texts.clear()
            self._tell(shown)


class PartWriter(Protocol):
    """Writes the parts of a reply for readers in other processes."""

    def write(self, part: Mapping[str, Any], /) -> None:
        """Write a part."""

    def close(self) -> None:
        """Note that the attempt is over."""


class Follower(NamedTuple):
    """A receiver of an attempt's output."""

    lines: Follow | None
    """None: lines are written to the streams of the process."""
    part: Tell
    end: Callable[[], None]
    """Called when the attempt is over."""


class Printed:
    """The printed output of one attempt.

    Args:
        mask: Replaces the values of secrets.
        follow: Receives the lines as they arrive. None: without a follower.
        parts: Receives parts of a reply. None: without a follower.
    """

    def __init__(
        self, mask: Mask, follow: Follow | None = None, parts: AttemptParts | None = None
    ) -> None:
        self._mask = mask
        self._follow = follow
        self.parts = parts
        """Receives parts of a reply. None: without a follower, or the attempt is over."""
        self.lines: LogLines | None = None
        """The log of the attempt. None: nothing yet."""
        self._ends = {"stdout": "", "stderr": ""}
        self._lines = {"stdout": "", "stderr": ""}
        self._lock = threading.Lock()

    def feed(self, stream: str, text: str) -> None:
        """Process the next piece of a stream.

        Args:
            stream: `stdout` or `stderr`.
            text: The piece.
        """
        with self._lock:
            end = self._ends[stream] + text
            if len(end) > 2 * KEPT:  # an incomplete secret stays at the end
                end = str(self._mask(end))[-KEPT:]
            self._ends[stream] = end
            if self._follow is None:
                return
            lines, newline, rest = (self._lines[stream] + text).rpartition("\n")
            if not newline and len(rest) > LONGEST:
                masked = str(self._mask(rest))
                lines, rest = masked[:-KEPT], masked[-KEPT:]
            self._lines[stream] = rest
            if newline or lines:
                with unheard():
                    self._follow(stream, str(self._mask(lines)))

    @property
    def followed(self) -> bool:
        """Whether its lines are shown as they arrive."""
        return self._follow is not None

    def close(self) -> None:
        """Forward lines without a line break at their end."""
        with self._lock:
            parts, self.parts = self.parts, None
            if parts is not None:
                parts.close()
            follow, self._follow = self._follow, None
            if follow is None:
                return
            for stream, rest in self._lines.items():
                if rest:
                    with unheard():
                        follow(stream, str(self._mask(rest)))

    def evidence(self) -> Evidence:
        """Return the end of each non-empty stream."""
        with self._lock:
            ends = {name: tail(text, self._mask) for name, text in self._ends.items()}
        return {name: text for name, text in ends.items() if text.strip()}  # type: ignore[return-value]


@contextmanager
def unheard() -> Iterator[None]:
    """Mark output in this block as the engine's own, not the step's."""
    token = PRINTING.set(None)
    try:
        yield
    finally:
        PRINTING.reset(token)


@contextmanager
def heard() -> Iterator[None]:
    """Capture what functions of steps print to Python's own streams.

    Lines with a follower are only forwarded to it. All other output is written as usual.
    """
    with ExitStack() as stack:
        stack.enter_context(redirect_stdout(_Heard(sys.stdout, "stdout")))
        stack.enter_context(redirect_stderr(_Heard(sys.stderr, "stderr")))
        yield


def is_heard() -> bool:
    """Return whether printed output is captured. If not, no preparation is needed."""
    return type(sys.stdout) is _Heard


class _Heard:
    """A stream that captures the output of steps."""

    def __init__(self, stream: TextIO, name: str) -> None:
        self._stream = stream
        self._name = name

    def write(self, text: str) -> int:
        printed = PRINTING.get()
        if printed is not None and not WRITING.get():
            printed.feed(self._name, text)
            if printed.followed:
                return len(text)
        with suppress(OSError):  # the reader is gone, which is not the step's fault
            self._stream.write(text)
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
