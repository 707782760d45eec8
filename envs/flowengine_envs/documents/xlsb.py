"""Excel workbooks in the binary format XLSB.

The library holds a sheet as a rectangle around its first and last cell. The size of these
rectangles is therefore read first, from the positions of the cells.

Source: [MS-XLSB] 2.1.4 and 2.4 (records).
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Iterator, Sequence
from typing import Any

from flowengine_envs.documents.archives import open_archive, read_entry
from flowengine_envs.documents.document import (
    ConversionLimits,
    Damaged,
    LimitReached,
    PasswordRequired,
)
from flowengine_envs.documents.markdown import Writer
from flowengine_envs.documents.sheet_values import text_of

_BYTES = 32
"""Memory of a cell."""
_SHEET = re.compile(r"xl[/\\]worksheets[/\\](?!_rels[/\\]).+", re.IGNORECASE)
_ROW = 0
_CELLS_OF_ROW = range(1, 12)
_NUMBER = struct.Struct("<I")


def convert(data: bytes, out: Writer) -> None:
    """Convert a workbook.

    Args:
        data: Its bytes.
        out: Receives the text.

    Raises:
        Damaged: It cannot be opened.
        PasswordRequired: It is encrypted.
        LimitReached: Its sheets would become too large.
    """
    _check_size(_areas_of_archive(data, out.limits), out.limits)
    from python_calamine import CalamineWorkbook, PasswordError, SheetTypeEnum, SheetVisibleEnum

    try:
        book = CalamineWorkbook.from_filelike(io.BytesIO(data))
        for number, sheet in enumerate(book.sheets_metadata, 1):
            hidden = "" if sheet.visible == SheetVisibleEnum.Visible else " (hidden)"
            out.part("sheet", number, sheet.name, hidden)
            out.heading(2, sheet.name)
            if sheet.typ == SheetTypeEnum.WorkSheet:
                out.table(_rows(book.get_sheet_by_index(number - 1)))
    except PasswordError:
        raise PasswordRequired("it is an encrypted workbook, which cannot be opened here") from None
    except BaseException as error:
        if type(error).__name__ == "PanicException":  # of the library, which is no `Exception`
            raise Damaged(f"the workbook cannot be opened: {error}") from None
        raise


def _rows(sheet: Any) -> Iterator[Sequence[str]]:
    for row in sheet.iter_rows():
        texts = [text_of(value) for value in row]
        if any(texts):
            yield texts


def _check_size(areas: Iterator[int], limits: ConversionLimits) -> None:
    size = _BYTES * sum(areas)
    if size > limits.unpacked:
        raise LimitReached("unpacked", limits.unpacked, f"its sheets unpack to {size:,} bytes")


def _areas_of_archive(data: bytes, limits: ConversionLimits) -> Iterator[int]:
    """Yield how many cells the sheets of an XLSB file span."""
    with open_archive(data, limits) as archive:
        for name in archive.namelist():
            if _SHEET.fullmatch(name):
                yield _area(read_entry(archive, name))


def _area(records: bytes) -> int:
    span, row = _Span(), 0
    for kind, at in _records(records):
        if kind == _ROW:
            (row,) = _NUMBER.unpack_from(records, at)
        elif kind in _CELLS_OF_ROW:
            span.add(row, *_NUMBER.unpack_from(records, at))
    return span.area


def _records(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield the type of each record of an XLSB sheet, and where its content begins."""
    at, end = 0, len(data)
    while at < end:
        kind = data[at]
        at += 1
        if kind & 0x80 and at < end:
            kind = kind & 0x7F | data[at] << 7
            at += 1
        length = shift = 0
        while at < end and shift < 28:
            byte = data[at]
            at += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                break
        if at + 4 <= end and length >= 4:
            yield kind, at
        at += length


class _Span:
    """The rectangle around cells."""

    def __init__(self) -> None:
        self._rows = self._columns = (0xFFFFFFFF, -1)

    def add(self, row: int, column: int) -> None:
        self._rows = min(self._rows[0], row), max(self._rows[1], row)
        self._columns = min(self._columns[0], column), max(self._columns[1], column)

    @property
    def area(self) -> int:
        if self._rows[1] < 0:
            return 0
        return (self._rows[1] - self._rows[0] + 1) * (self._columns[1] - self._columns[0] + 1)
