"""Excel workbooks, sheet by sheet: the values that were last calculated."""

from __future__ import annotations

import datetime
import io
from collections.abc import Iterator
from typing import Any

from flowengine_envs.documents.archives import open_archive
from flowengine_envs.documents.document import Damaged
from flowengine_envs.documents.markdown import Writer

_MOST_ROWS = 1_048_576
_MIDNIGHT = datetime.time()


def convert(data: bytes, out: Writer) -> None:
    """Convert a workbook.

    Args:
        data: Its bytes.
        out: Where it goes.

    Raises:
        Damaged: It cannot be opened.
    """
    open_archive(data, out.limits).close()
    import openpyxl

    try:
        book = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True)
    except Exception as error:  # of the library, of its XML parser, of zipfile
        raise Damaged(f"the workbook cannot be opened: {error}") from None
    try:
        out.document.title = book.properties.title or ""
        for number, sheet in enumerate(book.worksheets, 1):
            hidden = "" if sheet.sheet_state == "visible" else " (hidden)"
            out.part("sheet", number, sheet.title, hidden)
            out.heading(2, sheet.title)
            sheet.reset_dimensions()  # what a file says of its size may be wrong
            out.table(_rows(sheet))
    finally:
        book.close()


def _rows(sheet: Any) -> Iterator[list[str]]:
    try:
        for row in sheet.iter_rows(max_row=_MOST_ROWS, values_only=True):
            last = next((at for at in range(len(row), 0, -1) if row[at - 1] is not None), 0)
            if last:
                yield [_text(value) for value in row[:last]]
    except (ValueError, KeyError, TypeError, SyntaxError) as error:  # of its XML parser, too
        raise Damaged(f"sheet '{sheet.title}' cannot be read: {error}") from None


def _text(value: Any) -> str:
    """Return a value as somebody would type it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:.15g}"
    if isinstance(value, datetime.datetime):
        day = value.date().isoformat()
        return day if value.time() == _MIDNIGHT else f"{day} {value.time().isoformat('seconds')}"
    return str(value)
