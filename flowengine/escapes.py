"""Escapes in URLs, HTML and program text, decoded so that positions in the result can be mapped."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

Spans = Iterable[tuple[int, int]]
"""Starts and ends."""
_LETTERS = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"f": b"\f"}


@lru_cache(4096)
def _of_url(escape: bytes) -> bytes:
    return bytes.fromhex(escape[1:].decode())


@lru_cache(4096)
def _of_html(escape: bytes) -> bytes:
    from html import unescape

    return unescape(escape.decode()).encode(errors="surrogatepass")


@lru_cache(4096)
def _of_program(escape: bytes) -> bytes:
    if escape[1:2] not in b"ux":
        return _LETTERS.get(escape[1:], escape[1:])
    if escape[1:2] == b"x":
        return chr(int(escape[2:], 16)).encode()
    units = bytes.fromhex(escape.replace(b"\\u", b"").decode())
    return units.decode("utf-16-be", "replace").encode()


class Escapes(NamedTuple):
    """One way to escape characters."""

    sign: bytes
    """The byte that begins each escape."""
    pattern: re.Pattern[bytes]
    half: re.Pattern[bytes]
    """The beginning of an escape, at the end of bytes."""
    decode: Callable[[bytes], bytes]

    def found(self, data: bytes, find: Callable[[bytes], Spans]) -> Iterator[tuple[int, int]]:
        """Yield the spans that are found in decoded bytes, as spans of the original bytes."""
        spans = [*find(self.pattern.sub(lambda match: self.decode(match[0]), data))]
        if not spans:  # which is usual
            return
        starts, origins, size, done = [0], [0], 0, 0
        ends: list[int | None] = [None]
        """The end of an escape. None: a part without escapes."""
        for match in self.pattern.finditer(data):
            size += match.start() - done
            for start, origin, end in (
                (size, match.start(), match.end()),
                (size + len(self.decode(match[0])), match.end(), None),
            ):
                starts.append(start)
                origins.append(origin)
                ends.append(end)
            size, done = starts[-1], match.end()
        for start, stop in spans:
            first, last = (bisect_right(starts, at) - 1 for at in (start, stop - 1))
            begin = origins[first] + (0 if ends[first] else start - starts[first])
            yield begin, ends[last] or origins[last] + stop - starts[last]


ESCAPES = (
    Escapes(b"%", re.compile(rb"%[0-9A-Fa-f]{2}"), re.compile(rb"%[0-9A-Fa-f]?\Z"), _of_url),
    Escapes(
        b"&",
        re.compile(rb"&(?:#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});"),
        re.compile(rb"&(?:#[0-9]{0,7}|#[xX][0-9A-Fa-f]{0,6}|[A-Za-z][A-Za-z0-9]{0,31})?\Z"),
        _of_html,
    ),
    Escapes(
        b"\\",
        re.compile(
            rb"\\(?:u[dD][89abAB][0-9A-Fa-f]{2}\\u[dD][c-fC-F][0-9A-Fa-f]{2}"
            rb"|u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|[\\/\"'nrtbf])"
        ),
        re.compile(
            rb"(?:\\u[dD][89abAB][0-9A-Fa-f]{2})?\\(?:u[0-9A-Fa-f]{0,3}|x[0-9A-Fa-f]?)?\Z"
            rb"|\\u[dD][89abAB][0-9A-Fa-f]{2}\Z"
        ),
        _of_program,
    ),
)
"""Those of URLs, of HTML and XML, and of JSON and other program text."""
