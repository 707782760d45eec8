# Shows W69
"""PDF tables whose cells have ruled borders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
from pypdf import apply_configuration, get_configuration

from flowengine_documents.document import Document
from flowengine_envs.documents.converting import convert
from tests.envs.documents.written_pdf import made_pdf

PLACES = [72, 172, 272, 372]
DOWN = [700, 660, 620, 580]
CELLS = [["Ship", "Cargo", "Remark"], ["Anna", "grain and flour", ""], ["Berta", "", "late again"]]

Line = tuple[float, float, float, float]


def grid(across: Sequence[float] = PLACES, down: Sequence[float] = DOWN) -> list[Line]:
    """Return lines around all cells."""
    level = [(across[0], y, across[-1], y) for y in down]
    return level + [(x, down[0], x, down[-1]) for x in across]


def stroked(lines: Iterable[Line]) -> str:
    return "\n".join(f"{x} {y} m {to_x} {to_y} l S" for x, y, to_x, to_y in lines)


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
