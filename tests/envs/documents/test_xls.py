"""Excel workbooks from before 2007."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

import pytest

from flowengine_documents.document import ConversionLimits, Damaged, Document, PasswordRequired
from flowengine_envs.documents.converting import convert
from tests.envs.documents.written_compound import compound
from tests.rows import each_row

LIBREOFFICE = Path(__file__).with_name("files") / "libreoffice.xls"


Record = tuple[int, bytes]


def stream(parts: Iterable[Record]) -> bytes:
    return b"".join(struct.pack("<HH", kind, len(content)) + content for kind, content in parts)


def string(text: str, flags: int = 1) -> bytes:
    return struct.pack("<HB", len(text), flags) + text.encode(
        "utf-16-le" if flags & 1 else "latin-1"
    )


BEGINNING = (0x0809, struct.pack("<HH4x8x", 0x0600, 5))
END = (0x000A, b"")
STYLES = ["General", "0%", '"$"#,##0.00', "yyyy-mm-dd", "[h]:mm"]
"""Number formats of the styles 0 to 4."""


def workbook(
    *cells: Record, strings: Iterable[Record] = (), globals_: Iterable[Record] = ()
) -> bytes:
    """Return a workbook with one sheet."""
    formats = [
        (0x041E, struct.pack("<H", 164 + at) + string(each)) for at, each in enumerate(STYLES)
    ]
    styles = [(0x00E0, struct.pack("<HH16x", 0, 164 + at)) for at in range(len(STYLES))]
    parts = [*globals_, *formats, *styles, *strings]

    def book(start: int) -> bytes:
        sheet = struct.pack("<IBBBB", start, 0, 0, 6, 1) + "Berths".encode("utf-16-le")
        return stream([BEGINNING, *parts, (0x0085, sheet), END])

    sheet = stream([(0x0809, struct.pack("<HH12x", 0x0600, 0x10)), *cells, END])
    return compound({"Workbook": book(len(book(0))) + sheet})


def at(row: int, column: int, style: int = 0) -> bytes:
    return struct.pack("<3H", row, column, style)


def number(value: float, style: int = 0) -> Record:
    return 0x0203, at(0, 0, style) + struct.pack("<d", value)


def read(*cells: Record, **more: Iterable[Record]) -> Document:
    return convert(workbook(*cells, **more), "a.xls")


def formula(result: bytes) -> Record:
    return 0x0006, at(0, 0) + result + bytes(8)


LINK = bytes(16) + struct.pack("<II", 2, 3) + bytes.fromhex("e0c9ea79f9bace118c8200aa004ba90b")


@each_row(
    ("cells", "shown"),
    [
        ([number(1234.5)], "1234.5"),
        ([number(0.25, 1)], "25%"),
        ([number(1.2534722222222223, 4)], "30:05"),
        ([(0x027E, at(0, 0) + struct.pack("<i", (1234 << 2) | 2))], "1234"),
        ([(0x027E, at(0, 0) + struct.pack("<i", (-1234 << 2) | 3))], "-12.34"),
        ([(0x027E, at(0, 0, 1) + struct.pack("<d", 0.5)[4:])], "50%"),
        ([(0x0204, at(0, 0) + string("größe 漢"))], "größe 漢"),
        ([(0x0204, at(0, 0) + string("größe", 0))], "größe"),
        ([(0x0205, at(0, 0) + b"\x2a\1")], "#N/A"),
        ([formula(struct.pack("<d", 7))], "7"),
        ([formula(b"\2\0\7\0\0\0\xff\xff")], "#DIV/0!"),
        ([formula(b"\0\0\0\0\0\0\xff\xff"), (0x0207, string("made"))], "made"),
        ([number(1), (0x01B8, struct.pack("<4H", 0, 9, 0, 9) + LINK + struct.pack("<I", 36)
          + "https://a.example\0".encode("utf-16-le"))], "[1](https://a.example)"),
        ([number(1), (0x01B8, struct.pack("<4H", 0, 0, 0, 0) + bytes(16)
          + struct.pack("<III", 2, 8, 3) + "A!1".encode("utf-16-le"))], "[1](#A!1)"),
        ([number(1), (0x0208, struct.pack("<8H", 0, 0, 1, 300, 0, 0, 0x20, 0))],
         "<!-- hidden --> 1"),
        ([number(1), (0x007D, struct.pack("<6H", 0, 255, 2000, 0, 1, 0))], "<!-- hidden --> 1"),
        ([(0x0809, bytes(16)), number(2), END, number(1)], "1"),  # a chart within the sheet
    ],
)  # fmt: skip
def test_cells(cells: list[Record], shown: str) -> None:
    assert read(*cells).tables == [[[shown]]]


def test_shared_strings_go_on_in_the_next_record() -> None:
    rich = struct.pack("<HBHI", 4, 0x0D, 1, 3) + "rich".encode("utf-16-le") + bytes(4) + bytes(3)
    half = "é漢"
    pieces = [
        (0x00FC, struct.pack("<II", 3, 3) + string("one", 0) + struct.pack("<HB", 6, 0) + b"abc"),
        (0x003C, b"\1" + ("d" + half).encode("utf-16-le") + rich),
    ]
    cells = [(0x00FD, at(0, n) + struct.pack("<I", n)) for n in range(4)]

    assert read(*cells, strings=pieces).tables == [[["one", f"abcd{half}", "rich"]]]


def test_texts_before_excel_97_have_a_code_page() -> None:
    cells = [(0x0204, at(0, 0) + struct.pack("<H", 3) + "При".encode("cp1251"))]
    beginning = (0x0809, struct.pack("<HH", 0x0500, 5))
    sheet = stream([(0x0809, struct.pack("<HH", 0x0500, 0x10)), *cells, END])

    def book(start: int) -> bytes:
        name = struct.pack("<IBBB", start, 1, 0, 1) + "Я".encode("cp1251")
        return stream([beginning, (0x0042, struct.pack("<H", 1251)), (0x0085, name), END])

    found = convert(compound({"Book": book(len(book(0))) + sheet}))
    assert found.markdown == "<!-- sheet 1 (hidden) -->\n\n## Я\n\n| При |\n| --- |"


@pytest.mark.parametrize(
    ("data", "error", "reason"),
    [
        (workbook(globals_=[(0x002F, bytes(6))]), PasswordRequired, "an encrypted workbook"),
        (compound({"Workbook": b""}), Damaged, "no beginning"),
        (LIBREOFFICE.read_bytes()[:512] + bytes(4_000), Damaged, "cannot be"),
        (workbook((0x01B8, bytes(9))), Damaged, "a link of the workbook is cut off"),
    ],
    ids=["encrypted", "empty", "zeros", "link"],
)
def test_what_cannot_be_read(data: bytes, error: type[Exception], reason: str) -> None:
    with pytest.raises(error, match=reason):
        convert(data, "a.xls")


def test_far_cells_take_no_room_and_the_limit_of_cells_holds() -> None:
    far = (0x0203, at(65_535, 255) + struct.pack("<d", 2))
    assert read(number(1), far).tables == [[["1", ""], ["", "2"]]]
    many = [(0x0203, at(n, 0) + struct.pack("<d", n)) for n in range(60)]
    found = convert(workbook(*many), limits=ConversionLimits(cells=50))
    assert (len(found.tables[0]), found.truncated) == (50, True)


@each_row("cut", [600, 1_000, 2_000, 2_500])
def test_damage_is_survived(cut: int) -> None:
    """Records with any content neither hang nor raise another error."""
    whole = LIBREOFFICE.read_bytes()
    for step in (3, 7):
        data = bytearray(whole)
        for place in range(cut, cut + 400, step):
            data[place] ^= 0xFF
        try:
            convert(bytes(data), "a.xls")
        except (Damaged, PasswordRequired):
            continue


def test_text_boxes_are_read_without_comments() -> None:
    def shape(kind: int, text: str) -> list[Record]:
        halves = [text[:3], text[3:]]
        return [
            (0x005D, struct.pack("<HHHH", 0x15, 0x12, kind, 1)),
            (0x01B6, struct.pack("<HH6xHHI", 0, 0, len(text), 16, 0)),
            *((0x003C, b"\x01" + half.encode("utf-16-le")) for half in halves),
            (0x003C, b"\0" * 16),
        ]

    found = convert(workbook(*shape(0x06, "größer\rals"), *shape(0x19, "comment")))

    assert found.markdown.endswith("## Berths\n\ngrößer\nals")
