"""What the styles and lists of a Word document make of a paragraph."""

from __future__ import annotations

from typing import Any, NamedTuple

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_LONGEST_CHAIN = 20
_CODE = {"code", "source code", "verbatim char", "html preformatted", "html code", "macro text"}
_BULLETS = {"bullet", "none"}


class Style(NamedTuple):
    """What a paragraph is by its style."""

    heading: int = 0
    """Its level; 0: it is none."""
    is_quote: bool = False
    is_code: bool = False
    list: str = ""
    """The list that the style belongs to."""
    level: int = 0


class Place(NamedTuple):
    """Where a paragraph stands in a list."""

    list: str
    level: int


class Styles:
    """The styles of a document.

    Args:
        root: Its part of styles, if it has one.
    """

    def __init__(self, root: Any) -> None:
        styles = () if root is None else root.iterchildren(f"{W}style")
        self._styles = {style.get(f"{W}styleId", ""): style for style in styles}
        self._known: dict[str, Style] = {}

    def of(self, paragraph: Any) -> Style:
        """Return the style of a paragraph, with what the paragraph says itself."""
        properties = paragraph.find(f"{W}pPr")
        if properties is None:
            return Style()
        style = self._known_style(_value(properties, "pStyle"))
        outline = _value(properties, "outlineLvl")
        if outline.isdigit() and int(outline) < 9:
            return style._replace(heading=int(outline) + 1)
        return style

    def is_code(self, look: Any) -> bool:
        """Return whether a run has the style of code."""
        named = "" if look is None else _value(look, "rStyle")
        return bool(named) and self._known_style(named).is_code

    def _known_style(self, id: str) -> Style:
        return self._known.get(id) or self._known.setdefault(id, self._read(id))

    def _read(self, id: str) -> Style:
        """Return what a style says; what it leaves open is said by those it is based on."""
        heading, is_quote, is_code, list_, level = 0, False, False, "", 0
        for _ in range(_LONGEST_CHAIN):
            style = self._styles.get(id)
            if style is None:
                break
            name = _value(style, "name").lower()
            heading = heading or _heading(name, style.find(f"{W}pPr"))
            is_quote = is_quote or name in {"quote", "intense quote", "block text"}
            is_code = is_code or name in _CODE
            numbered = style.find(f"{W}pPr/{W}numPr")
            if numbered is not None and not list_:
                list_, level = _value(numbered, "numId"), _number(_value(numbered, "ilvl"))
            id = _value(style, "basedOn")
        return Style(heading, is_quote, is_code, list_, level)


class Numbering:
    """The lists of a document, and how far each has been counted.

    Args:
        root: Its part of numberings, if it has one.
    """

    def __init__(self, root: Any) -> None:
        self._formats: dict[str, dict[int, str]] = {}
        self._starts: dict[str, dict[int, int]] = {}
        self._counts: dict[str, dict[int, int]] = {}
        if root is not None:
            self._read(root)

    def _read(self, root: Any) -> None:
        abstract = {
            each.get(f"{W}abstractNumId"): each for each in root.iterchildren(f"{W}abstractNum")
        }
        for each in root.iterchildren(f"{W}num"):
            described = abstract.get(_value(each, "abstractNumId"))
            levels = () if described is None else described.iterchildren(f"{W}lvl")
            id = each.get(f"{W}numId", "")
            self._formats[id], self._starts[id] = {}, {}
            for level in levels:
                at = _number(level.get(f"{W}ilvl", "0"))
                self._formats[id][at] = _value(level, "numFmt")
                self._starts[id][at] = _number(_value(level, "start") or "1")

    def place(self, paragraph: Any, style: Style) -> Place | None:
        """Return where a paragraph stands in a list, if it is in one."""
        numbered = paragraph.find(f"{W}pPr/{W}numPr")
        if numbered is None:
            return Place(style.list, style.level) if style.list not in {"", "0"} else None
        id = _value(numbered, "numId") or style.list
        return Place(id, _number(_value(numbered, "ilvl"))) if id not in {"", "0"} else None

    def mark(self, place: Place) -> str:
        """Return the mark of the next item at a place: `-`, or its number."""
        if self._formats.get(place.list, {}).get(place.level, "bullet") in _BULLETS:
            return "-"
        counts = self._counts.setdefault(place.list, {})
        start = self._starts[place.list].get(place.level, 1)
        counts[place.level] = counts.get(place.level, start - 1) + 1
        for deeper in [level for level in counts if level > place.level]:
            del counts[deeper]
        return f"{counts[place.level]}."


def _heading(name: str, properties: Any) -> int:
    if name == "title":
        return 1
    if name == "subtitle":
        return 2
    word, _, number = name.rpartition(" ")
    if word == "heading" and number.isdigit():
        return int(number)
    outline = "" if properties is None else _value(properties, "outlineLvl")
    return int(outline) + 1 if outline.isdigit() and int(outline) < 9 else 0


def _value(element: Any, name: str) -> str:
    found = element.find(f"{W}{name}")
    return "" if found is None else str(found.get(f"{W}val", ""))


def _number(text: str) -> int:
    return min(int(text), 10**6) if text.isascii() and text.isdigit() and len(text) < 9 else 0
