"""A parser for JSON as models write it: embedded in other text, and possibly malformed.

It repairs only text with a single possible meaning. Ambiguous or truncated text is rejected with a
reason that a model understands.
"""

from __future__ import annotations

import re
from json import JSONDecodeError, loads
from math import isfinite
from typing import Any, NamedTuple

MAX_DEPTH = 100
_LONGEST_NUMBER = 400
_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.])")
_WORD = re.compile(r"-?[A-Za-z]\w{0,9}")
_STRINGS = {
    '"': re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL),
    "'": re.compile(r"'[^'\\]*(?:\\.[^'\\]*)*'", re.DOTALL),
}
_ESCAPE = re.compile(r"\\.|\"", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f]")
_WORDS = {"true": True, "false": False, "null": None}
_OF_PYTHON = {"True": True, "False": False, "None": None}


class JsonText(NamedTuple):
    """A parsed value."""

    value: Any
    end: int
    repairs: tuple[str, ...]


class BrokenJson(Exception):
    """No value can be parsed, or the text is ambiguous.

    Attributes:
        reason: The reason, for the model.
        cut: Whether the text ended before the value did.
    """

    def __init__(self, reason: str, *, cut: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.cut = cut


def read_json(
    text: str, at: int = 0, *, complete: bool = True, ends: re.Pattern[str] | None = None
) -> JsonText:
    """Parse one value.

    Args:
        text: The whole text.
        at: Start of the value. Preceding blanks are skipped.
        complete: Whether the text ended by itself. If so, open brackets at its end are closed.
        ends: Pattern that ends the value like the end of the text, such as an enclosing tag.

    Raises:
        BrokenJson: No value can be parsed.
    """
    reader = _Reader(text, complete, ends)
    value, end = reader.value(reader.skip(at), 0)
    return JsonText(value, end, tuple(dict.fromkeys(reader.repairs)))


class _Reader:
    """Reads a text from left to right, and each part only once."""

    def __init__(self, text: str, complete: bool, ends: re.Pattern[str] | None) -> None:
        self.text = text
        self.complete = complete
        self.ends = ends
        self.repairs: list[str] = []

    def skip(self, at: int) -> int:
        blank = _SPACE.match(self.text, at)
        return blank.end() if blank else at

    def value(self, at: int, depth: int) -> tuple[Any, int]:
        match self.text[at : at + 1]:
            case "":
                raise BrokenJson("it ends where a value should stand", cut=True)
            case "{" | "[" if depth == MAX_DEPTH:
                raise BrokenJson(f"it is nested more than {MAX_DEPTH} levels deep")
            case "{":
                return self._object(at, depth)
            case "[":
                return self._list(at, depth)
            case '"' | "'":
                return self._string(at)
        return self._number_or_word(at)

    def _object(self, at: int, depth: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        at = self.skip(at + 1)
        if self.text[at : at + 1] == "}":
            return found, at + 1
        closed = False
        while not closed:
            if self.text[at : at + 1] not in {'"', "'"}:
                raise self._refusal(at, "a name in quotes")
            key, at = self._string(at)
            at = self.skip(at)
            if self.text[at : at + 1] != ":":
                raise self._refusal(at, "':'")
            if key in found:
                raise BrokenJson(f"{_shown(key)} is given twice")
            found[key], at = self.value(self.skip(at + 1), depth + 1)
            at, closed = self._next(self.skip(at), "}")
        return found, at

    def _list(self, at: int, depth: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        at = self.skip(at + 1)
        if self.text[at : at + 1] == "]":
            return found, at + 1
        closed = False
        while not closed:
            item, at = self.value(at, depth + 1)
            found.append(item)
            at, closed = self._next(self.skip(at), "]")
        return found, at

    def _next(self, at: int, bracket: str) -> tuple[int, bool]:
        """Return the place after an item, and whether the item was the last one."""
        if self.text[at : at + 1] == bracket:
            return at + 1, True
        if self.text[at : at + 1] == ",":
            at = self.skip(at + 1)
            if self.text[at : at + 1] != bracket:
                return at, False
            self.repairs.append("a comma before a closing bracket was left out")
            return at + 1, True
        if not self._is_end(at):
            raise self._refusal(at, f"',' or '{bracket}'")
        if at >= len(self.text) and not self.complete:
            raise BrokenJson("it ends before its last bracket", cut=True)
        self.repairs.append("a missing closing bracket was added")
        return at, True

    def _is_end(self, at: int) -> bool:
        return at >= len(self.text) or bool(self.ends and self.ends.match(self.text, at))

    def _string(self, at: int) -> tuple[str, int]:
        quote = self.text[at]
        match = _STRINGS[quote].match(self.text, at)
        if match is None:
            raise BrokenJson("a text in quotes has no end", cut=True)
        inner = match[0][1:-1]
        if quote == "'":
            self.repairs.append("single quotes were read as double quotes")
        if "\\" not in inner:
            self._note_controls(inner)
            return inner, match.end()
        escaped = _ESCAPE.sub(_as_in_json, inner)
        try:
            text: str = loads(f'"{escaped}"', strict=False)
        except JSONDecodeError:
            reason = "a text has a wrong escape; a backslash is written \\\\"
            raise BrokenJson(reason) from None
        self._note_controls(inner)
        if quote == '"' and escaped != inner:
            self.repairs.append("\\' was read as '")
        return text, match.end()

    def _note_controls(self, inner: str) -> None:
        if _CONTROL.search(inner):
            self.repairs.append("a line feed or tab inside a text was kept as it is")

    def _number_or_word(self, at: int) -> tuple[Any, int]:
        if number := _NUMBER.match(self.text, at):
            if number.end() == len(self.text) and not self.complete:
                raise BrokenJson("it ends inside a number", cut=True)
            return _number(number[0]), number.end()
        word = _WORD.match(self.text, at)
        if word and word[0] in _WORDS:
            return _WORDS[word[0]], word.end()
        if word and word[0] in _OF_PYTHON:
            self.repairs.append("True, False and None were read as true, false and null")
            return _OF_PYTHON[word[0]], word.end()
        if word and word[0].lstrip("-") in {"NaN", "Infinity", "nan", "inf", "Inf"}:
            raise BrokenJson(f"{word[0]} is not a JSON number")
        if self._is_end(at):
            raise BrokenJson("it ends where a value should stand", cut=True)
        raise BrokenJson(f"{_shown(self.text[at : at + 12])} is not a JSON value")

    def _refusal(self, at: int, wanted: str) -> BrokenJson:
        if self._is_end(at):
            return BrokenJson(f"it ends where {wanted} should stand", cut=True)
        return BrokenJson(f"{wanted} should stand before {_shown(self.text[at : at + 12])}")


def _as_in_json(match: re.Match[str]) -> str:
    """Return an escape sequence or quote in the form required between double quotes."""
    return {"\\'": "'", '"': '\\"'}.get(match[0], match[0])


def _number(written: str) -> int | float:
    if len(written) > _LONGEST_NUMBER:
        raise BrokenJson(f"a number has {len(written)} digits")
    if written.lstrip("-").isdigit():
        return int(written)
    number = float(written)
    if not isfinite(number):
        raise BrokenJson(f"{_shown(written)} is too large for a number")
    return number


def _shown(text: str) -> str:
    short = text if len(text) <= 40 else f"{text[:40]}…"
    return f"'{short}'"
