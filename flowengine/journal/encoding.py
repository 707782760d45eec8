"""Encoding of events and snapshots as bytes, and safe decoding.

Data stored beside the journal may contain places instead of texts. A place gives the position of a
text in an event of the same execution (`pack_placed`).

Stored data consists only of None, bool, 64-bit int, float, str, bytes, list, and dict with text
keys (in snapshots also int keys). Reading untrusted bytes creates nothing else, imports nothing and
calls nothing. An event or a snapshot is one msgpack value. Snapshots are not compressed: all of
them together take less space than the journal, and compressing one takes ten times as long as
packing and writing it.

Every event and snapshot in a store has a checksum that also covers its position. A flipped bit or a
misplaced page is therefore reported as damage and not replayed.
"""

from __future__ import annotations

from binascii import crc32 as checksum
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import msgpack  # type: ignore[import-untyped]

from flowengine.errors import InputError, StoreError
from flowengine.sdk.texts.sizes import size_text

__all__ = [
    "MAX_DEPTH",
    "MAX_SIZE",
    "TextPosition",
    "checksum",
    "inflate",
    "long_texts",
    "pack",
    "pack_copied",
    "pack_placed",
    "pack_result",
    "packed_result",
    "unpack",
    "unpack_placed",
]

_ZLIB = b"\x78"
"""The first byte of zlib data (RFC 1950)."""
_WORTH_IT = 256
"""Number of bytes from which compression saves space."""
MAX_SIZE = 256 * 1024 * 1024
"""Maximum bytes of one value, packed or inflated: a quarter of the maximum size of a row in
SQLite."""
MAX_DEPTH = 1024
"""Maximum nesting of lists and dicts, the limit of msgpack's unpacker."""

_SHOWN = 80
"""Characters of the path to a value that is nested too deeply."""

_EVENT = 1024
"""Bytes reserved in an event in addition to its value."""

_PLACE = 1
"""The extension type of a place."""
SHORTEST = 128
"""Minimum length of a text that may be replaced by a place."""
_SHARE = 8
"""Maximum ratio of event size to text size for a place. It saves nothing in larger events, because
the whole event is read."""

_SUCCEEDED = b"\x85\xa4type\xa9succeeded\xa2at"


def _refuse_extension(code: int, data: bytes) -> None:
    raise ValueError(f"extension type {code} is not in the closed set of types")


_new_packer = partial(msgpack.Packer, use_bin_type=True, strict_types=True)
_packer = _new_packer()
_copied = partial(msgpack.unpackb, ext_hook=_refuse_extension, max_ext_len=0)


class TextPosition(NamedTuple):
    """The position of a text in the journal."""

    event: int
    start: int
    """The offset of the first byte."""
    length: int
    """The length in bytes."""


def pack(value: Any, extension: Callable[[Any], Any] | None = None) -> bytes:
    """Return plain data as bytes. Equal data in the same order always yields the same bytes.

    Args:
        value: An event, a state, or any other plain data.
        extension: Encodes other values. None: they are refused.

    Returns:
        One msgpack value.

    Raises:
        InputError: It contains something that is not plain data, or is too large or nested too
            deeply.
    """
    try:
        # The packer accepts one more level than the unpacker. Packing the value inside a list,
        # which is removed again, prevents writing unreadable data.
        packer = _packer if extension is None else _new_packer(default=extension)
        listed: bytes = packer.pack([value])
    except (TypeError, ValueError, OverflowError) as error:
        found = None if extension is not None else _find_unstorable(value)
        where, what = found or ("", str(error))
        raise InputError(
            f"a value cannot be stored: {where or 'it'} is {what}",
            field=where,
            hint="stored are null, true, false, text, bytes, lists, maps, floats, "
            "and integers from -2^63 to 2^64-1",
        ) from None
    if len(listed) > MAX_SIZE + 1:
        raise InputError(
            f"a value of {size_text(len(listed) - 1)} cannot be stored: the limit is "
            f"{size_text(MAX_SIZE)}",
            hint="keep it as an artifact and store its digest",
        )
    return listed[1:]


def pack_copied(value: Any) -> tuple[Any, bytes, bool] | None:
    """Return a copy of a value, its bytes, and whether it contains non-empty bytes.

    The copy is the result of `unpack`. It may contain data that is not plain: bytes as keys, floats
    that are not finite, deeper nesting. None: it must be checked part by part.

    Args:
        value: Any value.
    """
    try:
        packed: bytes = _packer.pack(value)
        if len(packed) > MAX_SIZE - _EVENT:
            return None
        try:
            return _copied(packed, max_bin_len=0), packed, False
        except ValueError:
            return _copied(packed), packed, True
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None


def pack_result(at: int, unit: int, attempt: int, packed: bytes) -> bytes:
    """Return the event `succeeded` as bytes, given the bytes of its value.

    The result equals that of `pack` for `type`, `at`, `unit`, `attempt` and `value`, in this order.

    Args:
        at: When it happened (ms).
        unit: The unit of the result.
        attempt: The attempt of the result.
        packed: The bytes of the value.
    """
    number = _packer.pack
    return b"%b%b\xa4unit%b\xa7attempt%b\xa5value%b" % (
        _SUCCEEDED,
        number(at),
        number(unit),
        number(attempt),
        packed,
    )


def packed_result(event: bytes) -> bytes | None:
    """Return the bytes of the value of an event that `pack_result` could have made, or None.

    Args:
        event: Any packed event.
    """
    if not event.startswith(_SUCCEEDED):
        return None
    return event[event.index(b"\xa5value") + 6 :]


def unpack(packed: bytes, extension: Callable[[int, bytes], Any] | None = None) -> Any:
    """Return the plain data that `pack` encoded.

    Args:
        packed: Any bytes, not trusted.
        extension: Decodes values of an extension type. None: such values are refused.

    Returns:
        Plain data.

    Raises:
        StoreError: They are not one value of the permitted types, or exceed a limit.
    """
    if len(packed) > MAX_SIZE:
        size, limit = size_text(len(packed)), size_text(MAX_SIZE)
        raise StoreError(_unreadable(f"{size} are over the limit of {limit}"))
    try:
        return msgpack.unpackb(
            packed,
            raw=False,
            use_list=True,
            strict_map_key=False,  # some keys of a state are ints
            # Never written, and this setting decodes it as an int instead of an object.
            timestamp=2,
            ext_hook=extension or _refuse_extension,
        )
    except (ValueError, TypeError, RecursionError, MemoryError) as error:
        raise StoreError(_unreadable(str(error) or type(error).__name__)) from None


def text_places(events: Iterable[tuple[int, bytes]]) -> dict[str, TextPosition]:
    """Return the places of long texts in events.

    Args:
        events: (number, packed event) of each.
    """
    positions: dict[str, TextPosition] = {}
    for number, packed in events:
        if len(packed) < SHORTEST:
            continue
        for text in long_texts(unpack(packed)):
            encoded = text.encode()
            if len(encoded) * _SHARE >= len(packed):
                positions.setdefault(text, TextPosition(number, packed.find(encoded), len(encoded)))
    return positions


def long_texts(value: Any) -> Iterator[str]:
    """Yield the texts in plain data that may be replaced by places."""
    open_parts: list[Any] = [[value]]
    for part in open_parts:  # the list grows during iteration
        for item in part.values() if type(part) is dict else part:
            kind = type(item)
            if kind is str:
                if len(item) >= SHORTEST:
                    yield item
            elif kind is dict or kind is list:
                open_parts.append(item)


def pack_placed(value: Any, places: Callable[[], Mapping[str, TextPosition]]) -> bytes:
    """Return plain data as bytes, with places instead of long texts that have one.

    Args:
        value: Plain data.
        places: Returns the places of texts. Called only if there is a long text.
    """
    positions: Mapping[str, TextPosition] | None = None

    def text(value: str) -> Any:
        nonlocal positions
        if positions is None:
            positions = places()
        place = positions.get(value)
        return value if place is None else msgpack.ExtType(_PLACE, _packer.pack([*place]))

    def placed(part: Any) -> Any:
        """Return a dict or a list with places, copied only if it contains any."""
        copied = part
        for key, entry in part.items() if type(part) is dict else enumerate(part):
            kind = type(entry)
            if kind is str:
                if len(entry) < SHORTEST:
                    continue
                new = text(entry)
            elif kind is dict or kind is list:
                new = placed(entry)
            else:
                continue
            if new is not entry:
                if copied is part:
                    copied = part.copy()
                copied[key] = new
        return copied

    return pack(placed([value])[0])


def unpack_placed(packed: bytes, text: Callable[[bytes], Any]) -> Any:
    """Return the plain data that `pack_placed` encoded.

    Args:
        packed: Any bytes, not trusted.
        text: Returns the text at a place. Receives the place as bytes for `unpack_place`.

    Raises:
        StoreError: They are not plain data with places, or exceed a limit.
    """

    def placed(code: int, data: bytes) -> Any:
        if code != _PLACE:
            _refuse_extension(code, data)
        return text(data)

    return unpack(packed, placed)


def unpack_place(data: bytes) -> TextPosition:
    """Return a place encoded by `pack_placed`. Raise `ValueError` if it is not a place."""
    place = msgpack.unpackb(data, ext_hook=_refuse_extension)
    if type(place) is not list or [type(item) for item in place] != [int, int, int]:
        raise ValueError("a place is three numbers")
    return TextPosition(*place)


def text_at(place: TextPosition, event: bytes) -> str:
    """Return the text at a place. Raise `ValueError` if the place is not valid.

    Args:
        place: The place.
        event: The packed event that contains the text.
    """
    encoded = event[place.start : place.start + place.length]
    if place.start < 0 or len(encoded) != place.length:
        raise ValueError(f"{place} is not in event {place.event}")
    return encoded.decode()


def deflated(packed: bytes) -> bytes:
    """Return packed data, compressed if it is long enough.

    Used for data that users read and write, such as a question and its answer, which is short text.
    `packed_again` restores the original.

    Args:
        packed: As `pack` returns it.
    """
    if len(packed) < _WORTH_IT:
        return packed
    import zlib

    shorter = zlib.compress(packed)
    return shorter if len(shorter) < len(packed) else packed


def packed_again(stored: bytes) -> bytes:
    """Return the original input of `deflated`.

    Args:
        stored: Any bytes, not trusted.

    Raises:
        StoreError: They are damaged, or exceed the limit.
    """
    # A packed value of several bytes begins with the type of a map, list or text, never with this
    # byte.
    return inflate(stored) if len(stored) > 1 and stored[:1] == _ZLIB else stored


def inflate(body: bytes) -> bytes:
    """Return the decompressed bytes, up to a limit.

    Args:
        body: Any bytes, not trusted.

    Returns:
        The decompressed bytes.

    Raises:
        StoreError: They are not compressed, or exceed the limit.
    """
    import zlib

    inflater = zlib.decompressobj()
    try:
        inflated = inflater.decompress(body, MAX_SIZE)
    except zlib.error as error:
        raise StoreError(_unreadable(str(error))) from None
    if not inflater.eof or inflater.unused_data:
        raise StoreError(_unreadable("it is truncated, too long, or over the size limit"))
    return inflated


def _unreadable(reason: str) -> str:
    return f"stored data cannot be read: {reason}"


def _find_unstorable(value: Any) -> tuple[str, str] | None:
    """Return the path and the description of the first part of a value that cannot be packed."""
    open_parts: list[tuple[str, Any, int]] = [("", value, 0)]
    while open_parts:
        path, part, depth = open_parts.pop()
        if type(part) not in {dict, list}:
            problem = _why_unstorable(part)
            if problem:
                return path.lstrip("."), problem
            continue
        if depth == MAX_DEPTH:
            return f"{path.lstrip('.')[:_SHOWN]}…", f"nested more than {MAX_DEPTH} deep"
        if type(part) is list:
            inner = [(f"{path}[{i}]", item, depth + 1) for i, item in enumerate(part)]
        else:
            inner = [(f"{path}.{key}", item, depth + 1) for key, item in part.items()]
            inner += [(f"{path}, the key {key!r},", key, depth + 1) for key in part]
        open_parts.extend(reversed(inner))
    return None


def _why_unstorable(scalar: Any) -> str:
    """Return why a scalar cannot be packed, or an empty text."""
    if type(scalar) is int and not -(2**63) <= scalar < 2**64:
        return f"an int of {scalar.bit_length()} bits"
    if type(scalar) is str and not scalar.isascii():
        try:
            scalar.encode()
        except UnicodeEncodeError:
            return "text with half a surrogate pair"
    if scalar is None or type(scalar) in {bool, int, float, str, bytes, bytearray}:
        return ""
    return f"a {type(scalar).__name__}"
