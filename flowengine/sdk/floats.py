"""Arguments declared as numbers, handed to Python as floats.

In JSON `80` and `80.0` are one number. In Python they are not: a parameter annotated `float` is
given a float, whoever wrote the number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Convert = Callable[[Any], Any]


def floats(schema: Any) -> Convert | None:
    """Return what makes floats of the integers that a schema declares as numbers.

    Args:
        schema: A JSON Schema.

    Returns:
        A function from a value that fits the schema to one with floats in it; None if the schema
        declares no number.
    """
    if not isinstance(schema, Mapping):
        return None
    alternatives = schema.get("anyOf") or schema.get("oneOf")
    if alternatives:
        return _of_alternatives(alternatives)
    types = _types(schema)
    if "number" in types and "integer" not in types:
        return lambda value: float(value) if type(value) is int else value
    return _of_items(schema) or _of_fields(schema)


def _types(schema: Any) -> Any:
    declared = schema.get("type", ()) if isinstance(schema, Mapping) else ()
    return [declared] if isinstance(declared, str) else declared


def _of_alternatives(alternatives: list[Any]) -> Convert | None:
    converts = [found for one in alternatives if (found := floats(one))]
    whole = any("integer" in _types(one) for one in alternatives)
    if not converts:
        return None

    def convert(value: Any) -> Any:
        if type(value) is int and whole:
            return value
        for each in converts:
            value = each(value)
        return value

    return convert


def _of_items(schema: Mapping[str, Any]) -> Convert | None:
    first = [floats(item) for item in schema.get("prefixItems", ())]
    rest = floats(schema.get("items"))
    if rest is None and not any(first):
        return None

    def convert(value: Any) -> Any:
        if type(value) is not list:
            return value
        each = [*first, *[rest] * (len(value) - len(first))]
        return [one(item) if one else item for one, item in zip(each, value, strict=False)]

    return convert


def _of_fields(schema: Mapping[str, Any]) -> Convert | None:
    named = schema.get("properties", {})
    fields = {name: found for name, one in named.items() if (found := floats(one))}
    others = floats(schema.get("additionalProperties"))
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
