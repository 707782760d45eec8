"""Files made by pandoc, weasyprint, Chromium, groff, Ghostscript and Gnumeric (`files/make.sh`)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flowengine_envs.documents.converters import convert
from flowengine_envs.documents.document import Document, PasswordRequired, WrongPassword

FILES = Path(__file__).with_name("files")
TABLE = """\
| Month | Ships | Tonnage |
| --- | --- | --- |
| January | 120 | 40,500 |
| February | 98 | 33,210 |
| March | 141 | 51,007 |"""
LINK = "[statistics office](https://stats.example.org/harbour)"


def read(name: str, password: str = "") -> Document:
    return convert((FILES / name).read_bytes(), name, password=password)


@pytest.mark.parametrize("name", ["pandoc.docx", "pandoc.html", "pandoc.epub"])
def test_the_structure_of_a_report_is_kept(name: str) -> None:
    document = read(name)

    assert document.title == "Annual Report of the Harbour"
    lines = document.markdown.split("\n")
    assert [line for line in lines if line.startswith("#")] == [
        "# Annual Report of the Harbour",
        "# Annual Report",
        "## Ships by month",
        "## What was built",
        "### Code",
    ]
    assert TABLE in document.markdown
    assert (
        f"The harbour had **a good year**. See the {LINK} for *details*, or run `harbour --help`."
        in lines
    )
    assert "1. A new crane\n2. Two warehouses\n" in document.markdown
    assert [line.strip() for line in lines if line.startswith("  ") and "- " in line] == [
        "- one for grain",
        "- one for timber",
    ]
    assert "3. A lighthouse" in lines
    assert "> The sea gives, and the sea takes." in lines
    assert "    return sum(ship.tons for ship in ships)" in lines
    assert "There are seven of them." in document.markdown
    assert "Größe, naïve, Ångström, Δ and 漢字 survive." in document.markdown
    assert document.tables == [
        [
            ["Month", "Ships", "Tonnage"],
            ["January", "120", "40,500"],
            ["February", "98", "33,210"],
            ["March", "141", "51,007"],
        ]
    ]


def test_a_notebook_is_its_text_and_code() -> None:
    document = read("pandoc.ipynb")

    assert document.markdown.startswith("# Annual Report\n\nThe harbour had **a good year**.")
    assert "| February |    98 |  33,210 |" in document.markdown


def test_results_of_code_are_shown_as_a_notebook_shows_them() -> None:
    def result(**data: str) -> dict[str, object]:
        return {"output_type": "execute_result", "data": {**data}}

    page = "<title>x</title><style>p {}</style><table><tr><th>a<th>b</tr><tr><td>1<td>2</table>"
    outputs = [
        result(**{"text/html": page, "text/plain": "   a  b\n0  1  2"}),
        result(**{"text/html": "<script>draw()</script>", "text/plain": "Plot()"}),
        result(**{"text/latex": "$x^2$", "text/plain": "x**2"}),
        result(**{"image/png": "aW1n", "text/plain": "<Figure size 640x480 with 1 Axes>"}),
        result(**{"image/png": "aW1n", "text/plain": "<a.b.Page at 0x1077fd420>"}),
        result(**{"image/png": "aW1n", "text/plain": "chart of 3 points"}),
        {"output_type": "stream", "text": [" 10%\r", " 50%\r", "100%\r\n", "done\n"]},
    ]
    cell = {"cell_type": "code", "source": "run()", "outputs": outputs}
    document = convert(json.dumps({"nbformat": 4, "cells": [cell]}).encode(), "x.ipynb")

    assert document.markdown == (
        "```python\nrun()\n```\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n\n```\nPlot()\n```\n\n$x^2$"
        "\n\n![Figure size 640x480 with 1 Axes]()\n\n![Page]()\n\n```\nchart of 3 points\n```\n\n"
        "```\n100%\ndone\n```"
    )
    assert document.tables == [[["a", "b"], ["1", "2"]]]
    assert document.title == ""


def test_slides_have_titles_lists_tables_notes_and_pictures() -> None:
    document = read("pandoc.pptx")

    assert [(part.kind, part.number, part.name) for part in document.parts] == [
        ("slide", 1, "The Harbour"),
        ("slide", 2, "Ships"),
        ("slide", 3, "Tonnage"),
        ("slide", 4, "A crane"),
    ]
    second, third = (document.markdown[part.start :] for part in document.parts[1:3])
    assert second.startswith(
        "<!-- slide 2 -->\n\n## Ships\n\n- Coming in\n    - by day\n    - by night\n"
        "- Going out, see [the chart](https://stats.example.org/chart)\n\n"
        "### Notes\n\nSay that the nights are busier.\n\n<!-- slide 3 -->"
    )
    assert third.startswith(
        "<!-- slide 3 -->\n\n## Tonnage\n\n| Month | Ships |\n| --- | --- |\n| January | 120 |"
    )
    assert "A crane at the quay" in document.markdown


def test_a_pdf_has_pages_the_headings_of_its_outline_and_links() -> None:
    document = read("weasyprint.pdf")

    assert document.title == "Annual Report of the Harbour"
    assert [(part.kind, part.number) for part in document.parts] == [("page", 1), ("page", 2)]
    assert document.markdown[document.parts[1].start :].startswith("<!-- page 2 -->")
    for heading in ("# Annual Report\n", "## Ships by month\n", "### Code\n"):
        assert f"\n{heading}" in document.markdown
    assert "| February | 98 | 33,210 |\n" in document.markdown
    assert "Links: <https://stats.example.org/harbour>" in document.markdown


def test_the_tags_of_a_pdf_say_what_is_a_heading_and_what_a_table() -> None:
    document = read("chromium.pdf")

    for heading in ("# Annual Report\n", "## Ships by month\n", "### Code\n"):
        assert f"\n{heading}" in document.markdown
    assert f"\n{TABLE}\n" in document.markdown
    assert len(document.tables) == 1


SAMPLES = Path(__file__).parents[3] / "examples" / "document_review" / "samples"


def test_what_looks_like_a_table_in_a_pdf_is_one() -> None:
    data = (SAMPLES / "invoice_nordlicht.pdf").read_bytes()  # printed by Chromium

    document = convert(data)
    assert document.tables == [
        [
            ["Leistung", "Menge", "Einzelpreis", "Betrag"],
            ["Schreibtisch, höhenverstellbar", "4", "640,00", "2.560,00"],
            ["Bürostuhl „Föhr“", "4", "315,00", "1.260,00"],
            ["Lieferung und Aufbau, Größe L", "1", "390,00", "390,00"],
            ["Gesamtbetrag", "", "", "4.210,00 EUR"],
        ]
    ]
    assert document.markdown.count("Bürostuhl") == 1


def test_a_pdf_without_an_outline_is_its_text() -> None:
    document = read("groff.pdf")

    first, second = document.markdown.split("<!-- page 2 -->")
    assert "No ship goes faster than six knots inside the pier." in first
    assert "40 crowns" in second


def test_a_scan_says_that_it_has_no_text() -> None:
    document = read("scan.pdf")

    assert document.notes == ["no text on pages 1-2. Images there: 2, so it may be a scan"]


def test_an_encrypted_pdf_needs_its_password() -> None:
    assert "six knots" in read("locked.pdf", "harbour").markdown
    assert "six knots" in read("locked.pdf", "owner").markdown
    with pytest.raises(PasswordRequired, match="Pass its password"):
        read("locked.pdf")
    with pytest.raises(WrongPassword) as caught:
        read("locked.pdf", "hunter2")
    assert "hunter2" not in str(caught.value)


def test_a_sheet_is_a_table() -> None:
    document = read("gnumeric.xlsx")

    assert document.markdown == (
        "<!-- sheet 1 -->\n\n## ships.csv\n\n| Month | Ships | Tonnage | Day |\n"
        "| --- | --- | --- | --- |\n| January | 120 | 40500.5 | 2026-01-31 |\n"
        "| February | 98 | 33210 | 2026-02-28 |\n| Total | 218 | 73710.5 |  |"
    )
    assert read("ships.csv").markdown == document.markdown.partition("csv\n\n")[2]


def test_an_image_says_why_it_is_not_described() -> None:
    document = read("crane.png")

    assert document.markdown == "Image: PNG, 16 x 8 pixels"
    assert document.notes == [
        "there is no description of the image: it takes a vision model, and none is used here"
    ]
