"""Turns what step kinds and functions give into plain data, and copies plain data for them.

A result of plain dicts and lists takes one pass of msgpack: the bytes that the journal will hold,
and read back the copy that the state keeps. Whatever msgpack refuses, or takes and JSON would not,
is looked at part by part, which also finds the words for the error.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from flowengine.journal.format import pack_copied
from flowengine.kernel.graph import Plain
from flowengine.sdk import ValidationError

_DEEP = 200
_CONTAINERS = frozenset({dict, list})
_MARKS = bytes(
    (*range(0x80, 0xA0), 0xC4, 0xC5, 0xC6, 0xC7, 0xCB, *range(0xD6, 0xD8), *range(0xDC, 0xE0))
)
"""First bytes of what may have to be looked at: dicts, lists, floats, bytes and extensions."""
_OTHERS = bytes(set(range(256)) - set(_MARKS))
_SCALARS = frozenset({str, int, bool, bytes, type(None)})
_HARMLESS = bytes((*range(0x80, 0xA0), 0xCB, *range(0xDC, 0xE0)))
"""Of these: dicts and lists, if they are few, and floats, if they are finite."""


class Kept(NamedTuple):
    """A value as the state keeps it."""

    value: Plain
    packed: bytes | None = None
    """Its form in the journal, if that is known already."""


def copy(value: Plain) -> Plain:
    """Copy plain data: what belongs to the state must not change under it."""
    kind = type(value)
    if kind is dict:
        copied = value.copy()  # what is no container is shared: it cannot change
        for key, item in value.items():
            if type(item) in _CONTAINERS:
                copied[key] = copy(item)
        return copied
    if kind is list:
        return [copy(item) if type(item) in _CONTAINERS else item for item in value]
    return value


def keep(value: Any) -> Kept:
    """Return a value as plain data, as `to_plain` does, with its form in the journal."""
    if type(value) in _CONTAINERS:
        fast = pack_copied(value)
        if fast is not None and (_is_certain(fast[1]) or _is_plain(fast[0], 0)):
            return Kept(*fast)
    return Kept(to_plain(value))


def _is_certain(packed: bytes) -> bool:
    """Return whether nothing in packed data can be what `to_plain` refuses."""
    marks = packed.translate(None, _OTHERS)
    if len(marks) > _DEEP or marks.translate(None, _HARMLESS):
        return False  # these bytes may as well be part of a text
    if b"\xcb" not in marks:
        return True
    return b"\xcb\x7f" not in packed and b"\xcb\xff" not in packed


def _is_plain(value: Any, depth: int) -> bool:
    """Return whether what msgpack has read is as `to_plain` would give it."""
    kind = type(value)
    if kind is dict:
        if depth > _DEEP:
            return False
        for key, item in value.items():
            if type(key) is not str or not _is_plain(item, depth + 1):
                return False
        return True
    if kind is list:
        return depth <= _DEEP and all(_is_plain(item, depth + 1) for item in value)
    return math.isfinite(value) if kind is float else kind in _SCALARS


def to_plain(value: Any, depth: int = 0) -> Plain:
    """Return a value as plain data: JSON with finite numbers of 64 bits, and bytes.

    Tuples become lists; dataclasses and pydantic models maps; dates and times ISO 8601 texts; paths
    and UUIDs texts; enumerations their values.

    Args:
        value: Anything.
        depth: How deep it stands in what it is a part of.

    Returns:
        Plain data that shares nothing changeable with the value.

    Raises:
        ValidationError: It holds something that has no such form.
    """
    kind = type(value)
    if kind is bool or kind is bytes or value is None:
        return value
    if kind is str:
        return value if value.isascii() else _checked_text(value)
    if kind is int:
        if -(2**63) <= value < 2**64:
            return value
        raise ValidationError(f"{value} has more than 64 bits; give it as text")
    if kind is float:
        if math.isfinite(value):
            return value
        raise ValidationError(f"{value} is no number that JSON has; give null or a text")
    if depth > _DEEP:
        raise ValidationError(f"it is nested more than {_DEEP} deep, or holds itself")
    if kind is dict:
        return {_key(key): to_plain(item, depth + 1) for key, item in value.items()}
    if kind is list or kind is tuple:
        return [to_plain(item, depth + 1) for item in value]
    return to_plain(_simpler(value), depth + 1)


def place_of_fault(value: Any) -> str:
    """Return where in a value, which `to_plain` has refused, the fault is: `.rows[3].box`."""
    place = ""
    for _ in range(_DEEP):
        parts: Any = ()
        if isinstance(value, dict):
            parts = [(f".{key}", item) for key, item in value.items() if isinstance(key, str)]
        elif isinstance(value, list | tuple):
            parts = [(f"[{at}]", item) for at, item in enumerate(value)]
        found = next((part for part in parts if _is_refused(part[1])), None)
        if found is None:
            return place
        place, value = place + found[0], found[1]
    return ""  # it holds itself


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
        raise ValidationError(f"{text!r} is no Unicode text; give bytes") from None
    return text


def _key(key: Any) -> str:
    if type(key) is not str:
        if isinstance(key, str):
            return str.__str__(key)
        raise ValidationError(f"the key {key!r} of a map is {type(key).__name__}, not text")
    return _checked_text(key)


def _simpler(value: Any) -> Any:
    """Return a value of a richer type in the form that JSON has for it."""
    import dataclasses
    import datetime
    import enum
    import pathlib
    import uuid

    match value:
        case enum.Enum():
            return value.value
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case pathlib.PurePath() | uuid.UUID():
            return str(value)
        case str():
            return str.__str__(value)
        case int():
            return int(value)
        case float():
            return float(value)
        case bytearray() | memoryview():
            return bytes(value)
        case dict():
            return dict(value)
        case list() | tuple():
            return list(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        return dump(mode="json")
    kind = type(value)
    raise ValidationError(
        f"a value of type {kind.__module__}.{kind.__qualname__} cannot be kept; give text, "
        "numbers, true, false, null, bytes, lists and maps of these"
    )
