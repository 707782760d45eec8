"""Excel workbooks in the binary format XLSB, sheet by sheet: values with their units, and links.

Source: [MS-XLSB] 2.1.4 (records), 2.4 and 2.5.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator

from flowengine_documents.archives import open_archive, read_entry, relationships
from flowengine_documents.document import Damaged
from flowengine_documents.markdown import Writer
from flowengine_documents.sheets import (
    ERRORS,
    LEFT_OUT,
    NumberFormats,
    SheetLink,
    SheetRows,
    built_in,
    text_of,
    write_text_boxes,
)
from flowengine_documents.xls import rk

_BOOK = "xl/workbook.bin"
_SHEET, _PROPERTIES, _LINK = 0x9C, 0x99, 0x1EE
_STRING, _FORMAT, _STYLE = 0x13, 0x2C, 0x2F
_STYLES_BEGIN, _STYLES_END = 0x269, 0x26A
_ROW, _COLUMNS = 0x00, 0x3C
_RK, _ERROR, _BOOLEAN, _REAL, _TEXT, _SHARED = range(2, 8)
_FORMULA_TEXT, _FORMULA_REAL, _FORMULA_BOOLEAN, _FORMULA_ERROR = range(8, 12)
_LAST_COLUMN = 16_383


def convert(data: bytes, out: Writer) -> None:
    """Convert a workbook.

    Args:
        data: Its bytes.
        out: Receives the text.

    Raises:
        Damaged: It cannot be read.
    """
    with open_archive(data, out.limits) as archive:
        book = _Book(archive)
        sheets = (data for kind, data in _records(read_entry(archive, _BOOK)) if kind == _SHEET)
        for number, sheet in enumerate(sheets, 1):
            id, at = _wide(sheet, 8)
            name, _ = _wide(sheet, at)
            out.part("sheet", number, name, " (hidden)" if any(sheet[:4]) else "")
            out.heading(2, name)
            part = book.parts.get(id, "")
            if "worksheets" in part.split("/"):
                most = out.cells_left
                out.table(book.rows(part, most).marked(out.note, most))
                write_text_boxes(archive, part, out)
            else:
                out.note(LEFT_OUT)


class _Book:
    """The parts of a workbook that its sheets share."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._names = {name.lower(): name for name in archive.namelist()}
        related = [*relationships(archive, _BOOK)]
        self.parts = {each.id: each.target for each in related if not each.is_external}
        by_kind = {each.kind: each.target for each in related if not each.is_external}
        properties = (data for kind, data in self._part(_BOOK) if kind == _PROPERTIES)
        flags = next(properties, b"")[:1] or b"\0"
        self._numbers = NumberFormats(begins_1904=bool(flags[0] & 1))
        shared = self._part(by_kind.get("sharedStrings", ""))
        self._strings = [_wide(data, 1)[0] for kind, data in shared if kind == _STRING]
        self._formats: dict[int, str] = {}
        self._styles: list[int] = []
        """Number of a style → its number format."""
        is_style = False
        for kind, data in self._part(by_kind.get("styles", "")):
            is_style = kind == _STYLES_BEGIN or (is_style and kind != _STYLES_END)
            if kind == _FORMAT:
                self._formats[int.from_bytes(data[:2], "little")] = _wide(data, 2)[0]
            elif kind == _STYLE and is_style:
                self._styles.append(int.from_bytes(data[2:4], "little"))

    def _part(self, path: str) -> Iterator[tuple[int, bytes]]:
        if name := self._names.get(path.lower()):
            yield from _records(read_entry(self._archive, name))

    def rows(self, part: str, most: int) -> SheetRows:
        """Return the rows of a sheet, up to a number of cells.

        Raises:
            Damaged: It has impossible cells.
        """
        rows, row = SheetRows(), 0
        addresses = {each.id: each.target for each in relationships(self._archive, part)}
        for kind, data in self._part(part):
            if kind == _ROW and len(data) >= 12:
                row = int.from_bytes(data[:4], "little")
                if data[11] & 0x10 or data[8:10] == b"\0\0":
                    rows.hidden_rows.add(row)
            elif _RK <= kind <= _FORMULA_ERROR and len(data) >= 9 and most >= 0:
                column, style = struct.unpack_from("<2I", data)
                if column > _LAST_COLUMN:
                    raise Damaged(f"a sheet has a cell in column {column:,}")
                rows.put(row, column, self._text(kind, data, style & 0xFFFFFF))
                most -= 1
            elif kind == _COLUMNS and len(data) >= 18:
                first, last, width, _, flags = struct.unpack_from("<4IH", data)
                if flags & 1 or not width:
                    rows.hidden_columns.append(range(first, min(last, _LAST_COLUMN) + 1))
            elif kind == _LINK and len(data) >= 20:
                id, at = _wide(data, 16)
                place = _wide(data, at)[0]
                address = addresses.get(id, "") + (f"#{place}" if place else "")
                top, bottom, left, right = struct.unpack_from("<4I", data)
                rows.link(SheetLink(top, bottom, left, right, address))
        return rows

    def _text(self, kind: int, data: bytes, style: int) -> str:
        if kind == _SHARED:
            at = int.from_bytes(data[8:12], "little")
            return self._strings[at] if at < len(self._strings) else ""
        if kind in {_TEXT, _FORMULA_TEXT}:
            return _wide(data, 8)[0]
        if kind in {_ERROR, _FORMULA_ERROR}:
            return ERRORS.get(data[8], "")
        if kind in {_BOOLEAN, _FORMULA_BOOLEAN}:
            return text_of(bool(data[8]))
        if kind != _RK and len(data) < 16:
            return ""
        number = rk(data, 8) if kind == _RK else struct.unpack_from("<d", data, 8)[0]
        format = self._styles[style] if style < len(self._styles) else 0
        return self._numbers.text(number, self._formats.get(format, "") or built_in(format))


def _wide(data: bytes, at: int) -> tuple[str, int]:
    """Return a string with its length in four bytes, and where it ends."""
    count = int.from_bytes(data[at : at + 4], "little")
    if count == 0xFFFFFFFF:
        return "", at + 4
    end = at + 4 + 2 * count
    return data[at + 4 : end].decode("utf-16-le", "replace"), end


def _records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the type and the content of each record."""
    at, end = 0, len(data)
    while at < end:
        kind = data[at]
        at += 1
        if kind & 0x80 and at < end:
            kind = (kind & 0x7F) | (data[at] << 7)
            at += 1
        length = shift = 0
        while at < end and shift < 28:
            byte = data[at]
            at += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                break
        yield kind, data[at : at + length]
        at += length
