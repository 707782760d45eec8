"""PDF tables that were drawn cell by cell."""

from __future__ import annotations

from collections.abc import Sequence

from flowengine_envs.documents.converters import convert
from tests.envs.documents.written_pdf import made_pdf

STOCK = [
    ("Code", "Place", "Expected", "Actual"),
    ("S-1", "A-12", "450", ""),
    ("", "B-07", "", "289"),
    ("S-2", "", "780", "778"),
]


def drawn(rows: Sequence[Sequence[str]], top: int, before: str = "") -> bytes:
    """Draw each cell separately, row by row, with a line break after each."""
    cells = [(72, top + 40, before)] if before else []
    for at, row in enumerate(rows):
        cells += [(72 + 120 * column, top - 24 * at, text) for column, text in enumerate(row)]
    return b"\n".join(
        b"q 1 0 0 1 %d %d cm BT 1 0 0 1 0 2 Tm 13 TL /F1 11 Tf (%s) Tj T* ET Q"
        % (x, y, text.encode())
        for x, y, text in cells
        if text
    )


def test_a_table_that_is_drawn_cell_by_cell() -> None:
    document = convert(made_pdf([drawn(STOCK, 600, "Stock of November")]))
    assert document.tables == [[list(row) for row in STOCK]]
    assert document.markdown.startswith("<!-- page 1 -->\n\nStock of November\n\n| Code | Place |")


def test_a_row_that_is_drawn_cell_by_cell_is_one_line() -> None:
    rows = [("Name:", "Ana Silva", "Port of call"), ("long text that is alone",)]
    document = convert(made_pdf([drawn(rows, 600)]))
    assert document.tables == []
    assert document.markdown == (
        "<!-- page 1 -->\n\nName:  Ana Silva  Port of call\nlong text that is alone"
    )


def test_columns_of_prose_stay_columns() -> None:
    """Text drawn column by column is read column by column."""
    left = [(f"left line {number} of a column",) for number in range(4)]
    right = [("",) * 2 + (f"right line {number} of a column",) for number in range(4)]
    document = convert(made_pdf([drawn(left, 600) + b"\n" + drawn(right, 600)]))
    assert document.tables == []
    lines = document.markdown.splitlines()[2:]
    assert lines == [row[-1] for row in (*left, *right)]
