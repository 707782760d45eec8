"""Conversion of values of Python into plain data.

Plain data is JSON with finite numbers of 64 bits, and bytes.
"""

from __future__ import annotations

import math
from binascii import b2a_base64
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from flowengine.kernel.graph.compiled import Plain
from flowengine.sdk import python
from flowengine.sdk.errors import ValidationError
from flowengine.sdk.python.plain_hints import is_written_by_type, known_hints
from flowengine.sdk.texts.json_values import SAME_KEYS, in_order
from flowengine.sdk.texts.received import DEEPEST

_DEEPER = f"it is nested more than {DEEPEST} levels deep, or contains itself"


def to_plain(value: Any, depth: int = 0, *, number_keys: bool = False) -> Plain:
    """Return a value as plain data: JSON with finite numbers of 64 bits, and bytes.

    Tuples and sets become lists, dataclasses and pydantic models become maps, and enumerations
    become their values. Dates, times and durations become ISO 8601 texts. Decimals, paths, UUIDs
    and other types that pydantic knows become texts. So do keys that are dates, UUIDs or members of
    an enumeration.

    Args:
        value: Any value.
        depth: Its nesting depth in the enclosing value.
        number_keys: Whether keys that are numbers or bytes become text too, as their type declares.

    Returns:
        Plain data that shares nothing mutable with the value.

    Raises:
        ValidationError: It contains something without a plain form.
    """
    kind = type(value)
    if kind is bool or kind is bytes or value is None:
        return value
    if kind is str:
        return value if value.isascii() else _checked_text(value)
    if kind is int:
        if -(2**63) <= value < 2**64:
            return value
        raise ValidationError(f"{value} has more than 64 bits: give it as text")
    if kind is float:
        if math.isfinite(value):
            return value
        raise ValidationError(f"{value} is not a number in JSON: give null or text")
    if depth > DEEPEST:
        raise ValidationError(_DEEPER)
    if kind is dict:
        made = {
            _key(key, number_keys): to_plain(item, depth + 1, number_keys=number_keys)
            for key, item in value.items()
        }
        if len(made) < len(value):
            raise ValidationError(SAME_KEYS)
        return made
    if kind is list or kind is tuple or isinstance(value, set | frozenset):
        items = [to_plain(item, depth + 1, number_keys=number_keys) for item in value]
        return items if kind is list or kind is tuple else in_order(items)
    return to_plain(_simpler(value), depth + 1, number_keys=number_keys)


def place_of_fault(value: Any) -> str:
    """Return the path of the part of a value that `to_plain` has refused: `.rows[3].box`."""
    place = ""
    for _ in range(DEEPEST):
        parts: Any = ()
        if isinstance(value, dict):
            parts = [(f".{key}", item) for key, item in value.items() if isinstance(key, str)]
        elif isinstance(value, list | tuple):
            parts = [(f"[{at}]", item) for at, item in enumerate(value)]
        refused = next((part for part in parts if _is_refused(part[1])), None)
        if refused is None:
            return place
        place, value = place + refused[0], refused[1]
    return ""  # it contains itself


def _is_refused(value: Any) -> bool:
    try:
        to_plain(value)
    except ValidationError:
        return True
    return False


def _checked_text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValidationError(f"{text!r} is not Unicode text: give bytes") from None
    return text


def _key(key: Any, number_keys: bool) -> str:
    if type(key) is str:
        return key if key.isascii() else _checked_text(key)
    made = None if key is None else to_plain(key)
    if isinstance(made, str):
        return made
    if number_keys and isinstance(made, bytes):
        return b2a_base64(made, newline=False).decode()
    if number_keys and isinstance(made, int | float):
        return str(made).lower()
    raise ValidationError(f"the key {key!r} of a map is {type(key).__name__}, not text")


@lru_cache(maxsize=1)
def _forms() -> list[tuple[Any, Callable[[Any], Any]]]:
    """Return the simpler forms of types, those of a subclass before those of its base."""
    import datetime
    import enum
    import pathlib
    import re
    import uuid
    from collections import deque

    return [
        (enum.Enum, lambda member: member.value),
        ((datetime.date, datetime.time), _iso),
        ((pathlib.PurePath, uuid.UUID), str),
        (re.Pattern, _pattern),
        (str, str.__str__),
        (int, int),
        (float, float),
        ((bytearray, memoryview), bytes),
        (Mapping, dict),
        ((list, tuple, deque, range), list),
    ]


def _iso(time: Any) -> str:
    """Return the ISO 8601 text of a date or time, as pydantic writes it."""
    text: str = time.isoformat()
    return f"{text[:-6]}Z" if text.endswith("+00:00") else text


def _pattern(pattern: Any) -> str:
    """Return the text of a regular expression, which begins with its flags: `(?i)a`."""
    import re

    if not isinstance(pattern.pattern, str):
        raise ValidationError("a regular expression of bytes has no text form: use one of text")
    if re.compile(pattern.pattern).flags == pattern.flags:
        return str(pattern.pattern)
    names = {"i": re.I, "m": re.M, "s": re.S, "x": re.X, "a": re.A}
    flags = "".join(name for name, flag in names.items() if pattern.flags & flag)
    return f"(?{flags}){re.sub(r'^[(][?][aimsux]+[)]', '', pattern.pattern)}"


def _simpler(value: Any) -> Any:
    """Return a value of a richer type in its JSON form."""
    for types, form in _forms():
        if isinstance(value, types):
            return form(value)
    import dataclasses

    if isinstance(value, type):
        raise _no_form(value)
    kind: Any = type(value)
    if hasattr(kind, "__pydantic_serializer__"):
        return _of_model(value)
    if dataclasses.is_dataclass(value):
        if _is_written_by_type(kind):
            return _of_model(value)
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    dump = getattr(kind, "model_dump", None)  # of its class: a mock has any
    return dump(value, mode="json") if callable(dump) else _as_text(value)


@lru_cache(maxsize=1024)
def _is_written_by_type(dataclass: type) -> bool:
    """Return whether the plain form of a dataclass depends on the types of its fields."""
    return any(map(is_written_by_type, known_hints(dataclass).values()))


def _of_model(value: Any) -> Any:
    """Return a pydantic model or dataclass as plain data."""
    from pydantic import BaseModel

    kind: Any = type(value)
    own = getattr(kind, "model_dump", None)
    if own not in (None, BaseModel.model_dump):
        return own(value, mode="json")
    try:
        return python.typed_values.of_class(kind).plain(value, to_plain)
    except ValidationError:
        raise
    except python.carried_values.NoPlainForm as error:
        raise _no_form(value) from error
    except (ValueError, TypeError) as error:
        if "RecursionError" in str(error) or "Circular reference" in str(error):
            raise ValidationError(_DEEPER) from None
        raise ValidationError(f"{_named(value)}: {error}") from error


def _as_text(value: Any) -> Any:
    """Return the text of a value whose type pydantic knows: `Decimal`, `timedelta`, an address."""
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    if hasattr(value, "__next__") or type(value) is object or value is ...:
        raise _no_form(value)  # the items of an iterator would be used up
    kind: Any = type(value)
    if hasattr(kind, "__get_pydantic_core_schema__"):
        return _of_model(value)
    try:
        made = to_jsonable_python(value)
    except (PydanticSerializationError, ValueError):
        return _of_model(value)
    if isinstance(made, list | dict):
        raise _no_form(value)
    return made


def _no_form(value: Any) -> ValidationError:
    return ValidationError(
        f"a value of type {_named(value)} cannot be kept: give text, numbers, true, false, null, "
        "bytes, lists and maps of these"
    )


def _named(value: Any) -> str:
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}"
