"""Excel: number formats, links, hidden rows and columns."""

from __future__ import annotations

import datetime
import re
from html import escape
from typing import Any

import openpyxl
import pytest

from flowengine_envs.documents.converters import convert
from tests.envs.documents.test_workbooks import changed, saved

HOUR = 1 / 24
SHOWN: list[tuple[Any, str, str]] = [
    # durations
    (30 * HOUR + 5 / 1440, "[h]:mm", "30:05"),
    (-1.5 * HOUR, "[h]:mm", "-1:30"),
    (-30 * HOUR - 5 / 1440, "[h]:mm:ss;@", "-30:05:00"),
    (30 * HOUR + 90 / 86400, "[h]:mm", "30:01:30"),
    (0, "[hh]:mm:ss", "0:00:00"),
    (datetime.timedelta(hours=100, minutes=1), "[h]:mm", "100:01"),
    (2 * HOUR, "[h]", "2"),
    (1.5 * HOUR, "[mm]:ss", "90:00"),
    (1.5 * HOUR + 0.25 / 86400, "[mm]:ss.00", "90:00.25"),
    (1.5 * HOUR, "[m]", "90"),
    (1.5 * HOUR, "[ss]", "5400"),
    (30 * HOUR + 5 / 1440, "h:mm", "30:05"),
    (0.5, "h:mm", "12:00:00"),
    (45292.25, "h:mm", "2024-01-01 06:00:00"),
    (45292, "yyyy\\-mm\\-dd", "2024-01-01"),
    # percentages
    (0.25, "0%", "25%"),
    (0.075, "0.00%", "7.50%"),
    (0.075, "0%", "7.5%"),
    (1 / 3, "0.0%", "33.3%"),
    (-0.05, "0.0%;[Red]-0.0%", "-5.0%"),
    (12, "0 %", "1200 %"),
    (0.07, "0%", "7%"),
    (1e-9, "0%", "0%"),
    # currencies
    (1234.5, '"$"#,##0.00', "$1,234.50"),
    (-1234.5, '"$"#,##0.00_);[Red]\\("$"#,##0.00\\)', "-$1,234.50"),
    (-1234.5, "$#,##0.00", "-$1,234.50"),
    (1234.5, '_("$"* #,##0.00_);_("$"* \\(#,##0.00\\);_("$"* "-"??_);_(@_)', "$1,234.50"),
    (0, '_("$"* #,##0.00_);_("$"* \\(#,##0.00\\);_("$"* "-"??_);_(@_)', "$0.00"),
    (1234.5, '#,##0.00\\ "€";-#,##0.00\\ "€"', "1,234.50 €"),
    (-7, "[$EUR] #,##0", "-EUR 7"),
    (1234.5, "[$£-809]#,##0.00", "£1,234.50"),
    (1234.5, "#,##0.00\u00a0[$₽-419]", "1,234.50 ₽"),
    (0.0375, '"$"0.00', "$0.0375"),
    (100 / 3, '"$"0.00', "$33.33"),
    (1e16, '"$"0', "1e+16"),
    # other units, leading zeros, scaled numbers
    (5, '0.0" kg"', "5.0 kg"),
    (21, '0"°C"', "21°C"),
    (3, '"Q"0', "Q3"),
    (7, '+0;-0;0', "+7"),
    (1234, "00000", "01234"),
    (2.5, 'General" m"', "2.5 m"),
    (1_500_000, '0.0,,"M"', "1.5M"),
    # formats that add nothing, or are no plain number
    (1234.5, "#,##0.00", "1234.5"),
    (-1234.5, "#,##0_);(#,##0)", "-1234.5"),
    (1234.5, "0.00E+00", "1234.5"),
    (0.5, "# ?/?", "0.5"),
    (5551234, "000\\-0000", "5551234"),
    (5, '[>=10]0" many";0" few"', "5"),
    (5, "General", "5"),
    (5, ";;;", "5"),
    (5, '"' * 300, "5"),
    (True, "0%", "TRUE"),
    ("text", "0%", "text"),
]  # fmt: skip


def test_numbers_have_the_units_of_their_formats() -> None:
    book = openpyxl.Workbook()
    sheet = book.worksheets[0]
    for row, (value, format, _) in enumerate(SHOWN, 1):
        sheet.cell(row, 1, f"{row}")
        sheet.cell(row, 2, value).number_format = format

    shown = [row[1] for row in convert(saved(book)).tables[0]]
    assert dict(enumerate(shown, 1)) == {n: text for n, (*_, text) in enumerate(SHOWN, 1)}


def link_sheet() -> bytes:
    book = openpyxl.Workbook()
    sheet = book.worksheets[0]
    for row in (["site", "port"], ["a [1]", "b"], ["c", None], ["d", "e"], [None, "f"]):
        sheet.append(row)
    sheet["A2"].hyperlink = "https://a.example/x?y=1&z=(2)"
    sheet["B2"].hyperlink = openpyxl.worksheet.hyperlink.Hyperlink("B2", location="Other!A1")
    sheet["B3"].hyperlink = "https://nothing.example/"
    sheet["B3"].value = None
    sheet["A4"].hyperlink = "javascript:alert(1)"
    sheet["B5"].hyperlink = "https://range.example/"
    sheet["B5"].hyperlink.ref = "A4:B5"
    return saved(book)


def test_links_of_cells() -> None:
    assert convert(link_sheet()).tables[0] == [
        ["site", "port"],
        ["[a \\[1\\]](https://a.example/x?y=1&z=%282%29)", "[b](#Other!A1)"],
        ["c", ""],
        ["[d](https://range.example/)", "[e](https://range.example/)"],
        ["", "[f](https://range.example/)"],
    ]


@pytest.mark.parametrize(
    ("formula", "shown"),
    [
        ('HYPERLINK("https://a.example/", "the port")', "[kept](https://a.example/)"),
        ('hyperlink("https://a.example/")', "[kept](https://a.example/)"),
        ('HYPERLINK("#Other!A1","go")', "[kept](#Other!A1)"),
        ('HYPERLINK(A1&"x","go")', "kept"),
        ('HYPERLINK("https://a.example/"&A1,"go")', "kept"),
        ('HYPERLINK("javascript:x()","go")', "kept"),
        ('IF(TRUE,HYPERLINK("https://a.example/"))', "kept"),
    ],
)
def test_links_of_formulas(formula: str, shown: str) -> None:
    cell = f'<c r="A1" t="str"><f>{escape(formula, quote=False)}</f><v>kept</v></c>'

    def calculate(name: str, content: bytes) -> bytes:
        return re.sub(rb'<c r="A1".*</c>', cell.encode(), content)

    book = openpyxl.Workbook()
    book.worksheets[0]["A1"] = "=1"
    assert convert(changed(saved(book), calculate)).tables == [[[shown]]]


def test_formulas_that_share_a_text_are_shown_for_their_cell() -> None:
    book = openpyxl.Workbook()
    sheet = book.worksheets[0]
    for row in ([2, "=A1*2"], [3, "=A2*2"]):
        sheet.append(row)

    def share(name: str, content: bytes) -> bytes:
        first = b'<f t="shared" ref="B1:B2" si="0">A1*2</f><v>4</v>'
        content = content.replace(b"<f>A1*2</f><v></v>", first).replace(b"<f>A1*2</f><v/>", first)
        return content.replace(b"<f>A2*2</f>", b'<f t="shared" si="0"/>')

    found = convert(changed(saved(book), share))
    assert found.tables == [[["2", "4"], ["3", "=A2*2"]]]


def test_hidden_rows_and_columns_are_marked() -> None:
    book = openpyxl.Workbook()
    sheet = book.worksheets[0]
    for row in (["name", "cost", None, "note"], ["a", 1, None, "x"], [None, 2, None, "y"], ["c"]):
        sheet.append(row)
    sheet.row_dimensions[2].hidden = True
    sheet.row_dimensions[3].hidden = True
    sheet.row_dimensions[9].hidden = True
    sheet.column_dimensions["B"].hidden = True
    sheet.column_dimensions["C"].hidden = True
    sheet.column_dimensions["E"].hidden = True
    book.create_sheet("Plain").append(["seen"])

    found = convert(saved(book))
    assert found.tables == [
        [
            ["name", "<!-- hidden --> cost", "note"],
            ["<!-- hidden --> a", "1", "x"],
            ["", "<!-- hidden --> 2", "y"],
            ["c", "", ""],
        ],
        [["seen"]],
    ]
    assert found.notes == ["hidden rows are marked", "hidden columns are marked"]


def test_hidden_columns_of_a_group_and_without_a_title() -> None:
    book = openpyxl.Workbook()
    sheet = book.worksheets[0]
    for row in (["a", None, None], [1, 2, 3]):
        sheet.append(row)
    sheet.column_dimensions.group("B", "D", hidden=True)

    assert convert(saved(book)).tables == [
        [["a", "<!-- hidden -->", "<!-- hidden -->"], ["1", "2", "3"]]
    ]
