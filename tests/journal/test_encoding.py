# Shows F77
"""Stored bytes decode to plain data only, or to an error (F77)."""

from __future__ import annotations

import random
import struct
import sys
import zlib
from contextlib import suppress
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowengine.errors import InputError, StoreError
from flowengine.journal import encoding
from flowengine.journal.encoding import MAX_DEPTH, inflate, pack, unpack
from flowengine.journal.shapes import Sound
from tests.replacing import Limits
from tests.rows import each_row
from tests.sliced_examples import sliced

CLOSED = {type(None), bool, int, float, str, bytes, list, dict}

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
)
plain = st.recursive(
    scalars,
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(0, 99), inner),
    max_leaves=30,
)


def types_in(value: Any) -> set[type]:
    found = {type(value)}
    if isinstance(value, dict):
        found.update(*(types_in(part) for part in (*value.keys(), *value.values())))
    if isinstance(value, list):
        found.update(*(types_in(part) for part in value))
    return found


def damaged(packed: bytes, draw: random.Random) -> bytes:
    """Return the bytes with one to four of them replaced and, half of the time, truncated."""
    changed = bytearray(packed)
    for _ in range(draw.randint(1, 4)):
        changed[draw.randrange(len(changed))] = draw.randrange(256)
    return bytes(changed[: draw.choice((len(changed), draw.randint(0, len(changed))))])


@sliced(examples=30)
@given(plain)
def test_plain_data_comes_back_as_it_was(value: Any) -> None:
    assert unpack(pack(value)) == value
    assert pack(unpack(pack(value))) == pack(value)


@sliced(examples=300)
@given(st.binary(max_size=200))
def test_any_bytes_give_plain_data_or_a_store_error(data: bytes) -> None:
    with suppress(StoreError):
        assert types_in(unpack(data)) <= CLOSED


@sliced(examples=30)
@given(plain, st.integers(0, 2**32))
def test_damaged_bytes_give_plain_data_or_a_store_error(value: Any, seed: int) -> None:
    packed, draw = pack(value), random.Random(seed)
    for _ in range(40):  # drawing a value takes a hundred times as long as damaging it
        try:
            read = unpack(damaged(packed, draw))
        except StoreError:
            continue
        assert types_in(read) <= CLOSED


@each_row("code", [-128, -2, 0, 1, 5, 127])
def test_extension_types_are_refused(code: int) -> None:
    with pytest.raises(StoreError, match="extension type"):
        unpack(msgpack.packb(["x", msgpack.ExtType(code & 127 if code >= 0 else 5, b"data")]))


def test_a_timestamp_does_not_become_an_object() -> None:
    """Timestamps, msgpack's own extension, become numbers."""
    stamp = unpack(msgpack.packb(msgpack.Timestamp(5, 7)))

    assert stamp == 5 * 10**9 + 7


@pytest.mark.parametrize(
    "bomb",
    [
        b"\xdd\xff\xff\xff\xff",  # a list of 4 billion items
        b"\xdf\xff\xff\xff\xff",  # a map of 4 billion items
        b"\xdb\xff\xff\xff\xff",  # text of 4 GB
        b"\xc6\xff\xff\xff\xff",  # bytes of 4 GB
        b"\x91" * 100_000 + b"\xc0",  # nested lists
        b"\x81\xa1k" * 100_000 + b"\xc0",  # nested maps
        b"\x81\x90\xc0",  # a list as a key
        b"\xa2\xff\xff",  # text that is not UTF-8
        b"\xc1",  # a byte that msgpack never uses
        b"\xc0\xc0",  # two values
        b"",
    ],
    ids=lambda bomb: bomb[:5].hex(),
)
def test_bombs_and_nonsense_are_refused_at_once(bomb: bytes) -> None:
    with pytest.raises(StoreError, match="stored data cannot be read"):
        unpack(bomb)


def test_a_deflated_bomb_is_refused(limits: Limits) -> None:
    """Decompression stops at the size limit, however small the stored data."""
    limits(encoding, MAX_SIZE=100_000)
    bomb = zlib.compress(msgpack.packb(b"\x00" * 10_000_000))
    assert len(bomb) < 11_000

    with pytest.raises(StoreError, match="size limit"):
        inflate(bomb)


def test_values_over_the_limit_of_size_are_not_stored(limits: Limits) -> None:
    limits(encoding, MAX_SIZE=1000)

    with pytest.raises(InputError, match="limit is 1,000 bytes"):
        pack("x" * 1000)
    with pytest.raises(StoreError, match="limit of 1,000 bytes"):
        unpack(b"\xc0" * 1001)


def test_what_is_as_deep_as_the_limit_can_be_stored_and_read() -> None:
    deep: list[Any] = []
    for _ in range(MAX_DEPTH - 1):
        deep = [deep]

    assert pack(unpack(pack(deep))) == pack(deep)  # too deep for Python to compare
    with pytest.raises(InputError, match=f"nested more than {MAX_DEPTH} deep"):
        pack([deep])


class Evil:
    """Runs code when it is pickled or printed."""

    def __reduce__(self) -> tuple[Any, ...]:
        return sys.exit, ()


@each_row(
    ("value", "says"),
    [
        ({"a": [1, {"b": Evil()}]}, "a[1].b is a Evil"),
        ({"a": (1, 2)}, "a is a tuple"),
        ({"a": {1, 2}}, "a is a set"),
        ([2**64], "[0] is an int of 65 bits"),
        ("\ud800", "it is text with half a surrogate pair"),
        ({(1, 2): 3}, "the key (1, 2), is a tuple"),
    ],
)
def test_what_is_not_plain_data_is_named_by_its_place(value: Any, says: str) -> None:
    with pytest.raises(InputError) as caught:
        pack(value)

    assert says in caught.value.message
    assert "stored are" in (caught.value.hint or "")


def test_failed_packing_leaves_nothing_behind() -> None:
    """The packer is shared. After an error, the next result must not include its partial output."""
    with pytest.raises(InputError):
        pack(["written before", object()])

    assert pack(1) == b"\x01"


def test_floats_keep_every_bit() -> None:
    for number in (0.1, -0.0, float("inf"), 5e-324):
        assert struct.pack("d", unpack(pack(number))) == struct.pack("d", number)


@each_row(
    ("error", "words"),
    [
        (ModuleNotFoundError("No module named 'acme'", name="acme"), "'acme' cannot be imported"),
        (ImportError("no wheel"), "a package is missing (no wheel)"),
        (KeyError("steps"), "its data has the wrong shape (KeyError: 'steps')"),
    ],
)
def test_a_missing_package_is_not_reported_as_damage(error: Exception, words: str) -> None:
    with pytest.raises(StoreError) as caught, Sound("flow letters"):
        raise error
    assert words in caught.value.message
    assert ("is damaged" in caught.value.message) == isinstance(error, KeyError)
