# Shows W69
"""Headings and tables of tagged PDFs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from flowengine_documents.document import Document
from flowengine_envs.documents.converting import convert
from tests.envs.documents.written_pdf import pdf
from tests.rows import each_row

FIRST = 10
"""Object number of the first element."""


class Element(NamedTuple):
    """A structure element: its role, parent, text, and additional dictionary entries."""

    role: str
    around: int = -1
    text: str = ""
    more: str = ""


def tagged(
    elements: Sequence[Element], roles: str = "", tree: str = "", below: str = "", outline: str = ""
) -> Document:
    """Return the text converted from a page with these elements, one line for each text."""
    drawn: list[str] = []
    parents: list[str] = []
    objects: list[str] = []
    for number, (role, around, text, more) in enumerate(elements):
        kids = [FIRST + at for at, one in enumerate(elements) if one.around == number]
        if text:
            at = 700 - 20 * len(parents)
            drawn.append(
                f"/{role} <</MCID {len(parents)}>> BDC BT /F1 11 Tf 72 {at} Td ({text}) Tj ET EMC"
            )
            parents.append(f"{FIRST + number} 0 R")
        up = f"{FIRST + around} 0 R" if around >= 0 else "5 0 R"
        named = " ".join(f"{kid} 0 R" for kid in kids)
        objects.append(f"<</S/{role}/P {up}/K[{named}]{more}>>")
    content = "\n".join([*drawn, below])
    tree = tree or f"<</Nums[0 [{' '.join(parents)}]]>>"
    written = [
        f"<</Type/Catalog/Pages 2 0 R/StructTreeRoot 5 0 R{'/Outlines 8 0 R' * bool(outline)}>>",
        "<</Type/Pages/Kids[3 0 R]/Count 1>>",
        "<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R/StructParents 0"
        "/Resources<</Font<</F1 7 0 R>>>>>>",
        f"<</Length {len(content)}>>\nstream\n{content}\nendstream",
        f"<</Type/StructTreeRoot/ParentTree 6 0 R/RoleMap<<{roles}>>>>",
        tree,
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        "<</First 9 0 R/Last 9 0 R/Count 1>>",
        f"<</Title({outline})/Parent 8 0 R/Dest[3 0 R/Fit]>>",
        *objects,
    ]
    return convert(pdf(*(each.encode() for each in written)), "x.pdf")


def table(*rows: Sequence[str | tuple[str, str]]) -> list[Element]:
    """Return the elements of a table. A cell is a text, or a text and additional entries."""
    found = [Element("Table")]
    for row in rows:
        around = len(found)
        found.append(Element("TR", 0))
        for cell in row:
            text, more = (cell, "") if isinstance(cell, str) else cell
            found.append(Element("TD", around, text, more))
    return found


PLAIN = table(["Month", "Ships"], ["May", "many"], ["June", ""], ["", "few"])


def test_cells_reach_over_others() -> None:
    wide, high = "/A<</O/Table/ColSpan 2>>", "/A[<</O/Table/RowSpan 2>>]"
    rows = table([("Port", high), ("Ships", wide)], ["in", "out"], ["Wick", "a", "b"])

    assert tagged(rows).tables == [[["Port", "Ships", ""], ["", "in", "out"], ["Wick", "a", "b"]]]


def test_a_cell_after_one_that_was_left_out_stands_below_its_header() -> None:
    head = [("Item", "/ID(a)"), ("Pieces", "/ID(b)"), ("Price", "/ID(c)")]
    rows = table(head, ["rope", "two", "nine"], ["Sum", ("nine", "/A<</O/Table/Headers[(c)]>>")])

    assert tagged(rows).tables == [
        [["Item", "Pieces", "Price"], ["rope", "two", "nine"], ["Sum", "", "nine"]]
    ]


def test_headings_may_have_names_of_their_own() -> None:
    elements = [Element("Chapter", -1, "On ropes"), Element("P", -1, "Ropes are long.")]

    document = tagged(elements, roles="/Chapter/H2")

    assert document.markdown.endswith("## On ropes\n\nRopes are long.")


@each_row("outline", [False, True])
def test_headings_may_have_several_lines(outline: bool) -> None:
    lines = ["3.1 On ropes and on", "what they are", "made of", "Ropes are long", "made of"]
    role = "P" if outline else "H2"
    elements = [
        Element(role),
        *(Element("Span", 0, text) for text in lines[:3]),
        *(Element("P", -1, text) for text in lines[3:]),
    ]

    document = tagged(elements, outline=" ".join(lines[:3]) if outline else "")

    level = "#" if outline else "##"
    assert document.markdown.endswith(
        f"\n{level} 3.1 On ropes and on what they are made of\n\nRopes are long\nmade of"
    )


@each_row(
    "elements",
    [
        [Element("Table"), Element("TR", 0), Element("TD", 1, "one"), Element("P", -1, "two")],
        table(["one"], ["two"]),
        table(["one", "two"]),
        [
            *table(["one", "x"]),
            Element("P", -1, "drawn between the rows"),
            Element("TR", 0),
            Element("TD", 5, "two"),
            Element("TD", 5, "y"),
        ],
    ],
)
def test_no_text_is_lost(elements: list[Element]) -> None:
    markdown = tagged(elements).markdown

    assert "one" in markdown
    assert "two" in markdown


@each_row(
    "tree",
    [
        "<</Kids[6 0 R 6 0 R]>>",
        "<</Nums[0 6 0 R]>>",
        "<</Nums[0 [8 0 R 8 0 R]]>>",
        "<</Nums[(a) (b) 0]>>",
        "<</Nums[0 [99 0 R]]>>",
        "[]",
    ],
)
def test_tags_that_lead_nowhere_leave_plain_text(tree: str) -> None:
    assert "May" in tagged(PLAIN, tree=tree).markdown


def test_elements_around_each_other_end() -> None:
    elements = [Element("P", 1, "text"), Element("Div", 0)]

    assert tagged(elements).markdown.endswith("text")


def test_a_cell_that_claims_a_million_columns_is_text() -> None:
    rows = table([("one", "/A<</ColSpan 1000000/RowSpan 1000000>>"), "two"], ["three", "four"])

    document = tagged(rows)

    assert document.tables == []
    assert document.markdown.endswith("one\ntwo\nthree\nfour")
