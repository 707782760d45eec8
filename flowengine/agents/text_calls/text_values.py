"""Conversion of arguments written as text to the types of their schema.

`<parameter=a>5</parameter>` does not show whether 5 is a number or text. The schema decides. If it
allows text, the argument stays unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowengine.agents.text_calls.json_text import BrokenJson, read_json

_NULLS = {"null", "None"}
_ALL = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})
_UNREADABLE = object()
_HOPS = 16
"""Maximum depth of references. Deeper ones are treated as circular."""


class Misfit(Exception):
    """A text does not fit its schema. The message describes the required value."""


def typed(text: str, schema: Any, root: Mapping[str, Any], repairs: list[str]) -> Any:
    """Return the value that a text represents.

    Args:
        text: The text as written by the model.
        schema: Schema of the value.
        root: The schema that contains the targets of `$ref`.
        repairs: Repairs are appended to it.

    Raises:
        Misfit: The text does not represent such a value.
    """
    choices, types = choices_of(schema, root), allowed_types(schema, root)
    if choices is not None:
        return _chosen(text, choices)
    if "string" in types and types != _ALL:
        return None if "null" in types and text.strip() in _NULLS else text
    value, mended = _read(text)
    if value is _UNREADABLE:
        if types == _ALL:
            return text
        raise Misfit(f"must be {_type_names(types)}")
    repairs += mended
    return value


def _read(text: str) -> tuple[Any, tuple[str, ...]]:
    """Return the value that a text is as JSON, if it is one, and the repairs."""
    try:
        value, rest, repairs = read_json(text)
    except BrokenJson:
        return _UNREADABLE, ()
    return (_UNREADABLE, ()) if rest.strip() else (value, repairs)


def allowed_types(schema: Any, root: Mapping[str, Any], hops: int = _HOPS) -> frozenset[str]:
    """Return the JSON types that a schema allows, by default all of them.

    Args:
        schema: The schema.
        root: The schema that contains the targets of `$ref`.
        hops: Maximum depth of nested schemas to read.
    """
    if not isinstance(schema, Mapping) or hops == 0:
        return _ALL
    types = _ALL
    match schema.get("type"):
        case str(name):
            types &= {name}
        case list(names):
            types &= frozenset(name for name in names if isinstance(name, str))
    if isinstance(schema.get("$ref"), str):
        types &= allowed_types(_referred(schema["$ref"], root), root, hops - 1)
    for keyword in ("anyOf", "oneOf"):
        if isinstance(schema.get(keyword), list):
            each = (allowed_types(one, root, hops - 1) for one in schema[keyword])
            types &= frozenset().union(*each)
    for part in _list(schema.get("allOf")):
        types &= allowed_types(part, root, hops - 1)
    return types | {"integer"} if "number" in types else types


def _referred(reference: str, root: Mapping[str, Any]) -> Any:
    """Return the target of a reference such as `#/$defs/Item`, or True, which allows all values."""
    value: Any = root
    for step in reference.removeprefix("#").strip("/").split("/"):
        key = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(value, Mapping) or key not in value:
            return True
        value = value[key]
    return value


def choices_of(schema: Any, root: Mapping[str, Any], hops: int = _HOPS) -> list[Any] | None:
    """Return the values of `enum` or `const`, including those of a union, if there are any."""
    if not isinstance(schema, Mapping) or hops == 0:
        return None
    if isinstance(schema.get("enum"), list):
        return list(schema["enum"])
    if "const" in schema:
        return [schema["const"]]
    if isinstance(schema.get("$ref"), str):
        return choices_of(_referred(schema["$ref"], root), root, hops - 1)
    parts = _list(schema.get("anyOf")) or _list(schema.get("oneOf"))
    values: list[Any] = []
    for part in parts:
        choices = choices_of(part, root, hops - 1)
        if choices is None and allowed_types(part, root) == {"null"}:
            choices = [None]
        if choices is None:
            return None
        values += choices
    return values if parts else None


def _chosen(text: str, choices: list[Any]) -> Any:
    if text in choices:
        return text
    value, _ = _read(text)
    for choice in choices:
        if choice == value and isinstance(choice, bool) == isinstance(value, bool):
            return choice
    raise Misfit(f"must be one of {', '.join(map(repr, choices))}")


def _type_names(types: frozenset[str]) -> str:
    words = {
        "integer": "a whole number",
        "number": "a number",
        "boolean": "true or false",
        "array": "a list as JSON",
        "object": "an object as JSON",
        "null": "null",
    }
    named = types - {"integer"} if "number" in types else types
    return " or ".join(words[name] for name in words if name in named) or "left out"


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
