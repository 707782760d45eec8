"""PDFs whose drawing order is not the reading order, and headings found by font size."""

from __future__ import annotations

import time

from flowengine_envs.documents.converting import convert
from tests.envs.documents.written_pdf import made_pdf

COLUMN = "Cranes of the quay are inspected twice a year"


def shown(x: int, y: int, text: str, size: int = 10) -> bytes:
    return f"BT /F1 {size} Tf {x} {y} Td ({text}) Tj ET".encode()


def read(*drawn: bytes) -> str:
    """Return the text converted from a page, without the first line."""
    document = convert(made_pdf([b"\n".join(drawn)]))
    return document.markdown.partition("-->")[2].strip()


def column(x: int, mark: str, top: int = 700) -> list[bytes]:
    return [shown(x, top - 12 * at, f"{COLUMN}, {mark}{at}") for at in range(8)]


def marks(text: str) -> list[str]:
    return [line.rpartition(" ")[2] for line in text.splitlines() if line.strip()]


def test_columns_stay_columns_though_header_and_footer_were_drawn_last() -> None:
    text = read(
        *column(72, "a"),
        *column(320, "b"),
        shown(72, 760, "Journal of the harbour and of everything that is moored in it, volume top"),
        shown(290, 40, "bottom"),
    )

    expected = ["top", *(f"a{at}" for at in range(8)), *(f"b{at}" for at in range(8)), "bottom"]
    assert marks(text) == expected


def test_large_lines_are_headings_if_there_are_no_tags() -> None:
    text = read(
        shown(300, 790, "Harbour office", 12),
        shown(72, 760, "The inspection of", 18),
        shown(72, 738, "cranes", 18),
        *column(72, "a"),
        shown(72, 590, "Results", 14),
        *column(72, "b", 570),
        shown(72, 470, "Measures", 12),
        *column(72, "c", 456),
        shown(500, 30, "Page one", 12),
        shown(72, 300, "3,200.00", 18),
    )

    lines = text.splitlines()
    assert [line for line in lines if line.startswith("#")] == [
        "# The inspection of cranes",
        "## Results",
        "### Measures",
    ]
    assert {"Harbour office", "Page one", "3,200.00"} <= set(lines)


def test_a_page_of_very_many_lines_ends() -> None:
    drawn = [shown(at * 37 % 500, at * 59 % 700, f"n{at}") for at in range(590)]
    began = time.process_time()
    text = read(*drawn)

    assert time.process_time() - began < 30
    assert sorted(text.split()) == sorted(f"n{at}" for at in range(590))
