"""Excel workbooks, sheet by sheet: the values that were last calculated, and comments.

A program that writes a workbook without calculating it leaves formulas without a value. The
formulas are then shown instead.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from flowengine_envs.documents.archives import open_archive, readable
from flowengine_envs.documents.comments import Remarks
from flowengine_envs.documents.document import Damaged
from flowengine_envs.documents.markdown import Writer
from flowengine_envs.documents.sheet_cells import SheetCells
from flowengine_envs.documents.sheet_comments import SheetComments

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
        book = opened.enter_context(_opened(data))
        out.document.title = book.properties.title or ""
        remarks = Remarks(out, comments)
        on_cells = SheetComments(archive, remarks)
        for number, sheet in enumerate(book.worksheets, 1):
            hidden = "" if sheet.sheet_state == "visible" else " (hidden)"
            out.part("sheet", number, sheet.title, hidden)
            out.heading(2, sheet.title)
            cells = SheetCells(archive, sheet, out.note)
            try:
                out.table(cells.rows(out.cells_left))
            except (
                ValueError,
                KeyError,
                TypeError,
                SyntaxError,
            ) as error:  # of its XML parser, too
                raise Damaged(f"sheet '{sheet.title}' cannot be read: {error}") from None
            on_cells.write(sheet._worksheet_path)
        remarks.finish()
        if charts := sum(_CHART.fullmatch(name) is not None for name in archive.namelist()):
            out.note(f"charts left out: {charts:,}. Their data is in the sheets")


@contextmanager
def _opened(data: bytes) -> Iterator[Any]:
    import openpyxl

    try:
        book = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True)
    except Exception as error:  # of the library, of its XML parser, of zipfile
        raise Damaged(f"the workbook cannot be opened: {error}") from None
    try:
        yield book
    finally:
        book.close()
