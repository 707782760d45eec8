"""Reporting of diagnostics of the compiler: a code, a message, and a place in the file."""

from __future__ import annotations

from collections.abc import Iterable

from flowengine.flow.source.diagnostics import Diagnostics, Loc, Origin, Position


class DiagnosticReporter:
    """Reports diagnostics at places of one file.

    Args:
        diagnostics: Receives them.
    """

    def __init__(self, source: Origin, diagnostics: Diagnostics) -> None:
        self.source = source
        self.diagnostics = diagnostics

    def at(
        self,
        code: str,
        message: str,
        loc: Loc,
        hint: str | None = None,
        *,
        key: bool = False,
        related: Iterable[tuple[Loc, str]] = (),
    ) -> None:
        """Report an error about a value, or about its key.

        Args:
            code: For example `E201`.
            message: The problem, in one line.
            loc: Its place.
            hint: The remedy.
            key: Whether it is about the key.
            related: Other places involved.
        """
        place = self.source.position(loc, key=key)
        others = [(self.source.position(other), text) for other, text in related]
        self.diagnostics.error(code, message, place, hint=hint, related=others)

    def inside(
        self, code: str, message: str, loc: Loc, offset: int, length: int, hint: str | None = None
    ) -> None:
        """Report an error inside a text.

        Args:
            code: For example `E301`.
            message: The problem, in one line.
            loc: The text.
            offset: Index of its first character.
            length: Number of characters.
            hint: The remedy.
        """
        place = self.source.inside(loc, offset, length)
        self.diagnostics.error(code, message, place, hint=hint)

    def position(self, loc: Loc) -> Position:
        """Return the position of a value."""
        return self.source.position(loc)
