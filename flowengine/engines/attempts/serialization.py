"""Conversion of results of step kinds and functions into plain data, and copies of plain data.

A result of plain dicts and lists takes a single pass of msgpack. The packed bytes go to the
journal, and unpacking them yields the copy for the state. A value that msgpack refuses, or accepts
although JSON would not, is checked part by part. This check also produces the error message.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from flowengine.journal.encoding import pack_copied
from flowengine.kernel.graph.compiled import Plain
from flowengine.named_tuples import NamedTuple
from flowengine.sdk import ValidationError
from flowengine.sdk.received import DEEPEST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flowengine.kernel.events import Log, Opening

_CONTAINERS = frozenset({dict, list})
_TEXT = frozenset({str})
_NESTING = bytes((*range(0x80, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF))
"""First bytes of packed dicts and lists. They can also occur inside text."""
_NAN, _MINUS_NAN, _NO_BYTES = b"\xcb\x7f", b"\xcb\xff", b"\xc4\x00"
"""Prefixes of packed floats that are not finite, and of some very large ones, and packed `b""`."""
_FLAT = bytes(set(range(256)).difference(_NESTING))


class StoredValue(NamedTuple):
    """A value as stored in the state."""

    value: Plain
    packed: bytes | None = None
    """Its packed form for the journal, if already known."""
    openings: Sequence[Opening] = ()
    """The environments of the event, see `Succeeded`."""
    log: Log | None = None
    """What the attempt has logged. None: nothing."""


def copy(value: Plain) -> Plain:
    """Copy plain data, so that the state's copy cannot change. Immutable values are shared."""
    if type(value) is dict:
        copied = value.copy()
        for key, item in value.items():
            if type(item) in _CONTAINERS:
                copied[key] = copy(item)
        return copied
    if type(value) is list:
        return [copy(item) if type(item) in _CONTAINERS else item for item in value]
    return value


def keep(value: Any) -> StoredValue:
    """Return a value as plain data, as `to_plain` does, with its packed form."""
    if type(value) in _CONTAINERS:
        fast = pack_copied(value)
        if fast is not None and _is_storable(*fast):
            return StoredValue(fast[0], fast[1])
    return StoredValue(to_plain(value))


def _is_storable(value: Plain, packed: bytes, has_bytes: bool) -> bool:
    """Return whether data unpacked by msgpack is plain data.

    Searching for a single byte takes no time. Pairs of bytes are only searched for if the rarer
    byte occurs.
    """
    if 0x7F in packed and _NAN in packed:
        return False
    if 0xFF in packed and _MINUS_NAN in packed:
        return False
    if has_bytes or (0xC4 in packed and _NO_BYTES in packed):  # a key may be bytes
        return _is_plain(value)
    return len(packed.translate(None, _FLAT)) <= DEEPEST or _is_plain(value)


def _is_plain(value: Plain) -> bool:
    """Return whether all keys are text, and dicts and lists are not nested too deeply."""
    level = [value]
    for _ in range(DEEPEST + 1):
        dicts = [part for part in level if type(part) is dict]
        if not all(_TEXT.issuperset(map(type, part)) for part in dicts):
            return False
        parts = [part.values() if type(part) is dict else part for part in level]
        level = [each for part in parts for each in part if type(each) in _CONTAINERS]
        if not level:
            return True
    return False


def to_plain(value: Any, depth: int = 0) -> Plain:
    """Return a value as plain data: JSON with finite numbers of 64 bits, and bytes.

    Tuples become lists, dataclasses and pydantic models become maps, and enumerations become their
    values. Dates and times become ISO 8601 texts, paths and UUIDs become texts.

    Args:
        value: Any value.
        depth: Its nesting depth in the enclosing value.

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
        raise ValidationError(f"{value} has more than 64 bits; give it as text")
    if kind is float:
        if math.isfinite(value):
            return value
        raise ValidationError(f"{value} is not a number in JSON; give null or text")
    if depth > DEEPEST:
        raise ValidationError(f"it is nested more than {DEEPEST} levels deep, or contains itself")
    if kind is dict:
        return {_key(key): to_plain(item, depth + 1) for key, item in value.items()}
    if kind is list or kind is tuple:
        return [to_plain(item, depth + 1) for item in value]
    return to_plain(_simpler(value), depth + 1)


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
        raise ValidationError(f"{text!r} is not Unicode text; give bytes") from None
    return text


def _key(key: Any) -> str:
    if type(key) is not str:
        if isinstance(key, str):
            return str.__str__(key)
        raise ValidationError(f"the key {key!r} of a map is {type(key).__name__}, not text")
    return _checked_text(key)


def _simpler(value: Any) -> Any:
    """Return a value of a richer type in its JSON form."""
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
