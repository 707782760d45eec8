"""Numbers of the items of HTML lists, as browsers show them.

Source: HTML Living Standard, 4.4.5 (`ol`) and 4.4.8 (`li`).
"""

from __future__ import annotations

import re
from typing import Any

from flowengine_envs.documents.word_styles import numbered

_INTEGER = re.compile(r"\s*([+-]?\d{1,8})(?!\d)")
_STYLE = re.compile(r"list-style(?:-type)?\s*:\s*[^;]*?\b((?:lower|upper)-[a-z]+)", re.IGNORECASE)
_FORMATS = {
    **{"a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman"},
    **dict.fromkeys(("lower-alpha", "lower-latin"), "lowerLetter"),
    **dict.fromkeys(("upper-alpha", "upper-latin"), "upperLetter"),
    **{"lower-roman": "lowerRoman", "upper-roman": "upperRoman"},
}
_LETTERS = frozenset(("lowerLetter", "upperLetter"))
_LAST_LETTER = 26
_BULLET = ["- ", "  "]


class HtmlList:
    """A list whose items are being read.

    Args:
        element: The list.
    """

    def __init__(self, element: Any) -> None:
        self._is_numbered = element.tag == "ol"
        if not self._is_numbered:
            return
        self._format = _format_of(element)
        self._step = -1 if "reversed" in element.attrib else 1
        items = len(element.findall("li")) if self._step < 0 else 1
        self._next = _integer(element.get("start", ""), items)

    def marks(self, item: Any) -> list[str]:
        """Return the marks of the first line and of further lines of the next item."""
        if not self._is_numbered:
            return [*_BULLET]
        number = _integer(item.get("value", ""), self._next)
        self._next = number + self._step
        format = _format_of(item) or self._format
        if format in _LETTERS and number > _LAST_LETTER:
            format = ""
        text = numbered(number, format)
        if number < 0 or not text.isdigit():  # Markdown has no such numbers
            return [f"- {text}. ", "  "]
        return [f"{text}. ", " " * (len(text) + 2)]


def _integer(text: str, otherwise: int) -> int:
    found = _INTEGER.match(text)
    return int(found[1]) if found else otherwise


def _format_of(element: Any) -> str:
    style = _STYLE.search(element.get("style", ""))
    return _FORMATS.get(style[1].lower() if style else element.get("type", ""), "")
