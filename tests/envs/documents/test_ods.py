"""OpenDocument spreadsheets."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from flowengine_envs.documents.converters import convert
from flowengine_envs.documents.document import (
    ConversionLimits,
    Damaged,
    Document,
    LimitReached,
    PasswordRequired,
)

FILES = Path(__file__).with_name("files")
NAMES = " ".join(
    f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
    for name in ("office", "table", "text", "style")
)
OTHERS = 'xmlns:xlink="http://www.w3.org/1999/xlink" xmlns:dc="http://purl.org/dc/elements/1.1/"'


def test_a_file_of_libreoffice() -> None:
    found = convert((FILES / "libreoffice.ods").read_bytes(), "a.ods")

    assert found.markdown == (
        "<!-- sheet 1 -->\n\n## Prices\n\n"
        "| item | n | rate | price | date | when | dur | ok | f |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
        "| bolt | 3 | 25% | $1,234.50 | 2024-01-31 | 2024-01-31 06:05:00 | 30:05 | TRUE | 6 |\n"
        "| #DIV/0! |  |  |  |  |  |  |  |  |\n"
        "| <!-- hidden --> [link](https://a.example/) |  |  |  |  |  |  |  |  |\n"
        "| merged |  |  |  |  |  |  |  |  |\n\n"
        "<!-- sheet 2 (hidden) -->\n\n## Secret\n\n| x |\n| --- |\n\n<!-- sheet 3 -->\n\n## Empty"
    )
    assert (found.format, found.notes) == ("ods", ["hidden rows are marked"])


def ods(tables: str, styles: str = "", **more: str) -> bytes:
    content = (
        f"<office:document-content {NAMES} {OTHERS}><office:automatic-styles>{styles}"
        f"</office:automatic-styles><office:body><office:spreadsheet>{tables}"
        "</office:spreadsheet></office:body></office:document-content>"
    )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        archive.writestr("content.xml", content)
        for name, text in more.items():
            archive.writestr(name.replace("__", "/") + ".xml", text)
    return buffer.getvalue()


def cell(text: str = "", **attributes: str) -> str:
    named = "".join(
        f' {name.replace("_", ":", 1).replace("_", "-")}="{value}"'
        for name, value in attributes.items()
    )
    shown = "".join(f"<text:p>{line}</text:p>" for line in text.split("\n")) if text else ""
    return f"<table:table-cell{named}>{shown}</table:table-cell>"


def row(*cells: str, more: str = "") -> str:
    return f"<table:table-row{more}>{''.join(cells)}</table:table-row>"


def read(*rows: str, comments: bool = False, limits: ConversionLimits | None = None) -> Document:
    table = f'<table:table table:name="T">{"".join(rows)}</table:table>'
    return convert(ods(table), comments=comments, limits=limits)


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (cell("1,234.50", office_value_type="float", office_value="1234.5"), "1234.5"),
        (cell("5.0 kg", office_value_type="float", office_value="5"), "5.0 kg"),
        (cell("01234", office_value_type="float", office_value="1234"), "01234"),
        (cell("", office_value_type="float", office_value="3"), "3"),
        (cell("8%", office_value_type="percentage", office_value="0.075"), "7.5%"),
        (cell("7,50 %", office_value_type="percentage", office_value="0.075"), "7.50%"),
        (cell("1.234,50 €", office_value_type="currency", office_value="1234.5"), "1.234,50 €"),
        (cell("31.1.24", office_value_type="date", office_date_value="2024-01-31"), "2024-01-31"),
        (cell("x", office_value_type="date", office_date_value="2024-01-31T06:05:00.000"),
         "2024-01-31 06:05:00"),
        (cell("-1:30", office_value_type="time", office_time_value="-PT01H30M00S"), "-1:30"),
        (cell("WAHR", office_value_type="boolean", office_boolean_value="true"), "TRUE"),
        (cell("a<text:s text:c='3'/>b<text:line-break/>c\nd"), "a b<br>c<br>d"),
        (cell("see <text:a xlink:href='https://a.example/?x=1&amp;y'>the <text:span>port"
              "</text:span></text:a>."), "see [the port](https://a.example/?x=1&y)."),
        (cell("<text:a xlink:href='javascript:x()'>a</text:a>"), "a"),
        (cell("a|b"), "a\\|b"),
    ],
)  # fmt: skip
def test_cells(written: str, shown: str) -> None:
    assert read(row(written)).markdown.endswith(f"| {shown} |\n| --- |")


def test_repeated_cells_and_rows_are_repeated_only_if_they_have_a_text() -> None:
    found = read(
        row(cell(table_number_columns_repeated="16384"), more=' table:number-rows-repeated="9"'),
        row(cell("a"), cell("b", table_number_columns_repeated="2"),
            cell(table_number_columns_repeated="16381")),
        row(cell(), "<table:covered-table-cell/>", cell("c"),
            more=' table:number-rows-repeated="2"'),
        row(cell(table_number_columns_repeated="16384"),
            more=' table:number-rows-repeated="999999"'),
    )  # fmt: skip

    assert found.tables == [[["a", "b", "b"], ["", "", "c"], ["", "", "c"]]]


def test_repetitions_end_at_the_limit_of_cells() -> None:
    limits = ConversionLimits(cells=100)
    wide = cell("x", table_number_columns_repeated="99999999")
    found = read(
        row(
            cell("a", table_number_columns_repeated="9"),
            more=' table:number-rows-repeated="99999999"',
        ),
        row(wide, more=' table:number-rows-repeated="99999999"'),
        limits=limits,
    )

    assert len(found.tables[0]) == 11
    assert found.notes == ["tables cut after 100 cells (limit 'cells')"]


def test_hidden_rows_columns_and_sheets_are_marked() -> None:
    columns = (
        "<table:table-column/><table:table-column table:visibility='collapse'/>"
        "<table:table-column-group table:display='false'>"
        "<table:table-column table:number-columns-repeated='2'/></table:table-column-group>"
    )
    rows = row(cell("a"), cell("b"), cell("c"), cell("d")) + row(
        cell("e"), more=" table:visibility='filter'"
    )
    style = (
        "<style:style style:name='ta1' style:family='table'>"
        "<style:table-properties table:display='false'/></style:style>"
    )
    found = convert(
        ods(
            f"<table:table table:style-name='ta1' table:name='S'>{columns}{rows}</table:table>",
            style,
        )
    )

    hidden = "<!-- hidden -->"
    assert found.markdown.startswith("<!-- sheet 1 (hidden) -->\n\n## S")
    assert found.tables == [
        [["a", f"{hidden} b", f"{hidden} c", f"{hidden} d"], [f"{hidden} e", "", "", ""]]
    ]
    assert found.notes == ["hidden rows are marked", "hidden columns are marked"]


def test_comments_have_their_cell() -> None:
    note = (
        "<office:annotation><dc:creator>Ana</dc:creator><text:p>check</text:p>"
        "<text:p>this</text:p></office:annotation>"
    )
    noted = cell("1").replace("<text:p>", f"{note}<text:p>")
    rows = row(cell()), row(cell(table_number_columns_repeated="27"), noted)

    assert read(*rows).notes == ["comments left out: 1 (config: comments)"]
    text = read(*rows, comments=True).markdown
    assert text.endswith("| 1 |\n| --- |\n\nComment by Ana on AB2: check this")


def test_title_encryption_and_damage() -> None:
    meta = (
        f"<office:document-meta {NAMES} {OTHERS}><dc:title>Rents</dc:title></office:document-meta>"
    )
    assert convert(ods("", meta=meta)).title == "Rents"
    manifest = "<m><file-entry><encryption-data/></file-entry></m>"
    with pytest.raises(PasswordRequired):
        convert(ods("", **{"META-INF__manifest": manifest}))
    with pytest.raises(Damaged, match="not well-formed"):
        convert(ods("<table:table>"))
    with pytest.raises(LimitReached, match="unpacked"):
        convert(ods(" " * 20_000), limits=ConversionLimits(unpacked=10_000))
