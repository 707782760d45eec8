"""Text with expressions in it, and the boundaries of each `${{ }}`."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

_OPEN = re.compile(r"\$?\$\{\{")
_STRING = re.compile(
    r"""[bB]?[rR][bB]?(?:\"\"\"[\s\S]*?\"\"\"|'''[\s\S]*?'''|"[^"\n]*"|'[^'\n]*')"""
    r"""|\"\"\"(?:\\[\s\S]|[^\\])*?\"\"\"|'''(?:\\[\s\S]|[^\\])*?'''"""
    r"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'"""
)
_WORD = re.compile(r"[A-Za-z_0-9]+")


class Piece(NamedTuple):
    """One expression of a text."""

    source: str
    """The expression, without blanks around it."""
    offset: int
    """Its beginning in the text."""


class TemplateError(ValueError):
    """A text that cannot be split (code E302).

    Args:
        message: The problem.
        offset: Its position in the text.
        length: Number of characters.
        hint: The remedy.
    """

    def __init__(self, message: str, offset: int, length: int, hint: str) -> None:
        super().__init__(message)
        self.code = "E302"
        self.message = message
        self.offset = offset
        self.length = length
        self.hint = hint


@lru_cache(maxsize=2048)
def split_text(text: str) -> tuple[str | Piece, ...]:
    """Split a text into literal parts and expressions.

    A text that is exactly one expression, apart from surrounding blanks, is returned as a single
    `Piece`: it has that expression's value and type. `$${{` stands for a literal `${{`.

    Args:
        text: The text, as returned by the YAML reader.

    Returns:
        Texts and pieces in order, without adjacent texts or empty texts. Empty for "".

    Raises:
        TemplateError: An expression does not end, or is empty.
    """
    parts: list[str | Piece] = []
    literal = ""
    at = 0
    while match := _OPEN.search(text, at):
        literal += text[at : match.start()]
        if match.group() == "$${{":
            literal += "${{"
            at = match.end()
            continue
        end = _end_of_expression(text, match.start())
        inside = text[match.end() : end]
        source = inside.strip()
        if not source:
            raise TemplateError(
                "there is no expression between '${{' and '}}'",
                match.start(),
                end + 2 - match.start(),
                "write '$${{' for the characters themselves",
            )
        if literal:
            parts.append(literal)
        parts.append(Piece(source, match.end() + inside.index(source)))
        literal = ""
        at = end + 2
    literal += text[at:]
    if literal:
        parts.append(literal)
    pieces = [part for part in parts if isinstance(part, Piece)]
    if len(pieces) == 1 and all(isinstance(part, Piece) or not part.strip() for part in parts):
        return (pieces[0],)
    return tuple(parts)


def _end_of_expression(text: str, start: int) -> int:
    """Return the position of the `}}` that ends the expression beginning with `${{` at `start`."""
    at = start + 3
    depth = 0
    while at < len(text):
        char = text[at]
        if char in "\"'rRbB":
            match = _STRING.match(text, at)
            if match is None and char not in "\"'":
                match = _WORD.match(text, at)
            at = match.end() if match else at + 1
        elif char.isalnum() or char == "_":
            at += len((_WORD.match(text, at) or [char])[0])
        elif text.startswith("//", at):
            line = text.find("\n", at)
            close = text.find("}}", at)
            at = line if line >= 0 and (close < 0 or line < close) else close
            if at < 0:
                break
        elif char == "{":
            depth += 1
            at += 1
        elif char == "}" and depth:
            depth -= 1
            at += 1
        elif text.startswith("}}", at):
            return at
        else:
            at += 1
    raise TemplateError(
        "the expression that starts here is not closed",
        start,
        3,
        "end it with '}}', or write '$${{' for the characters themselves",
    )
