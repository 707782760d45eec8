"""Inputs and outputs of the check of an expression."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

Schema = dict[str, Any]
"""A JSON Schema, as plain data. `{}` means unknown."""
Path = tuple[str, ...]
"""The keys of a dotted path: `("steps", "draft", "output")`."""
Want = Literal["any", "bool", "text"]
"""The type that the place of an expression accepts: a value, a condition, or a part of a
template."""


class Note(NamedTuple):
    """A diagnostic about a name: its code, its message, and the remedy."""

    code: str
    message: str
    hint: str | None = None
    always: bool = False
    """For an uncertain value: whether it is always null, so that naming it is a mistake."""
    reason: str = ""
    """For an uncertain value: why it may be null, such as `'a' may have been skipped`. It is
    repeated for values that are computed from it."""


class DeclaredNames(NamedTuple):
    """The names that are visible at one place of a flow."""

    schema: Schema
    """An object whose `properties` are the roots (`inputs`, `steps`, `item`, ...), each with its
    schema, or `{}` for an unknown shape. An object with `properties` has no others unless
    `additionalProperties` or `patternProperties` allow them. An empty object is closed by
    `additionalProperties: false`. Local `$ref`s are resolved within the schema that contains
    `$defs`.

    Two keys extend JSON Schema: `x-secret: true` marks a value that operators refuse (E403), and
    `x-sources: {name: schema}` a value that comes from one of several steps, so that a path into it
    must fit each of them."""
    hidden: dict[str, Note] = {}  # noqa: RUF012 - never written to
    """Names that exist but cannot be used here, by dotted path: `steps.later`, `secrets`."""
    uncertain: dict[str, Note] = {}  # noqa: RUF012 - never written to
    """Values that may be null here although their schema does not allow null, by dotted path:
    `steps.maybe.output`. A path through one produces the note (a warning), unless it is inside
    `default` or `has`, or the expression tests the value against null or uses the `status` or
    `outcome` beside it. A value that is `always` null produces the note also for a path that ends
    there, without exceptions."""


class ExpressionProblem(NamedTuple):
    """A problem in an expression. `offset` counts characters from its beginning."""

    code: str
    offset: int
    length: int
    message: str
    hint: str | None = None
    warning: bool = False


class CheckedExpression(NamedTuple):
    """A checked expression."""

    record: dict[str, Any]
    """Input of the evaluator: plain data, for `CompiledFlow["expressions"]`. See `placed`."""
    schema: Schema
    """JSON Schema of the value, `{}` if unknown."""
    references: list[Path]
    """The paths that the expression names, up to their first computed key, without duplicates, in
    order."""
    problems: list[ExpressionProblem]
    path: Path | None = None
    """The path, if the expression consists of exactly one."""

    def placed(self, line: int, column: int) -> dict[str, Any]:
        """Return the record with the place of the expression in the file, for error messages.

        Args:
            line: Its line, from 1.
            column: Its column, from 1.

        Returns:
            The record. The entry `at` does not belong to its meaning, or to a structural hash.
        """
        return {**self.record, "at": [line, column, *self.record["at"][2:]]}
