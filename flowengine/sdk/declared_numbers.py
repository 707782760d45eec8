"""Conversion of numbers to the types that a schema declares.

In JSON, `80` and `80.0` are the same number. In Python and in expressions they differ: a value
declared `integer` is an integer, regardless of its notation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Convert = Callable[[Any], Any]


def integers(schema: Any) -> Convert | None:
    """Return a function that converts floats such as 2.0 where a schema declares integers.

    Args:
        schema: A JSON Schema.

    Returns:
        A function from a value that fits the schema to one with integers in it. None if the schema
        declares no integer.
    """
    if not isinstance(schema, Mapping):
        return None
    alternatives = schema.get("anyOf") or schema.get("oneOf")
    if alternatives:
        return _of_alternatives(alternatives)
    types = _types(schema)
    if "integer" in types and "number" not in types:
        return _to_integer
    return _of_items(schema) or _of_fields(schema)


def _to_integer(value: Any) -> Any:
    return int(value) if type(value) is float and value.is_integer() else value


def _types(schema: Any) -> list[str]:
    declared = schema.get("type", ()) if isinstance(schema, Mapping) else ()
    return [declared] if isinstance(declared, str) else list(declared)


def _of_alternatives(alternatives: list[Any]) -> Convert | None:
    converts = [converter for schema in alternatives if (converter := integers(schema))]
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


def _of_items(schema: Mapping[str, Any]) -> Convert | None:
    first = [integers(item) for item in schema.get("prefixItems", ())]
    rest = integers(schema.get("items"))
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


def _of_fields(schema: Mapping[str, Any]) -> Convert | None:
    named = schema.get("properties", {})
    fields = {name: converter for name, field in named.items() if (converter := integers(field))}
    others = integers(schema.get("additionalProperties"))
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
