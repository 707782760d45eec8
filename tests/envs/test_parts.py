"""Parts of a stream that is split at arbitrary places."""

from __future__ import annotations

import asyncio
import io

import pytest

from flowengine_envs.link.parts import Parts, TooLong, async_read, part, read
from tests.rows import each_row

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
