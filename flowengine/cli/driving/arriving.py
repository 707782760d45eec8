"""Replies of models, written to the terminal while they arrive, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


class ReplyPrinter:
    """Writes replies piece by piece. If several arrive at once, the others wait for the first.

    Args:
        write: Writes a piece of a line.
        end_line: Ends the line.
        broke_off: Reports that a reply was interrupted and will begin again.
    """

    def __init__(
        self,
        write: Callable[[str], object],
        end_line: Callable[[], object],
        broke_off: Callable[[], object],
    ) -> None:
        self._write = write
        self._end_line = end_line
        self._broke_off = broke_off
        self._live: str | None = None
        """Address of the step whose reply is being written."""
        self._waiting: dict[str, list[Mapping[str, Any]]] = {}
        """Address → parts of its reply that are written later."""
        self._in_line = False
        self._returned = ""
        """A carriage return at the end of the last piece: it may be half of a line end."""

    def take(self, part: Mapping[str, Any]) -> None:
        """Take the next part of a reply: `{address, part, text?, ...}`."""
        if self._live in (None, part["address"]):
            self._show(part)
            self._show_next()
        else:
            self._waiting.setdefault(part["address"], []).append(part)

    def ended(self, address: str) -> None:
        """Note that a step has ended, so no more of its reply will arrive."""
        if self._live == address:
            self._end()
            self._show_next()

    def end_line(self) -> None:
        """End the current line, so that something else can be shown."""
        if self._in_line:
            self._in_line = False
            self._end_line()

    def _show(self, part: Mapping[str, Any]) -> None:
        kind = part["part"]
        if kind == "start":
            self._live = part["address"]
        elif kind == "text":
            self._text(part["text"])
        elif kind in ("restart", "end"):
            self._end()
            if kind == "restart":
                self._broke_off()

    def _show_next(self) -> None:
        while self._live is None and self._waiting:
            for part in self._waiting.pop(next(iter(self._waiting))):
                self._show(part)

    def _text(self, piece: str) -> None:
        piece = self._returned + piece
        self._returned = "\r" if piece.endswith("\r") else ""
        first, *lines = piece.removesuffix("\r").replace("\r\n", "\n").split("\n")
        self._piece(first)
        for line in lines:
            self._in_line = False
            self._end_line()
            self._piece(line)

    def _piece(self, text: str) -> None:
        if text:
            self._in_line = True
            self._write(text)

    def _end(self) -> None:
        self._live, self._returned = None, ""
        self.end_line()
