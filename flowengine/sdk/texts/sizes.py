"""Sizes in messages about limits."""

from __future__ import annotations

_LARGEST_FIRST = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def size_text(count: int) -> str:
    """Return a number of bytes as text, in the largest unit that needs no fraction: `8 MiB`."""
    for unit, size in _LARGEST_FIRST:
        if count >= size and count % size == 0:
            return f"{count // size:,} {unit}"
    return f"{count:,} bytes"
