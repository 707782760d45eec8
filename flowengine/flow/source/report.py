"""Where diagnostics of compiling go: a code, a message, and a place in the file."""

from __future__ import annotations

from collections.abc import Iterable

from flowengine.flow.source.diagnostics import Diagnostics, Loc, Origin, Position


class Report:
    """Reports at places of one file.

    Args:
        diagnostics: What is collected.
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
        """Report something about a value, or about its key.

        Args:
            code: For example `E201`.
            message: What is wrong, in one line.
            hint: What to do.
            key: The key is meant.
            related: Other places that belong to it.
        """
        place = self.source.position(loc, key=key)
        others = [(self.source.position(other), text) for other, text in related]
        self.diagnostics.error(code, message, place, hint=hint, related=others)

    def inside(
        self, code: str, message: str, loc: Loc, offset: int, length: int, hint: str | None = None
    ) -> None:
        """Report something inside a text.

        Args:
            code: For example `E301`.
            message: What is wrong, in one line.
            loc: The text.
            offset: Index of its first character.
            length: How many characters.
            hint: What to do.
        """
        place = self.source.inside(loc, offset, length)
        self.diagnostics.error(code, message, place, hint=hint)

    def position(self, loc: Loc) -> Position:
        """Return where a value stands."""
        return self.source.position(loc)
