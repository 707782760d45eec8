# Shows F14
"""F14: a single expression keeps its type, surrounding text makes it text, `$${{` escapes."""

from __future__ import annotations

import pytest

from flowengine.flow.expressions.template import Piece, TemplateError, split_text
from tests.rows import each_row


@each_row(
    ("text", "parts"),
    [
        ("", []),
        ("plain", ["plain"]),
        ("${{ inputs.x }}", [Piece("inputs.x", 4)]),
        ("  ${{inputs.x}}\n", [Piece("inputs.x", 5)]),
        ("a ${{ x }}", ["a ", Piece("x", 6)]),
        ("${{ x }}${{ y }}", [Piece("x", 4), Piece("y", 12)]),
        ("${{ x }} ${{ y }}", [Piece("x", 4), " ", Piece("y", 13)]),
        ("$${{ x }}", ["${{ x }}"]),
        ("a $${{ b }} ${{ c }}", ["a ${{ b }} ", Piece("c", 16)]),
        ("$$${{ x }}", ["$${{ x }}"]),
        ("$ {{ x }} $x }}", ["$ {{ x }} $x }}"]),
        ("${{ {'a': {'b': 1}} }}", [Piece("{'a': {'b': 1}}", 4)]),
        ("${{ {'a':{}}}}", [Piece("{'a':{}}", 4)]),
        ("${{ '}}' }}!", [Piece("'}}'", 4), "!"]),
        ('${{ "\\"}}" }}!', [Piece('"\\"}}"', 4), "!"]),
        ("${{ r'\\' }}'", [Piece("r'\\'", 4), "'"]),
        ("${{ '''it's }}''' }}.", [Piece("'''it's }}'''", 4), "."]),
        ("${{ {'a': '}'} }}", [Piece("{'a': '}'}", 4)]),
        ("${{ x // it's }} y", [Piece("x // it's", 4), " y"]),
        ("${{ x // it's\n + 1 }}", [Piece("x // it's\n + 1", 4)]),
    ],
)
def test_a_text_is_split_into_its_parts(text: str, parts: list[str | Piece]) -> None:
    assert list(split_text(text)) == parts


@each_row("text", ["${{ x }}", "a ${{ x + '}}' }} b", "  ${{\n  x\n}}"])
def test_a_piece_says_where_it_stands(text: str) -> None:
    (piece,) = [part for part in split_text(text) if isinstance(part, Piece)]
    assert text[piece.offset :].startswith(piece.source)


@each_row(
    ("text", "offset", "message"),
    [
        ("a ${{ x", 2, "is not closed"),
        ("${{ x }", 0, "is not closed"),
        ("${{ {'a': 1 }}", 0, "is not closed"),
        ("a ${{ }}", 2, "no expression"),
        ("${{}}", 0, "no expression"),
    ],
)
def test_what_does_not_end_or_is_empty_is_refused(text: str, offset: int, message: str) -> None:
    with pytest.raises(TemplateError, match=message) as caught:
        split_text(text)
    assert (caught.value.code, caught.value.offset) == ("E302", offset)
    assert "$${{" in caught.value.hint
