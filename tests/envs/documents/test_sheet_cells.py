"""Excel: number formats, links, hidden rows and columns."""

from __future__ import annotations

import datetime
from typing import Any

import openpyxl

from flowengine_envs.documents.converting import convert
from tests.envs.documents.test_workbooks import saved

HOUR = 1 / 24
SHOWN: list[tuple[Any, str, str]] = [
    # durations
    (30 * HOUR + 5 / 1440, "[h]:mm", "30:05"),
    (-1.5 * HOUR, "[h]:mm", "-1:30"),
    (30 * HOUR + 90 / 86400, "[h]:mm", "30:01:30"),
    (datetime.timedelta(hours=100, minutes=1), "[h]:mm", "100:01"),
    (1.5 * HOUR, "[mm]:ss", "90:00"),
    (1.5 * HOUR + 0.25 / 86400, "[mm]:ss.00", "90:00.25"),
    (30 * HOUR + 5 / 1440, "h:mm", "30:05"),
    (0.5, "h:mm", "12:00:00"),
    (45292.25, "h:mm", "2024-01-01 06:00:00"),
    (45292, "yyyy\\-mm\\-dd", "2024-01-01"),
    # percentages
    (0.25, "0%", "25%"),
    (0.075, "0.00%", "7.50%"),
    (1 / 3, "0.0%", "33.3%"),
    (-0.05, "0.0%;[Red]-0.0%", "-5.0%"),
    # currencies
    (1234.5, '"$"#,##0.00', "$1,234.50"),
    (-1234.5, '"$"#,##0.00_);[Red]\\("$"#,##0.00\\)', "-$1,234.50"),
    (1234.5, '_("$"* #,##0.00_);_("$"* \\(#,##0.00\\);_("$"* "-"??_);_(@_)', "$1,234.50"),
    (0, '_("$"* #,##0.00_);_("$"* \\(#,##0.00\\);_("$"* "-"??_);_(@_)', "$0.00"),
    (1234.5, '#,##0.00\\ "€";-#,##0.00\\ "€"', "1,234.50 €"),
    (1234.5, "[$£-809]#,##0.00", "£1,234.50"),
    (1234.5, "#,##0.00\u00a0[$₽-419]", "1,234.50 ₽"),
    (0.0375, '"$"0.00', "$0.0375"),
    (1e16, '"$"0', "1e+16"),
    # other units, leading zeros, scaled numbers
    (5, '0.0" kg"', "5.0 kg"),
    (7, '+0;-0;0', "+7"),
    (1234, "00000", "01234"),
    (2.5, 'General" m"', "2.5 m"),
    (1_500_000, '0.0,,"M"', "1.5M"),
    # formats that add nothing, or are no plain number
    (1234.5, "#,##0.00", "1234.5"),
    (1234.5, "0.00E+00", "1234.5"),
    (0.5, "# ?/?", "0.5"),
    (5551234, "000\\-0000", "5551234"),
    (5, '[>=10]0" many";0" few"', "5"),
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
