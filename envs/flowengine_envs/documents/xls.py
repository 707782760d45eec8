"""Excel workbooks from before 2007, sheet by sheet: values with their units, and links."""

from __future__ import annotations

import struct
from typing import NamedTuple

from flowengine_envs.documents import xls_records as records
from flowengine_envs.documents.compound_files import CompoundFile
from flowengine_envs.documents.document import Damaged, PasswordRequired
from flowengine_envs.documents.markdown import Writer
from flowengine_envs.documents.rtf_tokens import encoding_of_page
from flowengine_envs.documents.sheet_dates import ERRORS, NumberFormats, built_in
from flowengine_envs.documents.sheet_rows import SheetRows
from flowengine_envs.documents.sheet_values import text_of

_STREAMS = ("Workbook", "Book")
_EXCEL_97 = 0x0600
_WORKSHEET = 0
_OF_CELLS = frozenset(
    {
        *(records.LABEL_SST, records.LABEL, records.RICH_LABEL, records.NUMBER, records.RK),
        *(records.FORMULA, records.BOOLEAN),
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
        self.encoding = ""
        """The encoding of texts, empty since Excel 97."""
        self._formats: dict[int, str] = {}
        self._begins_1904 = False
        shared: list[bytes] = []
        version, is_shared = 0, False
        for kind, content in records.records(stream):
            is_shared = kind == records.SST or (is_shared and kind == records.CONTINUE)
            if is_shared:
                shared.append(content)
            elif kind == records.EOF:
                break
            elif kind == records.BOF and not version:
                version = int.from_bytes(content[:2], "little")
                self.encoding = "" if version >= _EXCEL_97 else "cp1252"
            else:
                self._take(kind, content)
        if not version:
            raise Damaged("the workbook has no beginning")
        if shared:
            self.strings = records.SharedStrings(shared).read()
        self.numbers = NumberFormats(self._begins_1904)

    def _take(self, kind: int, content: bytes) -> None:
        if kind == records.FILE_PASS:
            raise PasswordRequired("it is an encrypted workbook, which cannot be opened here")
        number = int.from_bytes(content[:2], "little")
        if kind == records.CODE_PAGE and self.encoding:
            self.encoding = encoding_of_page(number)
        elif kind == records.DATE_MODE:
            self._begins_1904 = number == 1
        elif kind == records.XF:
            self.styles.append(int.from_bytes(content[2:4], "little"))
        elif kind == records.FORMAT:
            read = records.short_string if self.encoding else records.string
            self._formats[number] = read(content, 2, self.encoding)
        elif kind == records.BOUND_SHEET and len(content) >= 8:
            name = records.short_string(content, 6, self.encoding).replace("\0", "")
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
        self._awaited: tuple[int, int] | None = None
        """The cell of a formula whose text follows."""

    def read(self, start: int, most: int) -> None:
        """Read the sheet that begins at a place, up to a number of cells."""
        depth = 0
        for kind, content in records.records(self._book.stream, start):
            if kind == records.BOF:
                depth += 1
            elif kind == records.EOF:
                depth -= 1
                if depth <= 0:
                    return
            elif depth == 1 and most >= 0:
                most -= self._take(kind, content)

    def _take(self, kind: int, content: bytes) -> int:
        """Read a record, and return its number of cells."""
        if kind in _OF_CELLS and len(content) >= 8:
            row, column, style = struct.unpack_from("<3H", content)
            self.rows.put(row, column, self._text(kind, content, row, column, style))
            return 1
        if kind == records.MULTIPLE_RK:
            row, column = struct.unpack_from("<2H", content)
            count = (len(content) - 6) // 6
            for at in range(count):
                style = int.from_bytes(content[4 + 6 * at : 6 + 6 * at], "little")
                number = records.rk(content, 6 + 6 * at)
                self.rows.put(row, column + at, self._shown(number, style))
            return count
        if kind == records.STRING and self._awaited is not None:
            self.rows.put(*self._awaited, records.string(content, 0, self._book.encoding))
            self._awaited = None
        elif kind == records.ROW and len(content) >= 14:
            row, height, options = (content[at] | content[at + 1] << 8 for at in (0, 6, 12))
            if options & 0x20 or not height & 0x7FFF:
                self.rows.hidden_rows.add(row)
        elif kind == records.COLUMNS and len(content) >= 10:
            first, last, width, _, options = struct.unpack_from("<5H", content)
            if options & 1 or not width:
                self.rows.hidden_columns.append(range(first, min(last, 0xFF) + 1))
        elif kind == records.LINK:
            self.rows.link(records.link(content))
        return 0

    def _text(self, kind: int, content: bytes, row: int, column: int, style: int) -> str:
        book = self._book
        if kind == records.LABEL_SST:
            at = int.from_bytes(content[6:10], "little")
            return book.strings[at] if at < len(book.strings) else ""
        if kind in {records.LABEL, records.RICH_LABEL}:
            return records.string(content, 6, book.encoding)
        if kind == records.RK:
            return self._shown(records.rk(content, 6), style)
        if kind == records.BOOLEAN:
            return ERRORS.get(content[6], "") if content[7] else text_of(bool(content[6]))
        result = content[6:14]
        if kind == records.FORMULA and result[6:] == b"\xff\xff":
            self._awaited = (row, column) if result[0] == 0 else None
            other = {1: text_of(bool(result[2])), 2: ERRORS.get(result[2], "")}
            return other.get(result[0], "")
        return self._shown(struct.unpack("<d", result)[0], style) if len(result) == 8 else ""

    def _shown(self, number: float, style: int) -> str:
        return self._book.numbers.text(number, self._book.format(style))
