"""Types of values, arguments and results, and the inputs and results of a check."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from flowengine.sdk.values.schema_types import ALTERNATIVES, ANY, Schema, kinds

# Inputs and outputs of the check of an expression.

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


# Types of values as JSON Schemas: the operations on them, and their names in messages.

SECRET = "x-secret"
SOURCES = "x-sources"
CEL = "x-cel"
"""Types that JSON does not have: `timestamp`, `duration`, `bytes`, `type`, `uint`. They exist only
inside an expression."""

BOOL: Schema = {"type": "boolean"}
INT: Schema = {"type": "integer"}
DOUBLE: Schema = {"type": "number"}
TEXT: Schema = {"type": "string"}
NULL: Schema = {"type": "null"}
BYTES: Schema = {CEL: "bytes"}
TIMESTAMP: Schema = {CEL: "timestamp"}
DURATION: Schema = {CEL: "duration"}
TYPE: Schema = {CEL: "type"}
UINT: Schema = {CEL: "uint"}
MAP: Schema = {"type": "object"}

WORDS = {
    "boolean": "true or false",
    "integer": "an integer",
    "number": "a number",
    "string": "text",
    "null": "null",
    "array": "a list",
    "object": "a map",
    "bytes": "bytes",
    "timestamp": "a time",
    "duration": "a duration",
    "type": "a type",
    "uint": "an unsigned integer",
}
"""Names of types in messages."""


def list_of(items: Schema) -> Schema:
    """Return the schema of a list.

    Args:
        items: The schema of its items.

    Returns:
        The schema.
    """
    return {"type": "array", "items": items} if items else {"type": "array"}


def kind(schema: Schema) -> str | None:
    """Return the one type that a value has by its schema.

    Args:
        schema: The schema, with its references resolved.

    Returns:
        A JSON type or one of `CEL`, or None if it is unknown or there are several.
    """
    if CEL in schema:
        return str(schema[CEL])
    types = kinds(schema)
    return next(iter(types)) if types is not None and len(types) == 1 else None


def without_null(schema: Schema) -> Schema:
    """Return the schema of a value that is not null.

    Args:
        schema: The schema, with its references resolved.

    Returns:
        The schema without null among its types.
    """
    declared = schema.get("type")
    if isinstance(declared, list) and "null" in declared:
        rest = [name for name in declared if name != "null"]
        return {**schema, "type": rest[0] if len(rest) == 1 else rest}
    for word in ALTERNATIVES:
        if isinstance(schema.get(word), list):
            parts = [part for part in schema[word] if kind(part) != "null"]
            if len(parts) < len(schema[word]):
                outer = {key: value for key, value in schema.items() if key != word}
                return {**outer, **parts[0]} if len(parts) == 1 else {**outer, word: parts}
    return schema


def or_null(schema: Schema) -> Schema:
    """Return the schema of a value that may also be null.

    Args:
        schema: The schema of the other values.

    Returns:
        The schema.
    """
    return {"anyOf": [schema, NULL]} if schema else schema


def common(schemas: list[Schema]) -> Schema:
    """Return the schema of a value from one of several sources.

    Args:
        schemas: Its schema in each case.

    Returns:
        Their schema if it is the same, their common type, or unknown.
    """
    first = schemas[0]
    if all(schema == first for schema in schemas):
        return first
    types = {kind(schema) for schema in schemas}
    if len(types) == 1 and (one := types.pop()):
        if one == "array":
            items = [schema.get("items") for schema in schemas]
            return list_of(common([item if isinstance(item, dict) else ANY for item in items]))
        return {CEL: one} if CEL in first else {"type": one}
    return DOUBLE if types == {"integer", "number"} else ANY


def article(schema: Schema) -> str:
    """Return the name of a value's type in messages: `a list`, `text`."""
    return WORDS.get(kind(schema) or "", "a value of unknown type")


def self_contained(schema: Schema, root: Schema) -> Schema:
    """Return a self-contained schema, with the definitions that its references need.

    Args:
        schema: A schema inside `root`.
        root: The schema that its references point into.

    Returns:
        The schema, unchanged if it has no references.
    """
    if schema is root or not _refers(schema):
        return schema
    return {
        **{word: root[word] for word in ("$defs", "definitions") if word in root},
        **schema,
    }


def _refers(schema: Any) -> bool:
    """Return whether a schema contains a reference."""
    if isinstance(schema, dict):
        return "$ref" in schema or any(_refers(part) for part in schema.values())
    return isinstance(schema, list) and any(_refers(part) for part in schema)


# Argument and result types of the flow language's own functions, for the check.

ANYTHING = frozenset[str]()
TEXTS = frozenset(["string"])
LISTS = frozenset(["array"])
MAPS = frozenset(["object"])
INTEGERS = frozenset(["integer"])
COMMANDS = frozenset(["string", "array"])
TIMES = frozenset(["string", "timestamp"])
SIZED = frozenset(["string", "bytes", "array", "object"])


class Argument(NamedTuple):
    """The known type of an argument: its schema, and that of its items if it is a list."""

    schema: Schema
    items: Schema


class FunctionTypes(NamedTuple):
    """Argument and result types of a function."""

    takes: list[frozenset[str]]
    """For each argument, the accepted kinds. Empty means any."""
    gives: Callable[[list[Argument]], Schema]
    optional: int = 0
    """How many of the last arguments are optional."""
    variadic: bool = False
    """Whether the last argument may be repeated."""


def _always(schema: Schema) -> Callable[[list[Argument]], Schema]:
    return lambda arguments: schema


def _same(arguments: list[Argument]) -> Schema:
    return arguments[0].schema


def _items_of_items(arguments: list[Argument]) -> Schema:
    inner = arguments[0].items
    return list_of(inner.get("items", ANY)) if kind(inner) == "array" else list_of(ANY)


def _sum(arguments: list[Argument]) -> Schema:
    return {"integer": INT, "number": DOUBLE}.get(kind(arguments[0].items) or "", ANY)


def _default(arguments: list[Argument]) -> Schema:
    return common([argument.schema for argument in arguments])


_ENTRY: Schema = {"type": "object", "properties": {"key": TEXT, "value": ANY}}

SIGNATURES: dict[str, FunctionTypes] = {
    "default": FunctionTypes([ANYTHING, ANYTHING], _default, variadic=True),
    "digest": FunctionTypes([ANYTHING], _always(TEXT), variadic=True),
    "duration": FunctionTypes([frozenset(["string", "duration"])], _always(DURATION)),
    "entries": FunctionTypes([MAPS], _always(list_of(_ENTRY))),
    "flatten": FunctionTypes([LISTS], _items_of_items),
    "format_time": FunctionTypes([TIMES, TEXTS, TEXTS], _always(TEXT), optional=1),
    "join": FunctionTypes([LISTS, TEXTS], _always(TEXT), optional=1),
    "json": FunctionTypes([ANYTHING], _always(TEXT)),
    "keys": FunctionTypes([MAPS], _always(list_of(TEXT))),
    "marked": FunctionTypes([ANYTHING, TEXTS], _always(TEXT)),
    "merge": FunctionTypes([MAPS, MAPS], _always(MAP)),
    "only_runs": FunctionTypes([COMMANDS, LISTS], _always(BOOL)),
    "parse_json": FunctionTypes([TEXTS], _always(ANY)),
    "range": FunctionTypes([INTEGERS], _always(list_of(INT))),
    "replace": FunctionTypes([TEXTS, TEXTS, TEXTS, INTEGERS], _always(TEXT), optional=1),
    "size": FunctionTypes([SIZED], _always(INT)),
    "sort": FunctionTypes([LISTS], _same),
    "sum": FunctionTypes([LISTS], _sum),
    "timestamp": FunctionTypes([frozenset(["string", "integer", "timestamp"])], _always(TIMESTAMP)),
    "total": FunctionTypes([MAPS, TEXTS], _always(ANY)),
    "unique": FunctionTypes([LISTS], _same),
    "values": FunctionTypes([MAPS], _always(list_of(ANY))),
}

METHODS = frozenset(["join", "replace", "size", "total"])
"""Functions called on their first argument: `l.join(',')`. `size` can be called either way."""

MACROS = frozenset(["all", "exists", "exists_one", "filter", "map"])

ELSEWHERE = {
    "abs": "math.abs(x)", "ceil": "math.ceil(x)", "floor": "math.floor(x)",
    "max": "math.greatest(a, b)", "min": "math.least(a, b)", "round": "math.round(x)",
    "sqrt": "math.sqrt(x)", "any": "l.exists(x, …)", "every": "l.all(x, …)",
    "some": "l.exists(x, …)", "includes": "x in l", "substr": "x.substring(a, b)",
    "sorted": "sort(l)", "toJson": "json(x)", "toJSON": "json(x)",
    "fromJson": "parse_json(x)", "fromJSON": "parse_json(x)", "to_json": "json(x)",
    "tojson": "json(x)", "parseInt": "int(x)", "parseFloat": "double(x)", "uppercase":
    "x.upperAscii()", "lowercase": "x.lowerAscii()", "ifNull": "default(a, b)", "isNull":
    "x == null", "defined": "has(x)", "hash": "digest(x)",
    "coalesce": "default(a, b)", "concat": "a + b", "count": "size(x)",
    "float": "double(x)", "items": "entries(m)", "len": "size(x)", "length": "size(x)",
    "lower": "x.lowerAscii()", "not": "'!'", "now": "now, without brackets", "str": "string(x)",
    "strip": "x.trim()", "toLower": "x.lowerAscii()", "toLowerCase": "x.lowerAscii()",
    "toString": "string(x)", "toUpper": "x.upperAscii()", "toUpperCase": "x.upperAscii()",
    "upper": "x.upperAscii()",
}  # fmt: skip
"""Names of functions in other languages → their names here."""

TYPE_NAMES = frozenset([
    "bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint",
])  # fmt: skip
