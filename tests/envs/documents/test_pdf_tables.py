"""PDF tables without lines around their cells."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

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


Shown = tuple[float, float, str]


def page(*shown: Shown, bold: Sequence[Shown] = ()) -> bytes:
    """Return a page with texts of 10 points at their places."""
    return b"\n".join(
        b"BT /%s 10 Tf %f %f Td (%s) Tj ET" % (font, x, y, text.encode())
        for font, texts in ((b"F1", shown), (b"F2", bold))
        for x, y, text in texts
    )


def columns(*cells: tuple[float, Sequence[str]], steps: Sequence[float]) -> list[Shown]:
    """Return the texts of columns. A text of several lines has them 12 points apart."""
    shown = []
    for x, texts in cells:
        y = 700.0
        for text, step in zip(texts, steps, strict=True):
            shown += [(x, y - 12 * at, line) for at, line in enumerate(text.split("\n"))]
            y -= step
    return shown


ORDER = [
    ["No", "Description", "Amount"],
    ["1", "Consulting on site,\nwith travel", "2,850.00"],
    ["2", "Licence", "1,200.00"],
    ["3", "Support for a year\nwithin four hours\non working days", "960.00"],
    ["", "Total", "5,010.00"],
]
INVOICE = [(x, [row[at] for row in ORDER]) for at, x in enumerate((60, 90, 400))]


def one_line(table: Sequence[Sequence[str]]) -> list[list[str]]:
    return [[cell.replace("\n", " ") for cell in row] for row in table]


@pytest.mark.parametrize(
    ("shown", "table"),
    [
        pytest.param(
            columns(*INVOICE, steps=[20, 32, 20, 44, 20]),
            one_line(ORDER),
            id="cells of several lines, rows farther apart",
        ),
        pytest.param(
            columns(*INVOICE, steps=[12, 24, 12, 36, 12]),
            one_line(ORDER),
            id="cells of several lines, rows as close as lines",
        ),
        pytest.param(
            columns(*INVOICE, steps=[20, 32, 20, 44, 20])[::-1],
            one_line(ORDER),
            id="drawn from the end",
        ),
        pytest.param(
            columns(
                (60, ["Part\nnumber", "A-100", "A-101", "B-7"]),
                (160, ["Name", "Bolt", "Nut", "Long pipe"]),
                (260, ["Price\neach", "0.12", "0.05", "18.50"]),
                steps=[26, 14, 14, 14],
            ),
            [
                ["Part number", "Name", "Price each"],
                ["A-100", "Bolt", "0.12"],
                ["A-101", "Nut", "0.05"],
                ["B-7", "Long pipe", "18.50"],
            ],
            id="a header of two lines",
        ),
        pytest.param(
            columns(
                (60, ["Date", "1 May", "2 May", "5 May", "6 May"]),
                (120, ["Text", "Opening", "Rent", "Salary", "Refund"]),
                (300, ["Debit", "", "800.00", "", ""]),
                (360, ["Credit", "", "", "2,900.00", "12.00"]),
                (420, ["Balance", "1,500.00", "700.00", "3,600.00", "3,612.00"]),
                steps=[14] * 5,
            ),
            [
                ["Date", "Text", "Debit", "Credit", "Balance"],
                ["1 May", "Opening", "", "", "1,500.00"],
                ["2 May", "Rent", "800.00", "", "700.00"],
                ["5 May", "Salary", "", "2,900.00", "3,600.00"],
                ["6 May", "Refund", "", "12.00", "3,612.00"],
            ],
            id="columns that are mostly empty",
        ),
        pytest.param(
            columns(
                (60, ["Ships", "120", "98", "141"]),
                (91, ["Tonnage", "40,500", "33,210", "51,007"]),
                steps=[14] * 4,
            ),
            [["Ships", "Tonnage"], ["120", "40,500"], ["98", "33,210"], ["141", "51,007"]],
            id="columns that nearly touch",
        ),
        pytest.param(
            [
                *columns(
                    (60, ["Item", "Build", "Care"]),
                    (400, ["Price", "3.00", "6.00"]),
                    steps=[20] * 3,
                ),
                (150, 700, "Details"),
                (150, 686, "Pages and"),
                (150, 674, "pictures"),
                (150, 660, "Updates"),
            ],
            [
                ["Item", "Details", "Price"],
                ["Build", "Pages and pictures", "3.00"],
                ["Care", "Updates", "6.00"],
            ],
            id="cells centered in their rows",
        ),
    ],
)
def test_aligned_texts_are_a_table(shown: Sequence[Shown], table: list[list[str]]) -> None:
    below = (60, 560, "Payable within 14 days to the account that is named in the contract.")
    document = convert(made_pdf([page((60, 760, "To Berta"), *shown, below)]))

    assert document.tables == [table]
    text = document.markdown.splitlines()
    assert (text[2], text[-1]) == ("To Berta", below[2])


@pytest.mark.parametrize(
    "shown",
    [
        columns((60, ["1.", "2.", "3."]), (90, ["first", "second", "third"]), steps=[14] * 3),
        columns((60, ["a", "c"]), (90, ["b", "4"]), steps=[14] * 2),
        columns(
            (60, ["left text", "that goes on", "and on here"]),
            (300, ["right column", "here", "it goes too"]),
            steps=[14] * 3,
        ),
        columns(
            (60, ["One . . . . . . . 1", "Two . . . . . . 4", "Three . . . . . 9"]),
            (300, ["12", "14", "19"]),
            steps=[14] * 3,
        ),
    ],
)
def test_lists_indexes_and_texts_beside_each_other_are_no_tables(shown: Sequence[Shown]) -> None:
    assert convert(made_pdf([page(*shown)])).tables == []


def test_a_receipt_has_a_table_under_each_of_its_headings() -> None:
    goods = columns(
        (60, ["Coffee", "Soup", "Cake"]), (200, ["5.60", "8.90", "3.20"]), steps=[12] * 3
    )
    paid = [(x, y - 60, text) for x, y, text in goods]
    headings = [(60.0, 714.0, "Goods"), (60.0, 654.0, "Payment")]
    document = convert(made_pdf([page(*goods, *paid, (60, 600, "Thank you"), bold=headings)]))

    table = "| Coffee | 5.60 |\n| --- | --- |\n| Soup | 8.90 |\n| Cake | 3.20 |"
    assert document.markdown == (
        f"<!-- page 1 -->\n\n### Goods\n\n{table}\n\n### Payment\n\n{table}\n\nThank you"
    )


def test_a_page_of_very_many_aligned_lines_ends() -> None:
    shown = [(60.0 + 40 * (at % 5), 790 - at // 5 * 0.9, f"{at}") for at in range(4_000)]
    began = time.process_time()
    convert(made_pdf([page(*shown)]))

    assert time.process_time() - began < 30
