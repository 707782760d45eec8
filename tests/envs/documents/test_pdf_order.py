"""PDFs whose drawing order is not the reading order, and headings found by font size."""

from __future__ import annotations

import time

from flowengine_envs.documents.converters import convert
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


def test_company_title_and_total_that_were_drawn_last_are_at_their_places() -> None:
    text = read(
        shown(72, 560, "Crane hire, two days at the northern quay"),
        shown(72, 545, "Berth for a tug"),
        shown(72, 80, "Thank you for your business."),
        shown(430, 560, "1,200.00"),
        shown(430, 545, "80.00"),
        shown(330, 500, "Total"),
        shown(430, 500, "1,280.00"),
        shown(72, 740, "Nordic Cranes", 20),
        shown(72, 700, "Invoice", 14),
        shown(430, 740, "Quay 4"),
        shown(430, 728, "1234 Port"),
    )

    parts = ["Nordic Cranes", "Quay 4", "1234 Port", "Invoice", "Crane hire", "1,200.00", "Berth"]
    parts += ["80.00", "Total", "1,280.00", "Thank you"]
    assert [text.index(part) for part in parts] == sorted(text.index(part) for part in parts)
    assert text.startswith("# Nordic Cranes\n")


def test_a_label_and_its_value_are_one_line_whenever_they_were_drawn() -> None:
    text = read(
        *(shown(72, 700 - 20 * at, name) for at, name in enumerate(["Name:", "Town:", "Of age:"])),
        shown(72, 760, "Application for a berth"),
        *(shown(180, 700 - 20 * at, name) for at, name in enumerate(["Ana", "Porto", "yes"])),
    )

    assert text == "Application for a berth\n\nName:  Ana\nTown:  Porto\nOf age:  yes"


def test_marks_of_lists_stand_before_their_items() -> None:
    items = ["A crane", "Two houses of stone that are used for grain", "A lighthouse at the end"]
    text = read(
        *(shown(100, 700 - 12 * at, item) for at, item in enumerate(items)),
        shown(72, 600, "That was all."),
        *(shown(80, 700 - 12 * at, f"{at + 1}.") for at in range(3)),
    )

    assert text.splitlines() == [
        *(f"{number}. {item}" for number, item in enumerate(items, 1)),
        "That was all.",
    ]


def test_columns_stay_columns_though_header_and_footer_were_drawn_last() -> None:
    text = read(
        *column(72, "a"),
        *column(320, "b"),
        shown(72, 760, "Journal of the harbour and of everything that is moored in it, volume top"),
        shown(290, 40, "bottom"),
    )

    expected = ["top", *(f"a{at}" for at in range(8)), *(f"b{at}" for at in range(8)), "bottom"]
    assert marks(text) == expected


def test_what_was_drawn_in_its_order_is_as_it_was_drawn() -> None:
    text = read(shown(72, 760, "One: two"), *column(72, "a"), shown(320, 600, "beside"))

    assert text == "\n".join(["One: two", *(f"{COLUMN}, a{at}" for at in range(8)), "beside"])


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


def test_a_page_of_one_size_or_mostly_large_has_no_headings() -> None:
    assert "#" not in read(*column(72, "a"))
    assert "#" not in read(shown(72, 700, "Large words of a poster", 30), shown(72, 600, "small"))


def test_a_page_of_very_many_lines_ends() -> None:
    drawn = [shown(at * 37 % 500, at * 59 % 700, f"n{at}") for at in range(590)]
    began = time.process_time()
    text = read(*drawn)

    assert time.process_time() - began < 30
    assert sorted(text.split()) == sorted(f"n{at}" for at in range(590))
