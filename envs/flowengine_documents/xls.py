"""Excel workbooks from before 2007, sheet by sheet: values with their units, and links."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from flowengine_documents.document import Damaged, PasswordRequired
from flowengine_documents.formats import CompoundFile
from flowengine_documents.markdown import Writer
from flowengine_documents.rtf_tokens import encoding_of_page
from flowengine_documents.sheets import (
    CHARTS,
    ERRORS,
    LEFT_OUT,
    NumberFormats,
    SheetLink,
    SheetRows,
    built_in,
    text_of,
)
from flowengine_documents.text import lines

BOF, EOF, CONTINUE, FILE_PASS = 0x0809, 0x000A, 0x003C, 0x002F
BOUND_SHEET, CODE_PAGE, DATE_MODE, FORMAT, XF, SST = 0x0085, 0x0042, 0x0022, 0x041E, 0x00E0, 0x00FC
ROW, COLUMNS, LINK, STRING = 0x0208, 0x007D, 0x01B8, 0x0207
SHAPE, SHAPE_TEXT = 0x005D, 0x01B6
LABEL_SST, LABEL, RICH_LABEL = 0x00FD, 0x0204, 0x00D6
NUMBER, RK, MULTIPLE_RK, FORMULA, BOOLEAN = 0x0203, 0x027E, 0x00BD, 0x0006, 0x0205
_HEAD = struct.Struct("<HH")
_URL = bytes.fromhex("e0c9ea79f9bace118c8200aa004ba90b")
_FILE = bytes.fromhex("0303000000000000c000000000000046")
_COMMENT = b"\x19\0"
_MOST_STRINGS = 10_000_000


def records(stream: bytes, at: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield the type and the content of each record."""
    while at + 4 <= len(stream):
        kind, length = _HEAD.unpack_from(stream, at)
        yield kind, stream[at + 4 : at + 4 + length]
        at += 4 + length


def short_string(data: bytes, at: int, encoding: str) -> str:
    """Return a string with its length in one byte, in an encoding or as in Excel 97."""
    return _string(data, at + 1, data[at] if at < len(data) else 0, encoding)


def string(data: bytes, at: int, encoding: str) -> str:
    """Return a string with its length in two bytes, in an encoding or as in Excel 97."""
    return _string(data, at + 2, int.from_bytes(data[at : at + 2], "little"), encoding)


def _string(data: bytes, at: int, count: int, encoding: str) -> str:
    if encoding:
        return data[at : at + count].decode(encoding, "replace")
    flags, at = (data[at] if at < len(data) else 0), at + 1
    at += 2 * bool(flags & 0x08) + 4 * bool(flags & 0x04)
    if flags & 0x01:
        return data[at : at + 2 * count].decode("utf-16-le", "replace")
    return data[at : at + count].decode("latin-1")


class SharedStrings:
    """Reads the strings that cells share, which extend over several records.

    Args:
        pieces: The contents of these records.
    """

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = pieces
        self._piece = 0
        self._at = 8

    def read(self) -> list[str]:
        """Return all strings, up to the first one that is cut off."""
        count = int.from_bytes(self._pieces[0][4:8], "little")
        strings: list[str] = []
        try:
            while len(strings) < min(count, _MOST_STRINGS):
                strings.append(self._string())
        except IndexError:
            pass
        return strings

    def _string(self) -> str:
        count = int.from_bytes(self._take(2), "little")
        flags = self._take(1)[0]
        runs = int.from_bytes(self._take(2), "little") if flags & 0x08 else 0
        added = int.from_bytes(self._take(4), "little") if flags & 0x04 else 0
        text = ""
        while count:
            width = 2 if flags & 0x01 else 1
            left = (len(self._pieces[self._piece]) - self._at) // width
            part = self._take(min(count, left) * width)
            text += part.decode("utf-16-le" if width == 2 else "latin-1", "replace")
            count -= len(part) // width
            if count:  # continued in the next record, which begins with its own flags
                self._piece, self._at = self._piece + 1, 1
                flags = self._pieces[self._piece][0]
        self._skip(4 * runs + added)
        return text

    def _take(self, count: int) -> bytes:
        """Return bytes that are in one record."""
        while count and self._at >= len(self._pieces[self._piece]):
            self._piece, self._at = self._piece + 1, 0
        taken = self._pieces[self._piece][self._at : self._at + count]
        if len(taken) < count:
            raise IndexError
        self._at += count
        return taken

    def _skip(self, count: int) -> None:
        while count:
            here = min(count, len(self._pieces[self._piece]) - self._at)
            self._at, count = self._at + here, count - here
            if count:
                self._piece, self._at = self._piece + 1, 0


def rk(data: bytes, at: int) -> float:
    """Return a number in the short form of cells."""
    word = int.from_bytes(data[at : at + 4], "little", signed=True)
    value: float
    if word & 2:
        value = word >> 2
    else:
        (value,) = struct.unpack("<d", bytes(4) + (word & ~3 & 0xFFFFFFFF).to_bytes(4, "little"))
    return value / 100 if word & 1 else value


def link(data: bytes) -> SheetLink:
    """Return a link.

    Raises:
        Damaged: It is invalid.
    """
    if len(data) < 32:
        raise Damaged("a link of the workbook is cut off")
    top, bottom, left, right = struct.unpack_from("<4H", data)
    flags, at = int.from_bytes(data[28:32], "little"), 32
    for flag in (0x10, 0x80):  # a text, a frame
        if flags & flag:
            at += 4 + 2 * int.from_bytes(data[at : at + 4], "little")
    address = ""
    if flags & 0x100:
        address, at = _counted(data, at, 2)
    elif flags & 0x01:
        kind, at = data[at : at + 16], at + 16
        if kind == _URL:
            address, at = _counted(data, at, 1)
        elif kind == _FILE:
            length = int.from_bytes(data[at + 2 : at + 6], "little")
            address = data[at + 6 : at + 6 + length].partition(b"\0")[0].decode("latin-1")
            return SheetLink(top, bottom, left, right, address)
    if flags & 0x08:
        place, at = _counted(data, at, 2)
        address = f"{address}#{place}"
    return SheetLink(top, bottom, left, right, address)


def _counted(data: bytes, at: int, width: int) -> tuple[str, int]:
    """Return a string with its length in four bytes, and where it ends."""
    end = at + 4 + width * int.from_bytes(data[at : at + 4], "little")
    return data[at + 4 : end].decode("utf-16-le", "replace").partition("\0")[0], end


_STREAMS = ("Workbook", "Book")
_EXCEL_97 = 0x0600
_WORKSHEET = 0
_OF_CELLS = frozenset(
    {
        *(LABEL_SST, LABEL, RICH_LABEL, NUMBER, RK),
        *(FORMULA, BOOLEAN),
    }
)


def convert(data: bytes, out: Writer) -> None:
    """Convert a workbook.

    Args:
        data: Its bytes.
        out: Receives the text.

    Raises:
        Damaged: It cannot be opened.
        PasswordRequired: It is encrypted.
    """
    file = CompoundFile(data)
    book = _Book(file.read(file.find(*_STREAMS) or _STREAMS[0]))
    for number, sheet in enumerate(book.sheets, 1):
        out.part("sheet", number, sheet.name, " (hidden)" if sheet.is_hidden else "")
        out.heading(2, sheet.name)
        if sheet.kind == _WORKSHEET:
            cells = _Cells(book)
            cells.read(sheet.start, out.cells_left)
            out.table(cells.rows.marked(out.note, out.cells_left))
            for text in cells.boxes:
                out.paragraph(lines(text))
            if cells.has_charts:
                out.note(CHARTS)
        else:
            out.note(LEFT_OUT)
    if book.are_strings_cut:
        out.note("the workbook is cut off, so texts of cells are missing")


class _Sheet(NamedTuple):
    name: str
    start: int
    is_hidden: bool
    kind: int


class _Book:
    """The parts of a workbook that its sheets share."""

    def __init__(self, stream: bytes) -> None:
        self.stream = stream
        self.sheets: list[_Sheet] = []
        self.strings: list[str] = []
        self.styles: list[int] = []
        """Number of a style → its number format."""
        self.are_strings_cut = False
        self.encoding = ""
        """The encoding of texts, empty since Excel 97."""
        self._formats: dict[int, str] = {}
        self._begins_1904 = False
        shared: list[bytes] = []
        version, is_shared = 0, False
        for kind, content in records(stream):
            is_shared = kind == SST or (is_shared and kind == CONTINUE)
            if is_shared:
                shared.append(content)
            elif kind == EOF:
                break
            elif kind == BOF and not version:
                version = int.from_bytes(content[:2], "little")
                self.encoding = "" if version >= _EXCEL_97 else "cp1252"
            else:
                self._read_record(kind, content)
        if not version:
            raise Damaged("the workbook has no beginning")
        if shared:
            self.strings = SharedStrings(shared).read()
            self.are_strings_cut = len(self.strings) < int.from_bytes(shared[0][4:8], "little")
        self.numbers = NumberFormats(self._begins_1904)

    def _read_record(self, kind: int, content: bytes) -> None:
        if kind == FILE_PASS:
            raise PasswordRequired("it is an encrypted workbook, which cannot be opened here")
        number = int.from_bytes(content[:2], "little")
        if kind == CODE_PAGE and self.encoding:
            self.encoding = encoding_of_page(number)
        elif kind == DATE_MODE:
            self._begins_1904 = number == 1
        elif kind == XF:
            self.styles.append(int.from_bytes(content[2:4], "little"))
        elif kind == FORMAT:
            read = short_string if self.encoding else string
            self._formats[number] = read(content, 2, self.encoding)
        elif kind == BOUND_SHEET and len(content) >= 8:
            name = short_string(content, 6, self.encoding).replace("\0", "")
            start = int.from_bytes(content[:4], "little")
            self.sheets.append(_Sheet(name, start, content[4] & 3 != 0, content[5]))

    def format(self, style: int) -> str:
        """Return the number format of a style."""
        number = self.styles[style] if style < len(self.styles) else 0
        return self._formats.get(number, "") or built_in(number)


class _Cells:
    """The cells of a sheet."""

    def __init__(self, book: _Book) -> None:
        self._book = book
        self.rows = SheetRows()
        self.has_charts = False
        self.boxes: list[str] = []
        """The texts of shapes."""
        self._shape = b""
        """The type of the last shape."""
        self._left = 0
        """Number of characters that the text of the last shape still has."""
        self._awaited: tuple[int, int] | None = None
        """The cell of a formula whose text follows."""

    def read(self, start: int, most: int) -> None:
        """Read the sheet that begins at a place, up to a number of cells."""
        depth = 0
        for kind, content in records(self._book.stream, start):
            if kind == BOF:
                depth += 1
                self.has_charts = self.has_charts or depth > 1
            elif kind == EOF:
                depth -= 1
                if depth <= 0:
                    return
            elif depth == 1 and most >= 0:
                most -= self._read_record(kind, content)

    def _read_record(self, kind: int, content: bytes) -> int:
        """Read a record, and return its number of cells."""
        if kind in _OF_CELLS and len(content) >= 8:
            row, column, style = struct.unpack_from("<3H", content)
            self.rows.put(row, column, self._text(kind, content, row, column, style))
            return 1
        if kind == MULTIPLE_RK:
            row, column = struct.unpack_from("<2H", content)
            count = (len(content) - 6) // 6
            for at in range(count):
                style = int.from_bytes(content[4 + 6 * at : 6 + 6 * at], "little")
                number = rk(content, 6 + 6 * at)
                self.rows.put(row, column + at, self._shown(number, style))
            return count
        if kind == STRING and self._awaited is not None:
            self.rows.put(*self._awaited, string(content, 0, self._book.encoding))
            self._awaited = None
        elif kind == ROW and len(content) >= 14:
            row, height, options = (content[at] | content[at + 1] << 8 for at in (0, 6, 12))
            if options & 0x20 or not height & 0x7FFF:
                self.rows.hidden_rows.add(row)
        elif kind == COLUMNS and len(content) >= 10:
            first, last, width, _, options = struct.unpack_from("<5H", content)
            if options & 1 or not width:
                self.rows.hidden_columns.append(range(first, min(last, 0xFF) + 1))
        elif kind == LINK:
            self.rows.link(link(content))
        elif kind in {SHAPE, SHAPE_TEXT, CONTINUE}:
            self._read_shape(kind, content)
        return 0

    def _read_shape(self, kind: int, content: bytes) -> None:
        """Read a part of a shape. The text of a comment is one, too, and is left out."""
        if kind == SHAPE:
            self._shape = content[4:6]
        elif kind == SHAPE_TEXT:
            self._left = 0 if self._shape == _COMMENT else int.from_bytes(content[10:12], "little")
            self.boxes += [""] * bool(self._left)
        elif self._left and content:
            text = content[1:].decode("utf-16-le" if content[0] & 1 else "latin-1", "replace")
            self.boxes[-1] += text[: self._left]
            self._left -= len(text[: self._left])

    def _text(self, kind: int, content: bytes, row: int, column: int, style: int) -> str:
        book = self._book
        if kind == LABEL_SST:
            at = int.from_bytes(content[6:10], "little")
            return book.strings[at] if at < len(book.strings) else ""
        if kind in {LABEL, RICH_LABEL}:
            return string(content, 6, book.encoding)
        if kind == RK:
            return self._shown(rk(content, 6), style)
        if kind == BOOLEAN:
            return ERRORS.get(content[6], "") if content[7] else text_of(bool(content[6]))
        result = content[6:14]
        if kind == FORMULA and result[6:] == b"\xff\xff":
            self._awaited = (row, column) if result[0] == 0 else None
            other = {1: text_of(bool(result[2])), 2: ERRORS.get(result[2], "")}
            return other.get(result[0], "")
        return self._shown(struct.unpack("<d", result)[0], style) if len(result) == 8 else ""

    def _shown(self, number: float, style: int) -> str:
        return self._book.numbers.text(number, self._book.format(style))
