"""Values that a person types: text by the declared type of a field."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from flowengine.engines.people.edits import TYPES, declared
from flowengine.errors import InputError
from flowengine.sdk.texts.json_values import RepeatedKeyError, read_json
from flowengine.sdk.values.schema_types import kinds
from flowengine.sdk.values.validation import TYPE_WORDS

_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
"""A number in JSON. One that cannot be read is too large."""
_BEGINS = ("{", "[")


def by_type(schema: Any, text: str, what: str, field: str) -> Any:
    """Read a value by its declared type: text unchanged, everything else as JSON.

    Args:
        schema: JSON Schema of the value, `{}` if it is not declared.
        what: Its description in messages: `input 'amount'`.
        field: Its name.

    Returns:
        Plain data. The engine checks it against the whole schema.

    Raises:
        InputError: It is not of the declared type.
    """
    types = schema.get("type") if isinstance(schema, Mapping) else None
    types = [types] if isinstance(types, str) else types or []
    if types == ["string"]:
        return text
    try:
        value = read_json(text, what, field)
    except RepeatedKeyError:
        raise
    except InputError:
        if not types or "string" in types:
            return text
        if text.lstrip()[:1] in _BEGINS and {"object", "array"}.intersection(types):
            raise  # its message has the reason
        expected = " or ".join(TYPE_WORDS.get(name, name) for name in types)
        if {"integer", "number"}.intersection(types) and _NUMBER.fullmatch(text):
            raise InputError(
                f"{what} must be {expected} of 64 bits, not {text}", field=field
            ) from None
        hint = "write it as JSON" if {"object", "array"}.intersection(types) else None
        message = f"{what} must be {expected}, not {text!r}"
        raise InputError(message, field=field, hint=hint) from None
    kind = TYPES[type(value)]
    fits = not types or kind in types or (kind == "integer" and "number" in types)
    return value if fits or "string" not in types else text


def supplied_value(wait: Mapping[str, Any], text: str, what: str) -> Any:
    """Read the result that a person types in place of a call or of an interrupted attempt.

    Args:
        wait: The wait, whose `returns` is the declared type.
        text: JSON. For a result that may be text, any other text is the result itself.
        what: Its description in messages.

    Returns:
        Plain data.

    Raises:
        InputError: It is not of the declared type.
    """
    types = sorted(kinds(wait.get("returns", {})) or ())
    if text.lstrip()[:1] in _BEGINS and not types:
        return read_json(text, what, "value")  # broken JSON is not meant as text
    if text.lstrip()[:1] == '"':
        try:
            return read_json(text, what, "value")
        except InputError:
            pass
    return by_type({"type": types} if types else {}, text, what, "value")


def edited_field(wait: Mapping[str, Any], path: str, text: str) -> Any:
    """Read the new value of an editable field of an approval.

    Args:
        wait: The approval.
        path: The field, as a dotted path.

    Returns:
        Plain data: of the declared type, otherwise of the type of the value shown.
    """
    schema, _ = editable_schema(wait, path)
    old = wait.get("subject")
    for part in path.split("."):
        old = old.get(part) if isinstance(old, dict) else None
    types = sorted(kinds(schema) or {TYPES.get(type(old), "null")} - {"bytes", "null"})
    return by_type({"type": types} if types else {}, text, f"'{path}'", path)


def editable_schema(wait: Mapping[str, Any], path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the JSON Schema of an editable field of an approval.

    Args:
        wait: The approval.
        path: The field, as a dotted path.

    Returns:
        The schema with its references resolved, empty if none is declared, and the root for the
        references in its parts.
    """
    return declared(wait.get("edit_schema", {}), path)
