"""The errors of one flow file, and the parts that are left out because of them."""

from __future__ import annotations

from flowengine.flow.source.diagnostics import Diagnostics, Loc, Origin, Position


class Faults:
    """Reports errors at places of a file, and records the parts that could not be read.

    Args:
        source: The file. Its YAML errors are reported at once.
        diagnostics: Receives the errors.
    """

    def __init__(self, source: Origin, diagnostics: Diagnostics) -> None:
        self.source = source
        self.diagnostics = diagnostics
        self.unread: set[Loc] = set()
        """Places whose content is left out."""
        for problem in source.problems:
            diagnostics.add(problem)
        self._no_yaml = {(problem.line, problem.column) for problem in source.problems}

    def add(
        self, code: str, message: str, loc: Loc, hint: str | None = None, *, key: bool = False
    ) -> None:
        """Report an error, unless its place is not valid YAML, which would be the cause.

        Args:
            code: For example `E103`.
            message: The problem, in one line.
            loc: Its place.
            hint: The remedy.
            key: Whether it is about the key at `loc`, not its value.
        """
        place = self.position(loc, key=key)
        if (place.line, place.column) not in self._no_yaml:
            self.diagnostics.error(code, message, place, hint=hint)

    def leave_out(self, loc: Loc) -> None:
        """Record that the content of a place is not in the model."""
        self.unread.add(loc)

    def position(self, loc: Loc, *, key: bool = False) -> Position:
        """Return the position of a value or its key."""
        return self.source.position(loc, key=key)
