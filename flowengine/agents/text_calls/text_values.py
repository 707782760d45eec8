"""Conversion of arguments written as text to the types of their schema.

`<parameter=a>5</parameter>` does not show whether 5 is a number or text. The schema decides. If it
allows text, the argument stays unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from flowengine.agents.text_calls.json_text import BrokenJson, read_json

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_INTEGER = re.compile(r"[+-]?[0-9]{1,400}")
_BOOLEANS = {"true": True, "True": True, "false": False, "False": False}
_NULLS = {"null", "None"}
_ALL = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})
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
    choices = choices_of(schema, root)
    if choices is not None:
        return _chosen(text, choices)
    types = allowed_types(schema, root)
    if types == _ALL:
        return _plain_or_text(text, repairs)
    stripped = text.strip()
    if "null" in types and stripped in _NULLS:
        return None
    if "string" in types:
        return text
    if "boolean" in types and stripped in _BOOLEANS:
        return _BOOLEANS[stripped]
    if types & {"integer", "number"} and _NUMBER.fullmatch(stripped):
        return _number(stripped)
    if types & {"array", "object"} and stripped[:1] in {"[", "{"}:
        return _plain(stripped, repairs)
    raise Misfit(f"must be {_type_names(types)}")


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
    for one in _list(schema.get("allOf")):
        types &= allowed_types(one, root, hops - 1)
    return types | {"integer"} if "number" in types else types


def _referred(reference: str, root: Mapping[str, Any]) -> Any:
    """Return the target of a reference such as `#/$defs/Item`, or True, which allows all values."""
    found: Any = root
    for step in reference.removeprefix("#").strip("/").split("/"):
        key = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, Mapping) or key not in found:
            return True
        found = found[key]
    return found


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
    found: list[Any] = []
    for part in parts:
        choices = choices_of(part, root, hops - 1)
        if choices is None and allowed_types(part, root) == {"null"}:
            choices = [None]
        if choices is None:
            return None
        found += choices
    return found if parts else None


def _chosen(text: str, choices: list[Any]) -> Any:
    if text in choices:
        return text
    stripped = text.strip()
    for choice in choices:
        if choice is None and stripped in _NULLS:
            return None
        if isinstance(choice, bool) and _BOOLEANS.get(stripped) is choice:
            return choice
        is_number = type(choice) in {int, float} and _NUMBER.fullmatch(stripped)
        if is_number and _number(stripped) == choice:
            return choice
    raise Misfit(f"must be one of {', '.join(map(repr, choices))}")


def _number(text: str) -> int | float:
    """Parse a number. `007` and `+5` are accepted, because a human would accept them."""
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text)


def _plain(text: str, repairs: list[str]) -> Any:
    try:
        value, rest, mended = read_json(text)
    except BrokenJson as broken:
        raise Misfit(f"must be JSON: {broken.reason}") from None
    if rest.strip():
        raise Misfit("must be JSON, with nothing after it")
    repairs += mended
    return value


def _plain_or_text(text: str, repairs: list[str]) -> Any:
    """Parse a value without a schema: as JSON if possible, otherwise as text."""
    try:
        return _plain(text.strip(), repairs)
    except Misfit:
        return text


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
