"""Tokens of the text of an expression."""

from __future__ import annotations

import re
from typing import NamedTuple

_TOKEN = re.compile(
    r"""(?P<blank>[ \t\r\n\f]+|//[^\n]*)
    |(?P<string>[bB]?[rR]?[bB]?(?:\"\"\"|'''|"|'))
    |(?P<float>(?:[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?))
    |(?P<int>(?:0x[0-9a-fA-F]+|[0-9]+)[uU]?)
    |(?P<word>[A-Za-z_][A-Za-z_0-9]*)
    |(?P<quoted>`[A-Za-z0-9_.\-/ ]+`)
    |(?P<op>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,()\[\]{}])""",
    re.VERBOSE,
)


class ExpressionSyntaxError(ValueError):
    """An expression that cannot be read (code E302)."""

    def __init__(self, message: str, offset: int, length: int = 1, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        self.length = max(length, 1)
        self.hint = hint


class SyntaxToken(NamedTuple):
    """A token and its place in the text."""

    kind: str
    text: str
    start: int
    end: int


def tokens(source: str) -> list[SyntaxToken]:
    """Cut the text into tokens, with an `end` token at the end."""
    found = []
    at = 0
    while at < len(source):
        match = _TOKEN.match(source, at)
        if match is None:
            char = source[at] if source[at].isprintable() else f"U+{ord(source[at]):04X}"
            raise ExpressionSyntaxError(
                f"'{char}' means nothing here", at, 1, _hint_for(source, at)
            )
        kind = match.lastgroup or ""
        end = match.end()
        if kind == "string":
            end = _end_of_string(source, match)
        if kind != "blank":
            found.append(SyntaxToken(kind, source[at:end], at, end))
        at = end
    found.append(SyntaxToken("end", "", len(source), len(source)))
    return found


def _hint_for(source: str, at: int) -> str | None:
    """Return a hint for a character that is not part of CEL."""
    char = source[at]
    if char == "=":
        return "equality is written '=='"
    filter_ = re.match(r"\|\s*(\w+)\s*(\()?", source[at:])
    if filter_ and (filter_[2] or not source[at + filter_.end() :].strip()):
        name = filter_[1]
        written = f"x.{name}(…)" if name in {"join", "replace", "size"} else f"{name}(x)"
        return f"there are no filters: write {written}, and '||' for 'or'"
    if char in "&|":
        return f"write '{char * 2}'"
    if char == "$":
        return "'${{ }}' contains the whole expression, and names inside it have no braces"
    return None


def _end_of_string(source: str, match: re.Match[str]) -> int:
    """Return the end of the string literal whose opening quote was matched."""
    prefix = match.group().rstrip("\"'")
    quote = match.group()[len(prefix) :]
    raw = "r" in prefix.lower()
    at = match.end()
    while at < len(source):
        if source.startswith(quote, at):
            return at + len(quote)
        if source[at] == "\n" and len(quote) == 1:
            break
        at += 2 if source[at] == "\\" and not raw else 1
    raise ExpressionSyntaxError(
        "the string that starts here is not closed",
        match.start(),
        1,
        f"end it with {quote}. Inside it, a quote is written \\{quote[0]}",
    )
