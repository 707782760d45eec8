"""PDF tables whose cells have ruled borders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pytest
from pypdf import apply_configuration, get_configuration

from flowengine_envs.documents.converters import convert
from flowengine_envs.documents.document import Document
from tests.envs.documents.written_pdf import made_pdf

PLACES = [72, 172, 272, 372]
DOWN = [700, 660, 620, 580]
CELLS = [
    ["Ship", "Cargo", "Remark"],
    ["Anna", "grain and flour", ""],
    ["Berta", "", "late again"],
]

Line = tuple[float, float, float, float]


def grid(across: Sequence[float] = PLACES, down: Sequence[float] = DOWN) -> list[Line]:
    """Return lines around all cells."""
    level = [(across[0], y, across[-1], y) for y in down]
    return level + [(x, down[0], x, down[-1]) for x in across]


def stroked(lines: Iterable[Line]) -> str:
    return "\n".join(f"{x} {y} m {to_x} {to_y} l S" for x, y, to_x, to_y in lines)


def filled(lines: Iterable[Line]) -> str:
    """Draw lines as rectangles half a point thick."""
    return "\n".join(
        f"{min(x, to_x)} {min(y, to_y)} {abs(to_x - x) or 0.5} {abs(to_y - y) or 0.5} re f"
        for x, y, to_x, to_y in lines
    )


def frames(lines: Iterable[Line]) -> str:
    """Draw a rectangle around each cell, ignoring the lines."""
    boxes = (f"{x} {y - 40} 100 40 re" for y in DOWN[:-1] for x in PLACES[:-1])
    return " S\n".join([*boxes, ""])


def moved(lines: Iterable[Line]) -> str:
    """Draw in another coordinate system, with a downward axis and twice the scale."""
    drawn = (f"{x / 2} {(792 - y) / 2} m {a / 2} {(792 - b) / 2} l S" for x, y, a, b in lines)
    return "\n".join(["q 2 0 0 -2 0 792 cm", *drawn, "Q"])


def texts(cells: Sequence[Sequence[str]] = CELLS) -> str:
    """Draw the words of each cell below each other, in one text object for all cells."""
    shown = ["BT /F1 9 Tf"]
    for row, top in zip(cells, DOWN, strict=False):
        for cell, x in zip(row, PLACES, strict=False):
            shown += [
                f"1 0 0 1 {x + 4} {top - 10 - 11 * at} Tm ({word}) Tj"
                for at, word in enumerate(cell.split())
            ]
    return "\n".join([*shown, "ET"])


def read(*drawn: str) -> Document:
    return convert(made_pdf(["\n".join(drawn).encode()]))


def prose(y: float, text: str) -> str:
    return f"BT /F1 11 Tf 72 {y} Td ({text}) Tj ET"


@pytest.mark.parametrize("draw", [stroked, filled, frames, moved])
def test_cells_of_several_lines_between_lines_that_are_drawn(
    draw: Callable[[Iterable[Line]], str],
) -> None:
    document = read(prose(750, "Before"), draw(grid()), texts(), prose(500, "After"))

    assert document.tables == [CELLS]
    assert document.markdown == (
        "<!-- page 1 -->\n\nBefore\n\n"
        "| Ship | Cargo | Remark |\n| --- | --- | --- |\n"
        "| Anna | grain and flour |  |\n| Berta |  | late again |\n\nAfter"
    )


def test_a_row_that_is_shown_at_once_is_parted() -> None:
    row = "BT /F1 9 Tf 1 0 0 1 {x} {y} Tm (Anna) Tj 1 0 0 1 {x1} {y} Tm (grain) Tj ET"
    shown = [row.format(x=76, x1=176, y=y) for y in (680, 640)]

    document = read(stroked(grid(PLACES[:3], DOWN[:3])), *shown)

    assert document.tables == [[["Anna", "grain"], ["Anna", "grain"]]]


def test_a_cell_that_reaches_over_others_is_the_first_of_them() -> None:
    lines = [
        *((72, y, 372, y) for y in DOWN),
        *((x, 660, x, 580) for x in PLACES[1:3]),
        *((x, 700, x, 580) for x in (72, 372)),
    ]
    cells = [["Ships of May", "", ""], ["Anna", "1", "2"], ["Berta", "3", "4"]]

    assert read(stroked(lines), texts(cells)).tables == [cells]


def open_rows() -> list[Line]:
    """Return the lines of a table that separates its columns in the first row only."""
    level = [(72, y, 372, y) for y in (*DOWN, 540)]
    return [
        *level,
        *((x, 700, x, 660) for x in PLACES[1:3]),
        *((x, 700, x, 540) for x in (72, 372)),
    ]


def test_columns_need_lines_in_the_first_row_only() -> None:
    rows = [["Ship", "In", "Out"], *([name, "1", "2"] for name in ("Anna", "Berta", "Cleo"))]
    shown = [
        f"BT /F1 9 Tf {x + 4} {700 - 40 * at - 20} Td ({text}) Tj ET"
        for at, row in enumerate(rows)
        for x, text in zip(PLACES, row, strict=False)
    ]

    assert read(stroked(open_rows()), *shown).tables == [rows]


def test_a_sentence_that_reaches_over_columns_stays_whole() -> None:
    words = ["The ships of the", "harbour may leave", "it before the ebb"]
    shown = [
        f"BT /F1 12 Tf {76 + 92 * part} {y} Td ({text}) Tj ET"
        for y in (640, 600, 560)
        for part, text in enumerate(words)
    ]
    head = "BT /F1 9 Tf 76 680 Td (Ship) Tj 100 0 Td (In) Tj ET"

    [table] = read(stroked(open_rows()), head, *shown).tables or [[]]
    assert table in ([], [["Ship", "In"], *[[" ".join(words), ""]] * 3])


def test_a_table_needs_no_lines_at_its_sides() -> None:
    lines = [line for line in grid() if line[0] != line[2] or line[0] in PLACES[1:3]]

    assert read(stroked(lines), texts()).tables == [CELLS]


def test_two_tables_and_the_text_between_them() -> None:
    below = [y - 300 for y in DOWN]
    shifted = "\n".join(["q 1 0 0 1 0 -300 cm", texts(), "Q"])

    document = read(
        stroked(grid()), stroked(grid(down=below)), texts(), prose(540, "Between"), shifted
    )

    assert document.tables == [CELLS, CELLS]
    assert document.markdown.count("Between") == 1
    assert document.markdown.index("Between") < document.markdown.rindex("| Ship |")


@pytest.mark.parametrize(
    "drawn",
    [
        stroked(grid([72, 372], [700, 580])),
        stroked(grid([72, 372], DOWN)),
        stroked([(x, y - 12, x + 60, y - 12) for x in PLACES for y in DOWN]),
        stroked([(60, 575, 60, 720), (60, 575, 400, 575)]),
        stroked(grid([0, 30, 60], [790, 760, 730])),
        stroked(grid([50 + 15 * at for at in range(25)], [710 - 10 * at for at in range(15)])),
        "72 580 300 120 re f",
        "72 580 m 172 700 l 272 580 l s",
        "(text) l x y m 1 l S q q Q Q Q 3 re S",
    ],
    ids=["frame", "rows", "underlines", "axes", "elsewhere", "chart", "area", "triangle", "broken"],
)
def test_what_is_no_table_stays_text(drawn: str) -> None:
    plain = read(texts()).markdown

    document = read(drawn, texts())

    assert document.tables == []
    assert document.markdown == plain


def test_all_text_is_kept_once_wherever_it_begins() -> None:
    words = [f"w{x}x{y}" for x in range(40, 440, 7) for y in range(540, 740, 9)]
    shown = "\n".join(
        f"BT /F1 5 Tf {x} {y} Td (w{x}x{y}) Tj ET"
        for x in range(40, 440, 7)
        for y in range(540, 740, 9)
    )

    document = read(stroked(grid()), shown)

    assert document.tables
    letters = "".join(document.markdown.split())
    assert [letters.count(word) for word in words if letters.count(word) != 1] == []


def very_many_lines(count: int) -> str:
    return "1 1 m 9 1 l S\n1 1 m 1 9 l S\n" * (count // 2)


@pytest.mark.endurance
def test_a_page_of_very_many_lines_has_no_table_and_is_its_text() -> None:
    document = read(very_many_lines(12_000), stroked(grid()), texts())

    assert document.tables == []
    assert "Berta" in document.markdown


def test_a_page_of_more_than_the_library_reads_says_so() -> None:
    """By default the library reads 2,000,000 objects of a page, which takes half a minute."""
    assert get_configuration().stream_parsing_work_maximum_count <= 2_000_000
    with apply_configuration(stream_parsing_work_maximum_count=20_000):
        document = read(very_many_lines(10_000), stroked(grid()), texts())

    assert document.tables == []
    assert "page 1 cannot be read: Reached maximum number of tokens" in document.notes[0]


def test_a_page_full_of_cells_ends() -> None:
    places = range(10, 600, 4)
    document = read(stroked(grid([*places], [*places])), texts())

    assert document.tables == []
    assert "Berta" in document.markdown


def test_rows_that_only_numbers_tell_are_rows() -> None:
    port, tons, left = ["Wick", "Lerwick", "Thurso"], ["12", "-", "7"], ["3.5%", "4", "(1,200)"]
    cells = [["Port", "Tons", "Left"], [*map(" ".join, (port, tons, left))]]

    document = read(stroked(grid(down=DOWN[:3])), texts(cells))

    assert document.tables == [
        [["Port", "Tons", "Left"], *map(list, zip(port, tons, left, strict=True))]
    ]


@pytest.mark.parametrize(
    "row",
    [
        ["a b c", "it is late", "and it rains"],
        ["a b c", "1 2 3", "it rains again"],
        ["a b c", "1", "2"],
        ["a b", "1 2", "3 4"],
    ],
    ids=["texts", "one column of three", "one number", "two lines"],
)
def test_texts_of_several_lines_stay_in_their_cells(row: list[str]) -> None:
    cells = [["Port", "Tons", "Left"], row]

    assert read(stroked(grid(down=DOWN[:3])), texts(cells)).tables == [cells]
