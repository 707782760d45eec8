"""Truncates long texts in messages of the driver that exceed the maximum size.

A page controls the length of its console lines, errors, frame names and request bodies. The driver
sends them even if no caller requests them.
"""

from __future__ import annotations

import re

LONGEST_TEXT = 4 * 1024
"""Maximum characters of a text in an overlong message.

A character beyond ASCII counts as its bytes. The maximum is a multiple of 4, so that truncated
base64 data is still valid base64.
"""
NOTE = " (...)"
"""The end of a truncated text. It contains no base64 character."""
_CHARACTER = rb'(?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u])'
_LONGEST_CHARACTER = 6
_BEGINNING = re.compile(rb'"' + _CHARACTER + rb"{0,%d}+" % LONGEST_TEXT, re.DOTALL)
_SHORT_ONES = re.compile(rb'(?:[^"]++|"' + _CHARACTER + rb'{0,%d}+")*+' % LONGEST_TEXT, re.DOTALL)
"""Everything before a text that is too long or incomplete."""
_INSIDE = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_UNDECIDED = _LONGEST_CHARACTER * LONGEST_TEXT + 2
"""Bytes from the start of a text after which its length is known to exceed the limit or not."""
_ID = re.compile(rb'\{"id":("[\w@-]{1,50}"|\d{1,20}),')


class Shortened:
    """A JSON message with its long texts truncated.

    Args:
        largest: Maximum bytes of the result.
    """

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._kept = bytearray()
        self._rest = b""
        self._cutting = False

    @property
    def fits(self) -> bool:
        """Whether it is short enough so far."""
        return len(self._kept) <= self._largest

    @property
    def data(self) -> bytes:
        """The message, once it has arrived completely."""
        return bytes(self._kept) + self._rest

    @property
    def answers(self) -> bytes:
        """The id, in JSON, of the call that it answers. Empty: it is not a response."""
        match = _ID.match(self._kept)
        return b"" if match is None else bytes(match[1])

    def add(self, piece: bytes) -> None:
        """Process the next piece. After the message exceeds its limit, pieces are ignored."""
        if not self.fits:
            return
        data, at = self._rest + piece, 0
        while at < len(data):
            before = at
            at = self._inside(data, at) if self._cutting else self._outside(data, at)
            if at == before:  # More data must arrive first.
                break
        self._rest = data[at:]

    def _inside(self, data: bytes, at: int) -> int:
        """Skip the rest of a text, and return the position after it."""
        match = _INSIDE.match(data, at)
        assert match is not None
        at = match.end()
        if at == len(data) or data[at] != ord('"'):
            return at
        self._kept += b'"'
        self._cutting = False
        return at + 1

    def _outside(self, data: bytes, at: int) -> int:
        """Keep short texts and the start of a long one, and return the position after them."""
        match = _SHORT_ONES.match(data, at)
        assert match is not None
        self._kept += match[0]
        at = match.end()
        if len(data) - at < _UNDECIDED:
            return at
        beginning = _BEGINNING.match(data, at)
        assert beginning is not None
        self._kept += beginning[0].decode(errors="ignore").encode() + NOTE.encode()
        self._cutting = True
        return beginning.end()


def is_cut(text: str) -> bool:
    """Return whether a text of the driver was truncated. A page can imitate this."""
    return text.endswith(NOTE)
