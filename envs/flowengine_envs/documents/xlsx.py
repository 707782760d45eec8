"""Excel workbooks, sheet by sheet: the values that were last calculated, and comments.

A program that writes a workbook without calculating it leaves formulas without a value. The
formulas are then shown instead.
"""

from __future__ import annotations

import datetime
import io
import re
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from flowengine_envs.documents.archives import open_archive, readable
from flowengine_envs.documents.comments import Remarks
from flowengine_envs.documents.document import Damaged
from flowengine_envs.documents.markdown import Writer
from flowengine_envs.documents.sheet_comments import SheetComments

_MOST_ROWS = 1_048_576
_MIDNIGHT = datetime.time()
_PIECE = 1024 * 1024
_LONGEST_CELL = 64 * 1024
"""Maximum bytes between the beginning of a formula and the end of its cell."""
_UNCALCULATED = re.compile(
    rb"<(?:\w+:)?f\b[^>]*(?:/>|>[^<]*</(?:\w+:)?f>)\s*"
    rb"(?:</(?:\w+:)?c>|<(?:\w+:)?v\s*(?:/>|></))"
)
_CHART = re.compile(r"xl/charts/chart\d*\.xml")


def convert(data: bytes, out: Writer, comments: bool = False) -> None:
    """Convert a workbook.

    Args:
        data: Its bytes.
        out: Receives the text.
        comments: Whether its comments are included.

    Raises:
        Damaged: It cannot be opened.
    """
    data = readable(data, out.limits)
    with ExitStack() as opened:
        archive = opened.enter_context(open_archive(data, out.limits))
        book = opened.enter_context(_opened(data, data_only=True))
        sheets = [(sheet, sheet._worksheet_path) for sheet in book.worksheets]
        lacking = {path for _, path in sheets if _lacks_values(archive, path)}
        formulas = opened.enter_context(_opened(data, data_only=False)) if lacking else None
        out.document.title = book.properties.title or ""
        remarks = Remarks(out, comments)
        on_cells = SheetComments(archive, remarks)
        for number, (sheet, path) in enumerate(sheets, 1):
            hidden = "" if sheet.sheet_state == "visible" else " (hidden)"
            out.part("sheet", number, sheet.title, hidden)
            out.heading(2, sheet.title)
            other = formulas[sheet.title] if formulas and path in lacking else None
            out.table(_rows(sheet, other))
            on_cells.write(path)
        remarks.finish()
        if lacking:
            out.note("formulas that were never calculated are shown as such")
        if charts := sum(_CHART.fullmatch(name) is not None for name in archive.namelist()):
            out.note(f"charts left out: {charts:,}. Their data is in the sheets")


@contextmanager
def _opened(data: bytes, *, data_only: bool) -> Iterator[Any]:
    import openpyxl

    try:
        book = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=data_only)
    except Exception as error:  # of the library, of its XML parser, of zipfile
        raise Damaged(f"the workbook cannot be opened: {error}") from None
    try:
        yield book
    finally:
        book.close()


def _lacks_values(archive: zipfile.ZipFile, path: str) -> bool:
    """Return whether a sheet has formulas without a value."""
    before = b""
    with archive.open(path) as sheet:
        while piece := sheet.read(_PIECE):
            if _UNCALCULATED.search(before + piece):
                return True
            before = piece[-_LONGEST_CELL:]
    return False


def _rows(sheet: Any, formulas: Any) -> Iterator[list[str]]:
    """Yield the rows of a sheet that are not empty.

    Args:
        sheet: The sheet with the values.
        formulas: The same sheet with the formulas, if values are missing.
    """
    try:
        for row in _values(sheet) if formulas is None else _filled(sheet, formulas):
            last = next((at for at in range(len(row), 0, -1) if row[at - 1] is not None), 0)
            if last:
                yield [text_of(value) for value in row[:last]]
    except (ValueError, KeyError, TypeError, SyntaxError) as error:  # of its XML parser, too
        raise Damaged(f"sheet '{sheet.title}' cannot be read: {error}") from None


def _values(sheet: Any) -> Iterator[Sequence[Any]]:
    sheet.reset_dimensions()  # the declared size may be wrong
    rows: Iterator[Sequence[Any]] = sheet.iter_rows(max_row=_MOST_ROWS, values_only=True)
    return rows


def _filled(sheet: Any, formulas: Any) -> Iterator[Sequence[Any]]:
    """Yield the values of rows, and formulas in place of missing values."""
    for row, written in zip(_values(sheet), _values(formulas), strict=True):
        yield [
            getattr(formula, "text", formula) if value is None else value
            for value, formula in zip(row, written, strict=True)
        ]


def text_of(value: Any) -> str:
    """Return a value as a user would type it."""
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
