"""What goes into a check and what comes out of it."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

Schema = dict[str, Any]
"""A JSON Schema, as plain data. `{}` is unknown."""
Path = tuple[str, ...]
"""The keys of a dotted path: `("steps", "draft", "output")`."""
Want = Literal["any", "bool", "text"]
"""What the place of an expression takes: a value, a condition, or a part of a template."""


class Note(NamedTuple):
    """What to say about a name: the diagnostic's code, its message, and what to do."""

    code: str
    message: str
    hint: str | None = None
    always: bool = False
    """Of an uncertain value: it is null whatever has run, so that naming it is a mistake."""
    reason: str = ""
    """Of an uncertain value: why it may be null, such as `'a' may have been skipped`; said again of
    values that are computed from it."""


class Names(NamedTuple):
    """What is visible at one place of a flow."""

    schema: Schema
    """An object whose `properties` are the roots (`inputs`, `steps`, `item`, ...), each with its
    schema; of an unknown shape `{}`. An object with `properties` has these and no others unless
    `additionalProperties` or `patternProperties` say more; an empty one is closed by
    `additionalProperties: false`. Local `$ref`s are followed within the schema that has `$defs`.

    Two keys beyond JSON Schema: `x-secret: true` marks a value no operator takes (E403), and
    `x-sources: {name: schema}` a value that comes from one of several steps, so that a path into it
    has to fit each of them."""
    hidden: dict[str, Note] = {}  # noqa: RUF012 - never written to
    """Names that exist but cannot be used here, by dotted path: `steps.later`, `secrets`."""
    uncertain: dict[str, Note] = {}  # noqa: RUF012 - never written to
    """Values that may be null here although their schema does not say so, by dotted path:
    `steps.maybe.output`. A path that leads through one gives the note (a warning), unless it
    stands in `default` or `has`, or the expression tests the value against null or names the
    `status` or `outcome` beside it. One that is `always` null gives it where the path ends, too,
    and whatever is named beside it."""


class Problem(NamedTuple):
    """Something wrong with an expression. `offset` counts characters from its beginning."""

    code: str
    offset: int
    length: int
    message: str
    hint: str | None = None
    warning: bool = False


class Checked(NamedTuple):
    """An expression that was checked."""

    record: dict[str, Any]
    """What the evaluator needs: plain data, for `CompiledFlow["expressions"]`; see `placed`."""
    schema: Schema
    """JSON Schema of the value; `{}` if unknown."""
    references: list[Path]
    """Each path that the expression names, as far as its keys are constant, once, in order."""
    problems: list[Problem]
    path: Path | None = None
    """The path, if the expression is exactly one."""

    def placed(self, line: int, column: int) -> dict[str, Any]:
        """Return the record with the place of the expression in the file, for error messages.

        Args:
            line: Its line, from 1.
            column: Its column, from 1.

        Returns:
            The record; what is under `at` is no part of its meaning (nor of a structural hash).
        """
        return {**self.record, "at": [line, column, *self.record["at"][2:]]}
