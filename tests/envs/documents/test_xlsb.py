"""Excel workbooks in the binary format XLSB."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Iterable

import pytest

from flowengine_documents.document import ConversionLimits, Damaged, Document
from flowengine_envs.documents.converting import convert
from tests.rows import each_row

KIND = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
SPACE = "http://schemas.openxmlformats.org/package/2006/relationships"
MAIN = "application/vnd.ms-excel.sheet.binary.macroEnabled.main"


def record(kind: int, content: bytes = b"") -> bytes:
    head = bytes([kind]) if kind < 0x80 else bytes([kind & 0x7F | 0x80, kind >> 7])
    return head + bytes([len(content)]) + content


def text(written: str) -> bytes:
    return struct.pack("<I", len(written)) + written.encode("utf-16-le")


def row(number: int, flags: int = 0) -> bytes:
    return record(0, struct.pack("<IIHBBBI", number, 0, 300, 0, flags, 0, 0))


def cell(kind: int, content: bytes, column: int = 0, style: int = 0) -> bytes:
    return record(kind, struct.pack("<II", column, style) + content)


def relations(*targets: tuple[str, str, str]) -> str:
    listed = "".join(
        f'<Relationship Id="{id}" Type="{KIND}/{kind}" Target="{target}"'
        f"{' TargetMode=' + chr(34) + 'External' + chr(34) if '://' in target else ''}/>"
        for id, kind, target in targets
    )
    return f'<Relationships xmlns="{SPACE}">{listed}</Relationships>'


FORMATS = ["0%", '"$"#,##0.00', "yyyy-mm-dd", "[h]:mm"]
"""Number formats of the styles 1 to 4."""


def xlsb(*sheet: bytes, book: Iterable[bytes] = (), strings: Iterable[str] = ()) -> bytes:
    """Return a workbook with a sheet of these records."""
    formats = [
        record(0x2C, struct.pack("<H", 164 + at) + text(each)) for at, each in enumerate(FORMATS)
    ]
    numbers = [0, *range(164, 164 + len(FORMATS))]
    styles = [record(0x2F, struct.pack("<HH12x", 0, number)) for number in numbers]
    parts: dict[str, str | bytes] = {
        "[Content_Types].xml": "<Types xmlns="
        '"http://schemas.openxmlformats.org/package/2006/content-types">'
        f'<Override PartName="/xl/workbook.bin" ContentType="{MAIN}"/></Types>',
        "xl/workbook.bin": b"".join(
            book or [record(0x9C, struct.pack("<II", 0, 1) + text("rId1") + text("Berths"))]
        ),
        "xl/_rels/workbook.bin.rels": relations(
            ("rId1", "worksheet", "worksheets/sheet1.bin"),
            ("rId2", "styles", "styles.bin"),
            ("rId3", "sharedStrings", "sharedStrings.bin"),
        ),
        "xl/worksheets/sheet1.bin": record(0x81) + b"".join(sheet) + record(0x82),
        "xl/worksheets/_rels/sheet1.bin.rels": relations(
            ("rId9", "hyperlink", "https://a.example/")
        ),
        "xl/styles.bin": b"".join(
            [record(0x2F, bytes(16)), *formats, record(0x269), *styles, record(0x26A)]
        ),
        # Some programs write the names of parts in other cases than their relationships.
        "xl/SharedStrings.bin": b"".join(record(0x13, b"\0" + text(each)) for each in strings),
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def read(*sheet: bytes, strings: Iterable[str] = ()) -> Document:
    return convert(xlsb(*sheet, strings=strings), "a.xlsb")


def test_rows_come_in_order_below_the_name_of_their_sheet() -> None:
    found = read(
        row(2), cell(6, text("Ana")), cell(5, struct.pack("<d", 40.5), 2),
        row(0), cell(7, struct.pack("<I", 1)), cell(7, struct.pack("<I", 9), 1),
        strings=["one", "crane"],
    )  # fmt: skip

    assert found.markdown == (
        "<!-- sheet 1 -->\n\n## Berths\n\n| crane |  |\n| --- | --- |\n| Ana | 40.5 |"
    )
    assert (found.format, found.notes) == ("xlsb", [])


def test_hidden_sheets_and_charts() -> None:
    sheets = [
        record(0x9C, struct.pack("<II", state, 1) + text(id) + text(name))
        for state, id, name in ((2, "rId1", "Secret"), (0, "rId2", "Styles"), (0, "rId7", "None"))
    ]
    found = convert(xlsb(row(0), cell(6, text("x")), book=sheets))

    assert found.markdown == (
        "<!-- sheet 1 (hidden) -->\n\n## Secret\n\n| x |\n| --- |\n\n<!-- sheet 2 -->\n\n## Styles"
        "\n\n<!-- sheet 3 -->\n\n## None"
    )


LINK = record(0x1EE, struct.pack("<4I", 0, 5, 0, 5) + text("rId9") + text("") + text("") + text(""))


@each_row(
    ("records", "shown"),
    [
        ([cell(5, struct.pack("<d", 0.25), style=1)], "25%"),
        ([cell(2, struct.pack("<i", (45292 << 2) | 2), style=3)], "2024-01-01"),
        ([cell(2, struct.pack("<i", (-1234 << 2) | 3))], "-12.34"),
        ([cell(4, b"\1")], "TRUE"),
        ([cell(3, b"\x2a")], "#N/A"),
        ([cell(11, b"\7")], "#DIV/0!"),
        ([cell(8, text("made") + bytes(6))], "made"),
        ([cell(6, text("x")), LINK], "[x](https://a.example/)"),
        ([row(0, 0x10), cell(6, text("x"))], "<!-- hidden --> x"),
        ([cell(6, text("x")), record(0x3C, struct.pack("<4IH", 0, 3, 9, 0, 1))],
         "<!-- hidden --> x"),
        ([cell(1, b"\0"), cell(6, text("x"))], "x"),
    ],
)  # fmt: skip
def test_cells(records: list[bytes], shown: str) -> None:
    assert read(row(0), *records).tables == [[[shown]]]


def test_days_may_be_counted_from_1904() -> None:
    sheet = record(0x9C, struct.pack("<II", 0, 1) + text("rId1") + text("S"))
    day = cell(5, struct.pack("<d", 1), style=3)
    found = convert(xlsb(row(0), day, book=[record(0x99, b"\x01\0\0\0"), sheet]))

    assert found.tables == [[["1904-01-02"]]]


def test_far_cells_take_no_room_and_the_limit_of_cells_holds() -> None:
    far = [row(1_048_575), cell(6, text("b"), 16_383)]
    assert read(row(0), cell(6, text("a")), *far).tables == [[["a", ""], ["", "b"]]]
    many = [each for n in range(60) for each in (row(n), cell(6, text("x"), 9))]
    found = convert(xlsb(*many), limits=ConversionLimits(cells=50))
    assert (len(found.tables[0]), found.truncated) == (5, True)
    with pytest.raises(Damaged, match="a cell in column 4,294,967,295"):
        read(row(0), cell(6, text("x"), 0xFFFFFFFF))


@each_row("cut", [b"\x80", b"\x85\xff\xff\xff\xff\xff", b"\x00\x04\x01", b"\5\x0a"])
def test_records_that_are_cut_off_are_ignored(cut: bytes) -> None:
    assert read(row(0), cell(6, text("x")), cut).tables == [[["x"]]]
