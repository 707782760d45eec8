"""PDFs whose spaces have arbitrary widths."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowengine_envs.documents.converters import convert
from flowengine_envs.documents.document import Document
from tests.envs.documents.written_pdf import pdf

FILES = Path(__file__).with_name("files")
GRID = "\n".join(
    [
        *(f"72 {y} m 272 {y} l S" for y in (700, 680, 660)),
        *(f"{x} 700 m {x} 660 l S" for x in (72, 172, 272)),
    ]
)
CELLS = [["Anna", "two or more"], ["Berta", "none"]]


def read(drawn: str, widths: str = " ".join(["500"] * 224)) -> Document:
    """Convert a page. By default, characters are half as wide as high."""
    return convert(
        pdf(
            b"<</Type/Catalog/Pages 2 0 R>>",
            b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R"
            b"/Resources<</Font<</F1 5 0 R>>>>>>",
            f"<</Length {len(drawn)}>>\nstream\n{drawn}\nendstream".encode(),
            f"<</Type/Font/Subtype/Type1/BaseFont/Courier/FirstChar 32/LastChar 255"
            f"/Widths[{widths}]>>".encode(),
        )
    )


def test_tables_of_ghostscript_whose_gaps_are_wide_blanks() -> None:
    document = convert((FILES / "berths.pdf").read_bytes())

    assert document.tables == [
        [
            ["Berth", "Remark", "Depth"],
            ["East", "for ships that stay for a night", "7.5"],
            ["West", "only for tugs, and not at low tide", "4"],
            ["South", "", "12"],
        ],
        [["Hours", ""], ["Office", "from eight to four"], ["Gate", "always"]],
    ]
    assert "\n\nAsk before you use one.\n\n" in document.markdown


@pytest.mark.parametrize(
    "shown",
    [
        "1 Tw (to be or not to b) Tj 90 0 Td (e) Tj",
        "1 Tw [(to be ) -100 (or not to b)] TJ 91 0 Td (e) Tj",
        '12 TL 1 0 (to be or not to b) " 90 0 Td (e) Tj',
        "12 TL 1 Tw (to be or not to b) ' 90 0 Td (e) Tj",
        "q 9 Tw Q 1 Tw (to be or not to b) Tj 0 Tw 90 0 Td (e) Tj",
    ],
    ids=["at once", "in parts", "with its spacing", "on the next line", "restored"],
)
def test_a_word_behind_wide_blanks_stays_one(shown: str) -> None:
    document = read(f"BT /F1 10 Tf 72 700 Td {shown} ET")

    assert document.markdown.endswith("\n\nto be or not to be")


@pytest.mark.parametrize(
    "rows",
    [
        "(Anna) Tj 100 0 Td (two or more) Tj -100 -20 Td (Berta) Tj 100 0 Td (none) Tj",
        "[(Anna) -8000 (two or more)] TJ 0 -20 Td [(Berta) -7500 (none)] TJ",
        "20 TL [(Anna) -8000 (two or more)] TJ T* [(Berta) -7500 (none)] TJ",
        "20 TL [(Anna) -8000 (two or m)] TJ 140 0 Td (ore) Tj -140 0 Td 75 Tw T* (Berta none) Tj",
    ],
    ids=["one by one", "with offsets", "with a line feed", "with wide blanks"],
)
def test_cells_that_are_shown_at_once_are_parted(rows: str) -> None:
    document = read(f"{GRID}\nBT /F1 10 Tf 76 685 Td {rows} ET")

    assert document.tables == [CELLS]
    assert document.markdown.endswith("| Berta | none |")


@pytest.mark.parametrize(
    "broken",
    ["(x) Tw", "1 Tw 3 Tj", "1 Tw [/a (b)] TJ", '1 (x) "', "[] TJ", "1 Tw 9 TJ"],
)
def test_broken_texts_do_not_lose_the_others(broken: str) -> None:
    document = read(f"{GRID}\nBT /F1 10 Tf 76 705 Td 1 Tw {broken} ET BT 76 720 Td (kept) Tj ET")

    assert document.markdown.count("kept") == 1


def test_words_of_a_font_without_a_blank_are_apart() -> None:
    wide = " ".join(["1100"] * 224)  # with another character in place of the space
    drawn = "BT /F1 10 Tf 72 700 Td [(to)-330(be)-60(fore)-260(n)30(oon)] TJ ET"

    assert read(drawn, wide).markdown.endswith("to before noon")
