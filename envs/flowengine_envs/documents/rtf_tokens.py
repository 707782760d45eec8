"""The tokens of a file in Rich Text Format, and its encodings.

Source: Rich Text Format (RTF) Specification 1.9.1.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import NamedTuple

OPEN, CLOSE, WORD, SYMBOL, TEXT = "{", "}", "word", "symbol", "text"
_TOKEN = re.compile(
    rb"\\(?P<word>[a-zA-Z]{1,32})(?P<number>-?\d{1,10})? ?|(?P<hex>(?:\\'[0-9a-fA-F]{2})+)"
    rb"|\\(?P<symbol>[^a-zA-Z])|(?P<group>[{}])|(?P<text>[^\\{}]+)|\\",
    re.DOTALL,
)
_CHARSETS = {
    **{0: "cp1252", 77: "mac_roman", 128: "cp932", 129: "cp949", 134: "gbk", 136: "big5"},
    **{161: "cp1253", 162: "cp1254", 163: "cp1258", 177: "cp1255", 178: "cp1256"},
    **{186: "cp1257", 204: "cp1251", 222: "cp874", 238: "cp1250", 255: "cp437"},
}
_CODE_PAGES = {10000: "mac_roman", 65001: "utf-8", 1361: "johab", 936: "gbk", 950: "big5"}
LATIN = "cp1252"


class Token(NamedTuple):
    """A token."""

    kind: str
    value: bytes = b""
    """A control word, a symbol, or the bytes of a text."""
    number: int | None = None
    """The number of a control word."""


def tokens(data: bytes) -> Iterator[Token]:
    """Yield the tokens of a file. Binary data, as of pictures, is left out."""
    at = 0
    while (found := _TOKEN.match(data, at)) is not None:
        at = found.end()
        if word := found["word"]:
            number = None if found["number"] is None else int(found["number"])
            if word == b"bin":
                at += max(number or 0, 0)
            else:
                yield Token(WORD, word, number)
        elif coded := found["hex"]:
            yield Token(TEXT, bytes.fromhex(coded.replace(b"\\'", b"").decode("ascii")))
        elif symbol := found["symbol"]:
            yield Token(SYMBOL, symbol)
        elif group := found["group"]:
            yield Token(OPEN if group == b"{" else CLOSE)
        elif text := (found["text"] or b"").translate(None, b"\r\n\0"):
            yield Token(TEXT, text)


def encoding_of_charset(number: int) -> str:
    """Return the encoding of the texts in a font, empty if it is that of the file."""
    return _CHARSETS.get(number, "")


def encoding_of_page(number: int) -> str:
    """Return the encoding of a code page."""
    name = _CODE_PAGES.get(number, f"cp{number}")
    try:
        codecs.lookup(name)
    except LookupError:
        return LATIN
    return name
