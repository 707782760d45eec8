"""Splits the output of a shell command into lines as it arrives."""

from __future__ import annotations

from collections.abc import Callable

from flowengine_envs.kinds.results import OnOutput
from flowengine_envs.link.terminal_text import clean

LONGEST = 64 * 1024
"""Bytes after which an unfinished line is passed on."""


class LineAssembler:
    """Assembles lines of text from pieces.

    Args:
        mask: Removes secrets.
        on_output: Called with `stdout` and whole lines. The last one may be unfinished.
    """

    def __init__(self, mask: Callable[[bytes], bytes], on_output: OnOutput) -> None:
        self._mask = mask
        self._on_output = on_output
        self._rest = b""

    def take(self, data: bytes) -> None:
        """Take the next piece."""
        lines, newline, self._rest = (self._rest + data).rpartition(b"\n")
        if len(self._rest) > LONGEST:
            lines, newline, self._rest = lines + newline, self._rest, b""
        self._tell(lines + newline)

    def close(self) -> None:
        """Pass on an unfinished last line."""
        rest, self._rest = self._rest, b""
        self._tell(rest)

    def _tell(self, data: bytes) -> None:
        text = clean(self._mask(data))
        if text:
            self._on_output("stdout", text)
