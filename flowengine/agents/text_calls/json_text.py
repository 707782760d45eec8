"""A parser for JSON as models write it, possibly malformed.

It repairs only text with a single possible meaning, by writing it as JSON. Ambiguous or truncated
text is rejected with a reason that a model understands.
"""

from __future__ import annotations

import re
from json import JSONDecodeError, JSONDecoder
from math import isfinite
from typing import Any, NamedTuple, NoReturn

MAX_DEPTH = 100
_LONGEST_NUMBER = 400
_DOUBLE, _SINGLE = "\u201c\u201d\u201e\u201f\uff02", "\u2018\u2019\u201a\u201b\uff07"
"""Typographic quotation marks."""
QUOTES = f"\"'{_DOUBLE}{_SINGLE}"
"""Marks around texts and names, as models write them."""
_TOKEN = re.compile(
    r'"[^"\\]*(?:\\.[^"\\]*)*"'
    r"|'[^'\\]*(?:\\.[^'\\]*)*'"
    rf"|[{_DOUBLE}][^{_DOUBLE}\"\\]*(?:\\.[^{_DOUBLE}\"\\]*)*[{_DOUBLE}]"
    rf"|[{_SINGLE}][^{_SINGLE}'\\]*(?:\\.[^{_SINGLE}'\\]*)*[{_SINGLE}]"
    rf"|[{QUOTES}\[\]{{}}]|,(?=[ \t\r\n]*[\]}}])|[A-Za-z]\w*",
    re.DOTALL,
)
"""Everything that may have to be repaired. A single quotation mark begins a text without an end."""
STRAIGHT = {ord(mark): plain for marks, plain in ((_DOUBLE, '"'), (_SINGLE, "'")) for mark in marks}
"""Typographic quotation marks → those of JSON and Python, for `str.translate`."""
_ESCAPABLE = frozenset(QUOTES) - {'"'}
_ESCAPE = re.compile(r"\\.|\"", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f]")
_OF_PYTHON = {"True": "true", "False": "false", "None": "null"}
_CLOSINGS = {"{": "}", "[": "]"}


class JsonText(NamedTuple):
    """A parsed value."""

    value: Any
    rest: str
    """The text after the value."""
    repairs: tuple[str, ...]


class BrokenJson(Exception):
    """No value can be parsed, or the text is ambiguous.

    Attributes:
        reason: The reason, for the model.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def read_json(text: str, *, complete: bool = True) -> JsonText:
    """Parse the value at the start of a text.

    Args:
        text: The text.
        complete: Whether the text ended by itself. If so, open brackets at its end are closed.

    Raises:
        BrokenJson: No value can be parsed.
    """
    writer = _Writer(text, complete)
    written, rest = writer.written()
    try:
        value, end = _DECODER.raw_decode(written)
    except JSONDecodeError as error:
        raise BrokenJson(_reason(error)) from None
    return JsonText(value, written[end:] + rest, tuple(dict.fromkeys(writer.repairs)))


class _Writer:
    """Writes the value at the start of a text as JSON, as far as it has to be repaired."""

    def __init__(self, text: str, complete: bool) -> None:
        self.text = text
        self.complete = complete
        self.repairs: list[str] = []
        self._closings: list[str] = []
        """Closing brackets of the open brackets."""

    def written(self) -> tuple[str, str]:
        """Return the value, and the text after it."""
        text, at, parts = self.text.lstrip(" \t\r\n"), 0, []
        for token in _TOKEN.finditer(text):
            parts += [text[at : token.start()], self._token(token[0])]
            at = token.end()
            if not self._closings:
                return "".join(parts), text[at:]
        parts.append(text[at:])
        return "".join([*parts, *self._missing(text)]), ""

    def _token(self, token: str) -> str:
        if token in _CLOSINGS:
            self._closings.append(_CLOSINGS[token])
            if len(self._closings) > MAX_DEPTH:
                raise BrokenJson(f"it is nested more than {MAX_DEPTH} levels deep")
        elif token in _CLOSINGS.values():
            expected = self._closings.pop() if self._closings else "a value"
            if token != expected:
                raise BrokenJson(f"{expected} should stand before '{token}'")
        elif token == ",":
            self.repairs.append("a comma before a closing bracket was left out")
            return ""
        elif len(token) == 1 and token in QUOTES:
            raise BrokenJson("a text in quotes has no end")
        elif token[0] in QUOTES:
            return self._string(token)
        elif token in _OF_PYTHON:
            self.repairs.append("True, False and None were read as true, false and null")
            return _OF_PYTHON[token]
        return token

    def _string(self, token: str) -> str:
        inner = token[1:-1]
        if token[0] == "'":
            self.repairs.append("single quotes were read as double quotes")
        elif token[0] != '"':
            self.repairs.append("typographic quotation marks were read as double quotes")
        elif "\\'" in _ESCAPE.findall(inner):
            self.repairs.append("\\' was read as '")
        if _CONTROL.search(inner):
            self.repairs.append("a line feed or tab inside a text was kept unchanged")
        return f'"{_ESCAPE.sub(_as_in_json, inner)}"'

    def _missing(self, text: str) -> list[str]:
        """Return the closing brackets that are missing at the end of the text."""
        if not self._closings:
            return []
        if not self.complete:
            raise BrokenJson("it ends before its last bracket")
        if text.rstrip()[-1] in _CLOSINGS:
            raise BrokenJson("it ends where a value should stand")
        self.repairs.append("a missing closing bracket was added")
        return self._closings[::-1]


def _as_in_json(match: re.Match[str]) -> str:
    """Return an escape sequence or quote in the form required between double quotes."""
    if match[0][1:] in _ESCAPABLE:
        return match[0][1:]
    return '\\"' if match[0] == '"' else match[0]


def _reason(error: JSONDecodeError) -> str:
    if error.msg.startswith("Invalid \\"):
        return "a text has a wrong escape: a backslash is written \\\\"
    following = error.doc[error.pos :].lstrip()
    return f"{error.msg} before {_shown(following) if following else 'its end'}"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for key, value in pairs:
        if key in members:
            raise BrokenJson(f"{_shown(key)} is given twice")
        members[key] = value
    return members


def _integer(written: str) -> int:
    if len(written) > _LONGEST_NUMBER:
        raise BrokenJson(f"a number has {len(written)} digits")
    return int(written)


def _float(written: str) -> float:
    number = float(written)
    if not isfinite(number):
        raise BrokenJson(f"{_shown(written)} is too large for a number")
    return number


def _no_number(word: str) -> NoReturn:
    raise BrokenJson(f"{word} is not a JSON number")


def _shown(text: str) -> str:
    short = text if len(text) <= 40 else f"{text[:40]}…"
    return f"'{short}'"


_DECODER = JSONDecoder(
    object_pairs_hook=_object,
    parse_int=_integer,
    parse_float=_float,
    parse_constant=_no_number,
    strict=False,
)
