"""Rich Text Format below its text: tokens and encodings, paragraphs, tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from flowengine_documents.encodings import codec_of
from flowengine_documents.markdown import TextSpan, Writer, inline

# The tokens of a file in Rich Text Format, and its encodings.
#
# Source: Rich Text Format (RTF) Specification 1.9.1.

OPEN, CLOSE, WORD, SYMBOL, TEXT = "{", "}", "word", "symbol", "text"
_TOKEN = re.compile(
    rb"\\(?P<word>[a-zA-Z]{1,32})(?P<number>-?\d{1,10})? ?|(?P<hex>(?:\\'[0-9a-fA-F]{2})+)"
    rb"|\\(?P<symbol>[^a-zA-Z])|(?P<group>[{}])|(?P<text>[^\\{}]+)|\\",
    re.DOTALL,
)
CHARSETS = {
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


def encoding_of_page(number: int) -> str:
    """Return the encoding of a code page."""
    return codec_of(_CODE_PAGES.get(number, f"cp{number}")) or LATIN


# Paragraphs of Rich Text Format.

_ORDERED = re.compile(r"\d{1,9}[.)]")
_TYPED_ITEM = re.compile(r"(\d{1,3}[.)]|[\u2022\u25e6\u25aa\u00b7\u2013-])\t")
"""The beginning of an item whose number or bullet is written as text."""
_BULLETS = re.compile(r"[\W_]*")
_STEP = 360
"""Indent of a level, in twentieths of a point."""
_DEEPEST = 8


class RtfParagraph:
    """A paragraph that is being read."""

    def __init__(self) -> None:
        self.spans: list[TextSpan] = []
        self.mark = ""
        """The number or bullet of its item."""
        self.reset()

    def reset(self) -> None:
        """Set the defaults of paragraphs."""
        self.heading = self.level = self.list = self.indent = 0
        self.style = -1
        self.is_in_table = False

    def take(self) -> Iterator[str]:
        """Yield its text with its mark, if it has any, and begin the next paragraph."""
        text, mark = self._text("\n"), self._mark()
        if text:
            yield f"{'-' if _BULLETS.fullmatch(mark) else mark} {text}" if mark else text

    def write(self, out: Writer, styles: Mapping[int, int]) -> None:
        """Write it as a block, and begin the next paragraph.

        Args:
            out: Receives the text.
            styles: Number of a style → its heading level.
        """
        heading, level = self.heading or styles.get(self.style, 0), self.level
        mark = self._mark()
        typed = None if mark else _TYPED_ITEM.match("".join(span.text for span in self.spans))
        if typed is not None:
            mark, level = typed[1], self.indent // _STEP
            self.spans = [*_without(self.spans, typed.end())]
        elif self.list and not mark:
            mark = "" if heading else "-"
        if heading:
            self.spans = [span._replace(bold=False) for span in self.spans]
            text = self._text(" ")
            out.heading(heading, f"{mark} {text}" if text else "")
        elif not mark:
            out.paragraph(self._text("  \n"))
        elif _ORDERED.fullmatch(mark):
            out.item(min(max(level, 0), _DEEPEST), self._text("  \n"), f"{mark[:-1]}.")
        else:
            text = self._text("  \n")
            shown = text if _BULLETS.fullmatch(mark) or not text else f"{mark} {text}"
            out.item(min(max(level, 0), _DEEPEST), shown)

    def _text(self, line_break: str) -> str:
        spans, self.spans = self.spans, []
        return inline(_whole(spans), line_break)

    def _mark(self) -> str:
        mark, self.mark = self.mark, ""
        return mark


def joined(texts: Iterable[str]) -> str:
    """Return texts as one, with pairs of surrogates as the characters that they stand for."""
    return "".join(texts).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _whole(spans: Iterable[TextSpan]) -> Iterator[TextSpan]:
    """Yield spans, with adjacent ones of one look as one."""
    for look, same in groupby(spans, lambda span: span._replace(text="")):
        texts = [span.text for span in same]
        yield from (look._replace(text=text) for text in (texts if look.raw else [joined(texts)]))


def _without(spans: Sequence[TextSpan], count: int) -> Iterator[TextSpan]:
    """Yield spans without their first characters."""
    for span in spans:
        yield span._replace(text=span.text[count:])
        count = max(count - len(span.text), 0)


# Tables in Rich Text Format, whose rows state the right edges of their cells.

_NEAR = 40
"""Edges closer than this, in twentieths of a point, count as one."""
_MOST_CELLS = 500


class RtfTable:
    """Collects the rows of a table."""

    def __init__(self) -> None:
        self._rows: list[tuple[list[int], list[str]]] = []
        """Left edges and texts of the cells of each row."""
        self._cells: list[str] = []
        self._edges: list[int] = []
        self._left = 0

    def define(self, word: bytes, number: int) -> None:
        """Take a control word of the definition of a row. Others are ignored."""
        if word == b"trowd":
            self._edges, self._left = [], 0
        elif word == b"trleft":
            self._left = number
        elif word == b"cellx" and len(self._edges) < _MOST_CELLS:
            self._edges.append(number)

    def end_cell(self, lines: Sequence[str]) -> None:
        """End a cell with these lines."""
        if len(self._cells) < _MOST_CELLS:
            self._cells.append("\n".join(filter(None, lines)))

    def end_row(self) -> None:
        lefts = [self._left, *self._edges]
        while len(lefts) < len(self._cells):
            lefts.append(lefts[-1] + _NEAR)
        if self._cells:
            self._rows.append((lefts[: len(self._cells)], self._cells))
        self._cells = []

    def rows(self) -> list[list[str]]:
        """Return the rows, with cells of the same left edge in the same column."""
        if self._cells:
            self.end_row()
        columns = _columns(left for lefts, _ in self._rows for left in lefts)
        rows = []
        for lefts, texts in self._rows:
            row = [""] * len(set(columns.values()))
            for left, text in zip(lefts, texts, strict=True):
                at = columns[left]
                row[at] = f"{row[at]}\n{text}".strip()
            rows.append(row)
        return rows


def _columns(lefts: Iterable[int]) -> dict[int, int]:
    """Return the column of each left edge."""
    columns: dict[int, int] = {}
    before, column = None, -1
    for left in sorted(set(lefts)):
        if before is None or left - before > _NEAR / 2:
            column += 1
        columns[left] = column
        before = left
    return columns
