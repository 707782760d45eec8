"""What is wrong in one flow file, and what is left out of it for that."""

from __future__ import annotations

from flowengine.flow.source.diagnostics import Diagnostics, Loc, Origin, Position


class Faults:
    """Reports what is wrong at places of a file, and keeps what could not be read.

    Args:
        source: The file; what is wrong with it as YAML is reported at once.
        diagnostics: What is collected.
    """

    def __init__(self, source: Origin, diagnostics: Diagnostics) -> None:
        self.source = source
        self.diagnostics = diagnostics
        self.unread: set[Loc] = set()
        """Places whose content is left out."""
        for problem in source.problems:
            diagnostics.add(problem)
        self._no_yaml = {(one.line, one.column) for one in source.problems}

    def add(
        self, code: str, message: str, loc: Loc, hint: str | None = None, *, key: bool = False
    ) -> None:
        """Report an error, unless its place is no YAML: then it only follows from that.

        Args:
            code: For example `E103`.
            message: What is wrong, in one line.
            hint: What to do.
            key: The key at `loc` is meant, not its value.
        """
        place = self.position(loc, key=key)
        if (place.line, place.column) not in self._no_yaml:
            self.diagnostics.error(code, message, place, hint=hint)

    def leave_out(self, loc: Loc) -> None:
        """Note that what stands at a place is not in the model."""
        self.unread.add(loc)

    def position(self, loc: Loc, *, key: bool = False) -> Position:
        """Return where a value or its key stands."""
        return self.source.position(loc, key=key)
