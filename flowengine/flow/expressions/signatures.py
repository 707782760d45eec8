"""Argument and result types of the flow language's own functions, for the check."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from flowengine.flow.expressions.interface import Schema
from flowengine.flow.expressions.types import (
    ANY,
    BOOL,
    DOUBLE,
    DURATION,
    INT,
    MAP,
    TEXT,
    TIMESTAMP,
    common,
    kind,
    list_of,
)

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
