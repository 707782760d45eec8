"""Nesting of the items of Word lists."""

from __future__ import annotations

from typing import Any

import docx
import pytest
from docx.oxml import parse_xml

from tests.envs.documents.test_office_files import W, level, put, read


def lists(document: Any, *numberings: str) -> None:
    """Add numberings, each with a list of its own: 80, 81, …"""
    root = document.part.numbering_part.element
    for id, levels in enumerate(numberings, 80):
        xml = f'<w:abstractNum {W} w:abstractNumId="{id}">{levels}</w:abstractNum>'
        root.insert(0, parse_xml(xml))
        inner = f'<w:abstractNumId w:val="{id}"/>'
        root.append(parse_xml(f'<w:num {W} w:numId="{id}">{inner}</w:num>'))


def at(left: int, hanging: int = 360) -> str:
    return f'<w:pPr><w:ind w:left="{left}" w:hanging="{hanging}"/></w:pPr>'


def indented(indent: int, format: str = "decimal", ilvl: int = 0) -> str:
    made = level(ilvl, format, f"%{ilvl + 1}." if format == "decimal" else "o")
    return made.replace("</w:lvl>", f"{at(indent)}</w:lvl>")


@pytest.mark.parametrize(
    ("numberings", "items", "markdown"),
    [
        pytest.param(
            [indented(360), indented(1080), indented(1080, "bullet")],
            [(80, 0), (81, 0), (81, 0), (80, 0), (82, 0), (80, 0)],
            "1. 0\n    1. 1\n    2. 2\n2. 3\n    - 4\n3. 5",
            id="sub-lists with a numbering of their own",
        ),
        pytest.param(
            [indented(360) + indented(1080, ilvl=1), indented(2000), indented(1080, "bullet", 1)],
            [(80, 0), (80, 1), (81, 0), (82, 1), (80, 1), (80, 0)],
            "1. 0\n    1. 1\n        1. 2\n    - 3\n    2. 4\n2. 5",
            id="levels of one list around another",
        ),
        pytest.param(
            [level(0, "decimal", "%1."), level(0, "bullet", "o") + level(1, "bullet", "o")],
            [(80, 0), (81, 1), (81, 0)],
            "1. 0\n    - 1\n- 2",
            id="indents that are unknown",
        ),
    ],
)
def test_items_of_different_lists_are_nested_by_their_indent(
    numberings: list[str], items: list[tuple[int, int]], markdown: str
) -> None:
    document = docx.Document()
    lists(document, *numberings)
    for number, (list_, ilvl) in enumerate(items):
        put(document, list_, ilvl, str(number))

    assert read(document).markdown == markdown


def test_indents_of_paragraphs_and_styles_count() -> None:
    document = docx.Document()
    lists(document, indented(360), indented(360), indented(360, "bullet"))
    style = document.styles.add_style("Inner", 1)
    numbered = f'<w:pPr {W}><w:numPr><w:numId w:val="82"/></w:numPr><w:ind w:left="900"/></w:pPr>'
    style.element.append(parse_xml(numbered))
    put(document, 80, 0, "outer")
    put(document, 81, 0, "moved")
    moved = document.paragraphs[-1].paragraph_format
    moved.left_indent = 900 * 635
    document.add_paragraph("styled", "Inner")
    put(document, 81, 0, "back")

    assert read(document).markdown == "1. outer\n    1. moved\n    - styled\n2. back"
