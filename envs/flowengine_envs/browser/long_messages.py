"""Messages of the driver that are longer than they may be: their long texts are cut as they come.

A page decides how long the lines of its console, its errors, the names of its frames and the bodies
of its requests are, and the driver sends them whether or not anything asks for them.
"""

from __future__ import annotations

import re

LONGEST_TEXT = 4 * 1024
"""Characters of a text in a message that is too long; one beyond ASCII counts as its bytes. A
multiple of 4: what is left of data in base64 is still base64."""
NOTE = " (...)"
"""The end of a text that was cut; none of it is a character of base64."""
_CHARACTER = rb'(?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u])'
_LONGEST_CHARACTER = 6
_BEGINNING = re.compile(rb'"' + _CHARACTER + rb"{0,%d}+" % LONGEST_TEXT, re.DOTALL)
_SHORT_ONES = re.compile(rb'(?:[^"]++|"' + _CHARACTER + rb'{0,%d}+")*+' % LONGEST_TEXT, re.DOTALL)
"""All up to a text that is too long, or whose end has not come."""
_INSIDE = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_UNDECIDED = _LONGEST_CHARACTER * LONGEST_TEXT + 2
"""Bytes from the beginning of a text on, after which it is known whether it is too long."""
_ID = re.compile(rb'\{"id":("[\w@-]{1,50}"|\d{1,20}),')


class Shortened:
    """A message in JSON with its long texts cut.

    Args:
        largest: Bytes that it may have then.
    """

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._kept = bytearray()
        self._rest = b""
        self._cutting = False

    @property
    def fits(self) -> bool:
        """Whether it is short enough, as far as it has come."""
        return len(self._kept) <= self._largest

    @property
    def data(self) -> bytes:
        """The message, once all of it has come."""
        return bytes(self._kept) + self._rest

    @property
    def answers(self) -> bytes:
        """The id, in JSON, of the call that it answers; empty: it answers none."""
        found = _ID.match(self._kept)
        return b"" if found is None else bytes(found[1])

    def add(self, piece: bytes) -> None:
        """Take the next piece; of a message that no longer fits, nothing more is looked at."""
        if not self.fits:
            return
        data, at = self._rest + piece, 0
        while at < len(data):
            before = at
            at = self._inside(data, at) if self._cutting else self._outside(data, at)
            if at == before:  # more has to come
                break
        self._rest = data[at:]

    def _inside(self, data: bytes, at: int) -> int:
        """Leave out the rest of a text; return where it goes on."""
        found = _INSIDE.match(data, at)
        assert found is not None
        at = found.end()
        if at == len(data) or data[at] != ord('"'):
            return at
        self._kept += b'"'
        self._cutting = False
        return at + 1

    def _outside(self, data: bytes, at: int) -> int:
        """Keep what is short, and the beginning of a text that is not; return where it goes on."""
        found = _SHORT_ONES.match(data, at)
        assert found is not None
        self._kept += found[0]
        at = found.end()
        if len(data) - at < _UNDECIDED:
            return at
        beginning = _BEGINNING.match(data, at)
        assert beginning is not None
        self._kept += beginning[0].decode(errors="ignore").encode() + NOTE.encode()
        self._cutting = True
        return beginning.end()


def is_cut(text: str) -> bool:
    """Return whether a text of the driver was cut; one that a page wrote may only look like it."""
    return text.endswith(NOTE)
