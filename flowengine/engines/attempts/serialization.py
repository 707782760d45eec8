"""The stored form of results of step kinds and functions, and copies of plain data.

A result of plain dicts and lists takes a single pass of msgpack. The packed bytes go to the
journal, and unpacking them yields the copy for the state. A value that msgpack refuses, or accepts
although JSON would not, is checked part by part. This check also produces the error message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from flowengine.journal.encoding import pack_copied
from flowengine.kernel.events import Log, Opening
from flowengine.kernel.graph.compiled import Plain
from flowengine.sdk.texts.received import DEEPEST
from flowengine.sdk.values.plain_values import to_plain

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
    """The log of the attempt. None: nothing."""


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
