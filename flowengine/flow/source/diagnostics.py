"""Errors and warnings in a flow file: collected, sorted, and shown with their lines.

A diagnostic has a code (`E...` for errors, `W...` for warnings), a message with the problem, a
position, and a hint with the remedy. Checks add to a `Diagnostics`. Nothing is raised before all of
them have run, so that all errors are reported at once.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, Protocol

from flowengine.errors import FlowFileError
from flowengine.sdk.texts.visible_text import printable

Loc = tuple[str | int, ...]
"""A path of keys and indexes from the top of the file: `("steps", 3, "retry", "attempts")`."""


class Fault(NamedTuple):
    """An error in data, before it is reported."""

    loc: Loc
    """Its place in the data, or in the file."""
    code: str
    message: str
    hint: str | None = None
    key: bool = False
    """Whether it is about the key at `loc`, not its value."""
    missing: bool = False
    """Whether there is no value at `loc`."""


GUTTER = 5
"""Width of the line numbers."""
WIDEST = 160
"""Maximum width of a shown line. Of longer lines, only the surroundings of the error are shown."""


class Position(NamedTuple):
    """A range in a line of a file."""

    line: int
    """From 1."""
    column: int
    """From 1, in characters."""
    length: int = 1
    """Characters, on this line."""
    file: str = ""
    """As the user named it."""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One error or warning."""

    code: str
    message: str
    """The problem, in one line."""
    file: str
    line: int
    column: int
    length: int = 1
    hint: str | None = None
    """The remedy, shown beside the caret."""
    related: tuple[tuple[Position, str], ...] = ()
    """Other places involved, each with a description."""

    @property
    def is_warning(self) -> bool:
        """Whether the flow can run nevertheless."""
        return self.code.startswith("W")

    def as_dict(self) -> dict[str, Any]:
        """Return the diagnostic in the JSON form of the command line."""
        return {
            "file": self.file,
            "line": self.line,
            "column": self.column,
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
        }


class SourceLines(Protocol):
    """A text whose lines a report can show."""

    def line_text(self, number: int) -> str:
        """Return a line, counted from 1, without its line break."""


class Origin(Protocol):
    """The source of a flow: a file, or the calls that declare it."""

    problems: list[Diagnostic]
    """Errors that are found before the checks of the language."""

    @property
    def readable(self) -> bool:
        """Whether there is any data to check."""

    @property
    def data(self) -> Any:
        """The flow as plain data."""

    @property
    def files(self) -> Mapping[str, SourceLines]:
        """The files that reports show, by the names in their positions."""

    def position(self, loc: Loc, *, key: bool = False) -> Position:
        """Return the position of the value at a path of keys and indexes, or of its key."""

    def inside(self, loc: Loc, offset: int, length: int = 1) -> Position:
        """Return the position of a character in the text at a path."""


class MovedSource:
    """A source whose parts are at other places than in their source, some perhaps at none.

    Args:
        source: The whole source.
        moves: Present place of a part → its place in the source.
        data: The present data.
    """

    def __init__(self, source: Origin, moves: Mapping[Loc, Loc], data: Any = None) -> None:
        self.source = source
        self.moves = moves
        self.data = data
        self.problems = source.problems
        self.readable = source.readable

    @property
    def files(self) -> Mapping[str, SourceLines]:
        """The files that reports show."""
        return self.source.files

    def position(self, loc: Loc, *, key: bool = False) -> Position:
        """Return the position of a part in the source."""
        return self.source.position(self._written(loc), key=key)

    def inside(self, loc: Loc, offset: int, length: int = 1) -> Position:
        """Return the position of a character in a text."""
        return self.source.inside(self._written(loc), offset, length)

    def _written(self, loc: Loc) -> Loc:
        for size in range(len(loc), -1, -1):
            if loc[:size] in self.moves:
                return (*self.moves[loc[:size]], *loc[size:])
        return loc


class Diagnostics:
    """Collects diagnostics. Iterates over them in file order, without duplicates."""

    def __init__(self) -> None:
        self._found: dict[Diagnostic, None] = {}
        self._files: dict[str, int] = {}

    def error(
        self,
        code: str,
        message: str,
        position: Position,
        *,
        hint: str | None = None,
        related: Iterable[tuple[Position, str]] = (),
    ) -> None:
        """Add an error, or a warning.

        Args:
            code: For example `E301`. That of a warning begins with `W`.
            message: The problem, in one line.
            position: Its position.
            hint: The remedy.
            related: Other places involved, each with a description.
        """
        file, line, column, length = position.file, position.line, position.column, position.length
        self.add(Diagnostic(code, message, file, line, column, length, hint, tuple(related)))

    def add(self, diagnostic: Diagnostic) -> None:
        """Add a diagnostic, unless an equal one exists."""
        self._files.setdefault(diagnostic.file, len(self._files))
        self._found[diagnostic] = None

    def __iter__(self) -> Iterator[Diagnostic]:
        return iter(sorted(self._found, key=self._order))

    def __len__(self) -> int:
        return len(self._found)

    @property
    def errors(self) -> list[Diagnostic]:
        """The errors, in file order."""
        return [one for one in self if not one.is_warning]

    def refuse(self, files: Mapping[str, SourceLines]) -> NoReturn:
        """Refuse a file.

        Args:
            files: The texts that the diagnostics refer to, by name.

        Raises:
            FlowFileError: Always, with all diagnostics.
        """
        problems = list(self)
        raise FlowFileError(render(problems, files), problems)

    def _order(self, one: Diagnostic) -> tuple[int, int, int, str, str]:
        return (self._files[one.file], one.line, one.column, one.code, one.message)


def render(diagnostics: Iterable[Diagnostic], files: Mapping[str, SourceLines]) -> str:
    """Return the human-readable report.

    Args:
        diagnostics: The diagnostics to show, in this order.
        files: The texts that they refer to, by name. Lines of missing texts are left out.

    Returns:
        Lines without a final line break, or the empty text if there is nothing to show.
    """
    problems = list(diagnostics)
    if not problems:
        return ""
    shown = [line for one in problems for line in _shown(one, files.get(one.file))]
    return "\n".join([*shown, summary(problems)])


def summary(diagnostics: Sequence[Diagnostic]) -> str:
    """Return the last line of a report, such as `2 errors in hello.yaml; nothing was run`."""
    warnings = sum(diagnostic.is_warning for diagnostic in diagnostics)
    errors = len(diagnostics) - warnings
    counted = [(errors, "error"), (warnings, "warning")]
    counts = " and ".join(f"{n} {word}{'s' * (n != 1)}" for n, word in counted if n)
    files = " and ".join(dict.fromkeys(diagnostic.file for diagnostic in diagnostics))
    return f"{counts} in {files}" + ("; nothing was run" if errors else "")


def _shown(one: Diagnostic, source: SourceLines | None) -> Iterator[str]:
    kind = "warning" if one.is_warning else "error"
    place = f"{one.file}:{one.line}:{one.column}"
    yield f"{place}: {kind}[{one.code}]: {printable(one.message)}"
    if source is not None:
        yield from _marked_line(source.line_text(one.line), one)
    elif one.hint:
        yield f"{'':{GUTTER}} | {printable(one.hint)}"
    for position, what in one.related:
        place = f"{position.file}:{position.line}:{position.column}"
        yield f"{'':{GUTTER}} = {place}: {printable(what)}"


def _marked_line(text: str, one: Diagnostic) -> Iterator[str]:
    """Yield a line, and below it carets under the error with the hint."""
    start = one.column - 1
    cut = max(0, start - WIDEST // 2) if len(text) > WIDEST else 0
    before = printable(text[cut:start])
    marked = printable(text[start : start + max(one.length, 1)][: WIDEST // 2])
    shown = printable(text[cut : cut + WIDEST])
    blank = "".join("\t" if c == "\t" else " " * _width(c) for c in before)
    carets = "^" * max(1, sum(map(_width, marked)))
    hint = f" {printable(one.hint)}" if one.hint else ""
    yield f"{one.line:>{GUTTER}} | {shown}".rstrip()
    yield f"{'':{GUTTER}} | {blank}{carets}{hint}"


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1


# Reporting of diagnostics of the compiler: a code, a message, and a place in the file.


class DiagnosticReporter:
    """Reports diagnostics at places of one file, and records the parts that could not be read.

    Args:
        source: The file. Its YAML errors are reported at once.
        diagnostics: Receives them.
    """

    def __init__(self, source: Origin, diagnostics: Diagnostics) -> None:
        self.source = source
        self.diagnostics = diagnostics
        self.unread: set[Loc] = set()
        """Places whose content is not in the model."""
        for problem in source.problems:
            diagnostics.add(problem)
        self._no_yaml = {(problem.line, problem.column) for problem in source.problems}

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
        """Report an error, unless its place is not valid YAML, which would be the cause.

        Args:
            code: For example `E201`.
            message: The problem, in one line.
            loc: Its place.
            hint: The remedy.
            key: Whether it is about the key at `loc`, not its value.
            related: Other places involved.
        """
        place = self.source.position(loc, key=key)
        if (place.line, place.column) not in self._no_yaml:
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
