# Shows S23
"""Frames of any size, in any pieces. A forged frame ends the link, an unusable one a request."""

from __future__ import annotations

import asyncio
import io
import itertools
import os
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowengine_envs.link import frames, plain
from flowengine_envs.link.frames import LinkMessage, Opener, Sealer, Unauthentic, Unusable
from flowengine_envs.link.parts import Parts, TooLong, async_read, part, read
from tests.replacing import Limits
from tests.rows import each_row
from tests.sliced_examples import sliced

KEY = os.urandom(frames.KEY)


def pair() -> tuple[Sealer, Opener]:
    return Sealer(KEY, frames.TO_SUPERVISOR), Opener(KEY, frames.TO_SUPERVISOR)


SIZES = [0, 1, 4095, 4096, 4097, 65536, 10 * 1024 * 1024]


@each_row("to", [frames.TO_SUPERVISOR, frames.TO_ENGINE])
@each_row("size", SIZES)
def test_a_payload_of_any_size_arrives_whole(size: int, to: bytes) -> None:
    payload = os.urandom(size)

    [message] = Opener(KEY, to).feed(Sealer(KEY, to).seal({"id": 1, "text": "é"}, payload))

    assert message == LinkMessage({"id": 1, "text": "é"}, payload)


@each_row("to", [frames.TO_SUPERVISOR, frames.TO_ENGINE])
@each_row("size", SIZES)
def test_a_payload_of_any_size_may_come_byte_by_byte(size: int, to: bytes) -> None:
    opener = Opener(KEY, to)
    payload = os.urandom(size)
    data = Sealer(KEY, to).seal({"id": 1, "text": "é"}, payload)
    # Of the largest, both ends byte by byte, and between them pieces as large as a pipe's buffer.
    piece = 1 if size <= 65536 else 65536
    cuts = [*range(100), *range(100, len(data) - 100, piece), *range(len(data) - 100, len(data))]
    cuts = sorted({max(0, cut) for cut in cuts})

    got = [
        message
        for start, end in itertools.pairwise([*cuts, len(data)])
        for message in opener.feed(data[start:end])
    ]

    assert got == [LinkMessage({"id": 1, "text": "é"}, payload)]


@pytest.mark.parametrize(
    "data",
    [
        b"{\"code\": \"open('marker', 'w')\"}\n" + b" " * 64,
        Sealer(os.urandom(32), frames.TO_SUPERVISOR).seal({"id": 1}),
        Sealer(KEY, frames.TO_ENGINE).seal({"id": 1}),
        struct.pack(">I", 2) + bytes(16) + b"{}",
    ],
    ids=["plain text", "another key", "another direction", "no code"],
)
def test_what_the_other_side_did_not_send_ends_the_connection(data: bytes) -> None:
    _, opener = pair()

    with pytest.raises(Unauthentic):
        list(opener.feed(data))


def test_a_frame_counts_once_and_in_its_turn() -> None:
    sealer, opener = pair()
    first, second = sealer.seal({"id": 1}), sealer.seal({"id": 2})
    list(opener.feed(first))

    with pytest.raises(Unauthentic):
        list(opener.feed(first))
    _, opener = pair()
    with pytest.raises(Unauthentic):
        list(opener.feed(second))


@each_row(
    ("body", "reason"),
    [
        (b"", "without a header"),
        (b"\0\0\0\xff{}", "longer than its body"),
        (b"\0\0\0\x02\xff\xfe", "not JSON"),
        (b"\0\0\0\x02[]", "not an object"),
        (b"\0\x01\0\0" + b"[" * 65536, "not JSON"),
    ],
)
def test_an_authentic_frame_that_is_no_message_costs_only_itself(body: bytes, reason: str) -> None:
    sealer, opener = pair()

    [unusable, message] = opener.feed(sealer.seal_body(body) + sealer.seal({"id": 2}))

    assert isinstance(unusable, Unusable)
    assert reason in unusable.reason
    assert message == LinkMessage({"id": 2}, b"")


def test_a_message_that_is_too_long_is_not_sent(limits: Limits) -> None:
    sealer, opener = pair()
    limits(frames, LARGEST=60)

    with pytest.raises(frames.TooLong):
        sealer.seal({"id": 7}, bytes(60))
    assert list(opener.feed(sealer.seal({"id": 8}))) == [LinkMessage({"id": 8}, b"")]


def test_a_frame_that_is_too_long_ends_the_connection() -> None:
    sealer, opener = pair()
    with pytest.raises(Unauthentic):
        list(opener.feed(sealer.seal_body(bytes(frames.LARGEST + 1))[:100]))


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@sliced(examples=30)
@given(PLAIN)
def test_plain_data_comes_back_as_it_was(value: object) -> None:
    assert plain.decode(plain.encode(value)) == value


@each_row("value", [{1: 2}, {1, 2}, object(), [lambda: 0]])
def test_what_is_no_plain_data_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="not plain data"):
        plain.encode(value)


BODIES = [b"", b"a", b"b" * 300]


@each_row("size", [1, 3, 1000])
def test_parts_are_found_wherever_a_stream_is_cut(size: int) -> None:
    stream = b"".join(map(part, BODIES))
    taken = Parts(300)
    cut = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert [body for piece in cut for body in taken.feed(piece)] == BODIES
    source = io.BytesIO(stream)
    assert [read(lambda count: source.read(min(count, size))) for _ in BODIES] == BODIES
    assert read(source.read) is None
    assert asyncio.run(async_bodies(stream)) == BODIES


async def async_bodies(stream: bytes) -> list[bytes]:
    source = asyncio.StreamReader()
    source.feed_data(stream)
    return [await async_read(source.readexactly, largest=300) for _ in BODIES]


def test_a_part_that_is_too_long_is_refused_by_its_length() -> None:
    with pytest.raises(TooLong, match="301 bytes"):
        list(Parts(300).feed((301).to_bytes(4, "big")))
    with pytest.raises(TooLong, match="301 bytes"):
        read(io.BytesIO((301).to_bytes(4, "big")).read, largest=300)
    with pytest.raises(TooLong, match="301 bytes"):
        asyncio.run(async_bodies((301).to_bytes(4, "big")))
    assert read(io.BytesIO(part(b"whole")[:-1]).read) is None
