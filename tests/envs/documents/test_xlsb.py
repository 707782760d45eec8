"""Excel workbooks in the binary format XLSB."""

from __future__ import annotations

import io
import struct
import zipfile

import pytest

from flowengine_envs.documents.converters import convert
from flowengine_envs.documents.document import ConversionLimits, Damaged, LimitReached


def record(kind: int, content: bytes = b"") -> bytes:
    head = bytes([kind]) if kind < 0x80 else bytes([kind & 0x7F | 0x80, kind >> 7])
    return head + bytes([len(content)]) + content


def text(written: str) -> bytes:
    return struct.pack("<I", len(written)) + written.encode("utf-16-le")


def xlsb(*rows: tuple[int, list[tuple[int, float | str]]]) -> bytes:
    """Return a workbook whose sheet has these rows: number, then column and value of each cell."""
    cells = b""
    for number, values in rows:
        cells += record(0, struct.pack("<I", number) + bytes(13))
        for column, value in values:
            place = struct.pack("<II", column, 0)
            number_of = struct.pack("<d", value) if isinstance(value, float) else b""
            cells += (
                record(5, place + number_of) if number_of else record(6, place + text(str(value)))
            )
    sheet = (
        record(0x81) + record(0x94, bytes(16)) + record(0x91) + cells + record(0x92) + record(0x82)
    )
    book = (
        record(0x83)
        + record(0x8F)
        + record(0x9C, struct.pack("<II", 0, 1) + text("rId1") + text("Berths"))
        + record(0x90)
        + record(0x84)
    )
    kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    relation = f'<Relationship Id="rId1" Type="{kind}/worksheet" Target="worksheets/sheet1.bin"/>'
    space = "http://schemas.openxmlformats.org/package/2006/relationships"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        main = "application/vnd.ms-excel.sheet.binary.macroEnabled.main"
        archive.writestr(
            "[Content_Types].xml",
            '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
            f'<Override PartName="/xl/workbook.bin" ContentType="{main}"/></Types>',
        )
        archive.writestr("xl/workbook.bin", book)
        relations = f'<Relationships xmlns="{space}">{relation}</Relationships>'
        archive.writestr("xl/_rels/workbook.bin.rels", relations)
        archive.writestr("xl/worksheets/sheet1.bin", sheet)
    return buffer.getvalue()


def test_values_of_xlsb() -> None:
    found = convert(xlsb((0, [(0, "crane"), (1, "lifts")]), (2, [(0, "Ana"), (1, 40.5)])), "a.xlsb")

    assert found.markdown == (
        "<!-- sheet 1 -->\n\n## Berths\n\n| crane | lifts |\n| --- | --- |\n| Ana | 40.5 |"
    )
    assert (found.format, found.notes) == ("xlsb", [])


def test_an_xlsb_sheet_with_a_far_cell_is_refused_before_it_is_read() -> None:
    data = xlsb((0, [(0, "a")]), (1_048_575, [(16_383, "b")]))

    with pytest.raises(LimitReached, match=r"its sheets unpack to 549,755,813,888 bytes"):
        convert(data, "a.xlsb")
    near = xlsb((0, [(0, "a")]), (9, [(9, "b")]))
    assert convert(near, limits=ConversionLimits(unpacked=10_000)).tables[0] == [
        ["a", ""],
        ["", "b"],
    ]


@pytest.mark.parametrize("cut", [b"\x80", b"\x85\xff\xff\xff\xff\xff", b"\x00\x04\x01"])
def test_records_that_are_cut_off_are_damaged(cut: bytes) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(xlsb())) as before, zipfile.ZipFile(buffer, "w") as after:
        for name in before.namelist():
            after.writestr(name, cut if name.endswith("sheet1.bin") else before.read(name))

    with pytest.raises(Damaged):
        convert(buffer.getvalue(), "a.xlsb")
