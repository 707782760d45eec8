"""Conversion of numbers to the types that a schema declares.

In JSON, `80` and `80.0` are the same number. In Python and in expressions they differ: a parameter
annotated `float` receives a float, and a value declared `integer` is an integer, regardless of its
notation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Convert = Callable[[Any], Any]


def floats(schema: Any) -> Convert | None:
    """Return a function that converts integers to floats where a schema declares numbers.

    Args:
        schema: A JSON Schema.

    Returns:
        A function from a value that fits the schema to one with floats in it. None if the schema
        declares no number.
    """
    return _conversion(schema, _to_float)


def integers(schema: Any) -> Convert | None:
    """Return a function that converts floats such as 2.0 where a schema declares integers.

    Args:
        schema: A JSON Schema.

    Returns:
        A function from a value that fits the schema to one with integers in it. None if the schema
        declares no integer.
    """
    return _conversion(schema, _to_integer)


_Leaf = Callable[[list[str]], Convert | None]
"""Returns the conversion of a number to the declared types."""


def _to_float(types: list[str]) -> Convert | None:
    if "number" not in types or "integer" in types:
        return None
    return lambda value: float(value) if type(value) is int else value


def _to_integer(types: list[str]) -> Convert | None:
    if "integer" not in types or "number" in types:
        return None
    return lambda value: int(value) if type(value) is float and value.is_integer() else value


def _conversion(schema: Any, leaf: _Leaf) -> Convert | None:
    if not isinstance(schema, Mapping):
        return None
    alternatives = schema.get("anyOf") or schema.get("oneOf")
    if alternatives:
        return _of_alternatives(alternatives, leaf)
    return leaf(_types(schema)) or _of_items(schema, leaf) or _of_fields(schema, leaf)


def _types(schema: Any) -> list[str]:
    declared = schema.get("type", ()) if isinstance(schema, Mapping) else ()
    return [declared] if isinstance(declared, str) else list(declared)


def _of_alternatives(alternatives: list[Any], leaf: _Leaf) -> Convert | None:
    converts = [converter for schema in alternatives if (converter := _conversion(schema, leaf))]
    if not converts:
        return None
    types = [name for schema in alternatives for name in _types(schema)]
    kept = {int: "integer" in types, float: "number" in types}

    def convert(value: Any) -> Any:
        if kept.get(type(value)):
            return value  # its type is declared
        for each in converts:
            value = each(value)
        return value

    return convert


def _of_items(schema: Mapping[str, Any], leaf: _Leaf) -> Convert | None:
    first = [_conversion(item, leaf) for item in schema.get("prefixItems", ())]
    rest = _conversion(schema.get("items"), leaf)
    if rest is None and not any(first):
        return None

    def convert(value: Any) -> Any:
        if type(value) is not list:
            return value
        each = [*first, *[rest] * (len(value) - len(first))]
        return [
            convert_item(item) if convert_item else item
            for convert_item, item in zip(each, value, strict=False)
        ]

    return convert


def _of_fields(schema: Mapping[str, Any], leaf: _Leaf) -> Convert | None:
    named = schema.get("properties", {})
    fields = {
        name: converter for name, field in named.items() if (converter := _conversion(field, leaf))
    }
    others = _conversion(schema.get("additionalProperties"), leaf)
    if not fields and others is None:
        return None

    def convert(value: Any) -> Any:
        if type(value) is not dict:
            return value
        made = {}
        for name, item in value.items():
            each = fields.get(name) if name in named else others
            made[name] = each(item) if each else item
        return made

    return convert
