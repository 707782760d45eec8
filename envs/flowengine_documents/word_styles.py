"""Styles and lists of Word documents, and their effect on paragraphs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from flowengine_documents.markdown import target

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_LONGEST_CHAIN = 20
_NO_INDENTS: Mapping[str, int] = {}
_STEP = 60
"""Twentieths of a point by which a nested list is at least indented."""
_CODE = {"code", "source code", "verbatim char", "html preformatted", "html code", "macro text"}
_OFF = {"0", "false", "off", "none"}
_BULLETS = {"bullet", "none"}
_NUMBER = re.compile("%([1-9])")
_TWIPS = re.compile(r"-?\d{1,6}")
_SIDES = {"left": "left", "start": "left", "hanging": "hanging", "firstLine": "first"}
_ROMAN = (
    ("", "m", "mm", "mmm"),
    ("", "c", "cc", "ccc", "cd", "d", "dc", "dcc", "dccc", "cm"),
    ("", "x", "xx", "xxx", "xl", "l", "lx", "lxx", "lxxx", "xc"),
    ("", "i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix"),
)


class Style(NamedTuple):
    """The properties of a paragraph's style."""

    heading: int = 0
    """Its heading level, 0 if it is not a heading."""
    is_quote: bool = False
    is_code: bool = False
    list: str = ""
    """The list that the style belongs to."""
    level: int | None = None
    """The level in that list, None if the list names the style instead."""
    is_hidden: bool = False
    is_title: bool = False
    """Whether it is the style of the document's title."""
    id: str = ""
    """The style that names the list."""
    indents: Mapping[str, int] = _NO_INDENTS
    """The indents of the style, or of the styles down to the one that names the list."""
    base_indents: Mapping[str, int] = _NO_INDENTS
    """The indents that the list replaces."""


class ListPosition(NamedTuple):
    """The position of a paragraph in a list."""

    list: str
    level: int
    indent: int | None = None
    """The place of the mark, in twentieths of a point from the margin, None if it is unknown."""


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
        """Return the style of a paragraph, with the paragraph's own settings applied."""
        # Properties come first. A search would take long in a paragraph of many runs without any.
        properties = next(paragraph.iterchildren(), None)
        if properties is None or properties.tag != f"{W}pPr":
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

    def is_hidden(self, run: Any, look: Any) -> bool:
        """Return whether a run is hidden: itself, by its style or by that of its paragraph."""
        own = _hides(look)
        if own is not None:
            return own
        if look is not None and self._known_style(_value(look, "rStyle")).is_hidden:
            return True
        paragraph = next(run.iterancestors(f"{W}p"), None)
        return paragraph is not None and self.of(paragraph).is_hidden

    def _known_style(self, id: str) -> Style:
        return self._known.get(id) or self._known.setdefault(id, self._read(id))

    def _read(self, id: str) -> Style:
        """Return a style. Properties that it omits come from the styles that it is based on."""
        heading, is_quote, is_code, is_title = 0, False, False, False
        list_, level, named = "", None, ""
        indents, base_indents = dict[str, int](), dict[str, int]()
        hides: bool | None = None
        for _ in range(_LONGEST_CHAIN):
            style = self._styles.get(id)
            if style is None:
                break
            name = _value(style, "name").lower()
            heading = heading or _heading(name, style.find(f"{W}pPr"))
            is_title = is_title or name == "title"
            is_quote = is_quote or name in {"quote", "intense quote", "block text"}
            is_code = is_code or name in _CODE
            hides = _hides(style.find(f"{W}rPr")) if hides is None else hides
            (base_indents if list_ else indents).update(
                {
                    side: value
                    for side, value in _indents(style).items()
                    if side not in indents and side not in base_indents
                }
            )
            numbered = style.find(f"{W}pPr/{W}numPr")
            if numbered is not None and not list_:
                list_, named = _value(numbered, "numId"), id
                written = _value(numbered, "ilvl")
                level = _number(written) if written else None
            id = _value(style, "basedOn")
        return Style(
            *(heading, is_quote, is_code, list_, level, bool(hides), is_title),
            *(named, indents, base_indents),
        )


class ListLevel(NamedTuple):
    """How the items of one level of a list are numbered."""

    format: str
    """`decimal`, `lowerLetter`, `bullet`, …"""
    text: str
    """The format of the number: `%1.%2` contains those of the first two levels."""
    start: int = 1
    is_legal: bool = False
    """Whether the numbers of all levels are shown in digits."""
    style: str = ""
    """The style whose paragraphs are on this level."""
    indents: Mapping[str, int] = _NO_INDENTS


class Numbering:
    """The lists of a document, with their current numbers.

    Lists with the same description continue each other's numbers, except for levels that a list
    restarts.

    Args:
        root: Its part of numberings, if it has one.
    """

    def __init__(self, root: Any) -> None:
        self._levels: dict[str, dict[int, ListLevel]] = {}
        """List → its levels."""
        self._described: dict[str, str] = {}
        """List → its description, by which it is counted."""
        self._restarts: dict[str, dict[int, int]] = {}
        """List → its levels that restart at its first item there, with their first numbers."""
        self._counts: dict[str, dict[int, int]] = {}
        self._enclosing: list[ListPosition] = []
        """The item read last, after the items that it is nested in."""
        if root is not None:
            self._read(root)

    def _read(self, root: Any) -> None:
        abstract = {
            each.get(f"{W}abstractNumId", ""): {
                _number(level.get(f"{W}ilvl", "0")): _level(level)
                for level in each.iterchildren(f"{W}lvl")
            }
            for each in root.iterchildren(f"{W}abstractNum")
        }
        named = {
            name: abstract[each.get(f"{W}abstractNumId", "")]
            for each in root.iterchildren(f"{W}abstractNum")
            if (name := _value(each, "styleLink"))
        }
        for each in root.iterchildren(f"{W}abstractNum"):
            if name := _value(each, "numStyleLink"):
                abstract[each.get(f"{W}abstractNumId", "")] = named.get(name, {})
        for each in root.iterchildren(f"{W}num"):
            id, described = each.get(f"{W}numId", ""), _value(each, "abstractNumId")
            levels, restarts = dict(abstract.get(described, {})), dict[int, int]()
            for changed in each.iterchildren(f"{W}lvlOverride"):
                at = _number(changed.get(f"{W}ilvl", "0"))
                if (own := changed.find(f"{W}lvl")) is not None:
                    levels[at] = _level(own)
                    restarts[at] = levels[at].start
                if start := _value(changed, "startOverride"):
                    restarts[at] = _number(start)
            self._levels[id], self._described[id] = levels, described
            self._restarts[id] = restarts

    def place(self, paragraph: Any, style: Style) -> ListPosition | None:
        """Return the position of a paragraph in a list, if it is in one."""
        properties = paragraph.find(f"{W}pPr")
        own = None if properties is None else properties.find(f"{W}numPr")
        id = style.list if own is None else _value(own, "numId") or style.list
        if id in {"", "0"}:
            return None
        levels = self._levels.get(id, {})
        level = style.level if own is None else _number(_value(own, "ilvl"))
        if level is None:
            level = next((at for at, each in levels.items() if each.style == style.id), 0)
        described = levels[level].indents if level in levels else _NO_INDENTS
        by_style = {**style.base_indents, **style.indents}
        # A list replaces the indents of a style, unless the style itself names the list.
        indents = {**by_style, **described, **(style.indents if own is None else {})}
        return ListPosition(id, level, _mark_at(indents | _indents(paragraph)))

    def depth(self, place: ListPosition) -> int:
        """Return in how many items the next item is nested.

        The levels of one list decide. Items of different lists are nested by their indent, because
        each of these lists may have its items on its first level.
        """
        while self._enclosing and not _encloses(self._enclosing[-1], place):
            self._enclosing.pop()
        self._enclosing.append(place)
        return len(self._enclosing) - 1

    def mark(self, place: ListPosition) -> str:
        """Count the next item at a position, and return its number, empty for a bullet."""
        levels = self._levels.get(place.list, {})
        level = levels.get(place.level)
        if level is None or level.format in _BULLETS:
            return ""
        counts = self._counts.setdefault(self._described[place.list], {})
        restart = self._restarts[place.list].pop(place.level, None)
        if restart is not None:
            counts[place.level] = restart
        else:
            counts[place.level] = counts.get(place.level, level.start - 1) + 1
        for deeper in [each for each in counts if each > place.level]:
            del counts[deeper]

        def number(match: re.Match[str]) -> str:
            at = int(match[1]) - 1
            style = levels.get(at)
            count = counts.get(at, 1 if style is None else style.start)
            return numbered(count, "decimal" if level.is_legal or style is None else style.format)

        return _NUMBER.sub(number, level.text).strip()


def _level(level: Any) -> ListLevel:
    at = _number(level.get(f"{W}ilvl", "0"))
    text = level.find(f"{W}lvlText")
    return ListLevel(
        _value(level, "numFmt") or "decimal",
        f"%{at + 1}." if text is None else text.get(f"{W}val", ""),
        _number(_value(level, "start") or "1"),
        level.find(f"{W}isLgl") is not None,
        _value(level, "pStyle"),
        _indents(level),
    )


def _encloses(outer: ListPosition, inner: ListPosition) -> bool:
    """Return whether an item is nested in the one before it."""
    if outer.list == inner.list or outer.indent is None or inner.indent is None:
        return outer.level < inner.level
    step = inner.indent - outer.indent
    return step >= _STEP or (outer.level < inner.level and step > -_STEP)


def _indents(element: Any) -> dict[str, int]:
    """Return the indents that the properties of a paragraph, style or level set."""
    given = element.find(f"{W}pPr/{W}ind")
    indents: dict[str, int] = {}
    for name, value in () if given is None else given.attrib.items():
        side = _SIDES.get(name.removeprefix(W))
        if side and _TWIPS.fullmatch(value):
            indents[side] = int(value)
    return indents


def _mark_at(indents: Mapping[str, int]) -> int | None:
    if not indents:
        return None
    return indents.get("left", 0) + indents.get("first", 0) - indents.get("hanging", 0)


def numbered(count: int, format: str) -> str:
    """Return a number in a format of Word, or in digits if the format is unknown."""
    if format in {"lowerLetter", "upperLetter"} and 0 < count <= 26 * _LONGEST_CHAIN:
        letter = chr(ord("a") + (count - 1) % 26) * ((count - 1) // 26 + 1)
        return letter if format == "lowerLetter" else letter.upper()
    if format in {"lowerRoman", "upperRoman"} and 0 < count < 4000:
        roman = "".join(
            signs[int(digit)] for signs, digit in zip(_ROMAN, f"{count:04}", strict=True)
        )
        return roman if format == "lowerRoman" else roman.upper()
    return f"{count:02}" if format == "decimalZero" else str(count)


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


def is_on(look: Any, name: str) -> bool:
    """Return whether formatting properties contain a boolean property that is on."""
    child = None if look is None else look.find(f"{W}{name}")
    return child is not None and child.get(f"{W}val", "1").lower() not in _OFF


def _hides(look: Any) -> bool | None:
    """Return whether formatting properties hide a text, or None if they do not set it."""
    return None if look is None or look.find(f"{W}vanish") is None else is_on(look, "vanish")


def _value(element: Any, name: str) -> str:
    child = element.find(f"{W}{name}")
    return "" if child is None else str(child.get(f"{W}val", ""))


def _number(text: str) -> int:
    return min(int(text), 10**6) if text.isascii() and text.isdigit() and len(text) < 9 else 0


# Fields of Word documents: codes such as `HYPERLINK "https://…"`, and the results shown for them.
#
# A field is written as marks between runs: begin, its code, separate, its result, end. The code
# may be split into several runs, contain further fields, and extend over paragraphs.

_ARGUMENT = re.compile(r'"((?:\\.|[^"\\])*)"|\\(\S)|(\S+)')
_ESCAPED = re.compile(r'\\([\\"])')
_WITH_VALUE = frozenset("lot*")
"""Switches of `HYPERLINK` that are followed by a value."""
_DEEPEST = 20
"""Maximum depth of nested fields."""
_CURLY = str.maketrans("\u201c\u201d\u201e", '"""')


class _Field:
    def __init__(self) -> None:
        self.code = ""
        self.is_code = True
        self.link = ""


class Fields:
    """The fields around the run that is being read."""

    def __init__(self) -> None:
        self._open: list[_Field] = []
        self._complete: set[Any] = set()
        """Marks of fields that begin and end. Others are ignored, because they would hide or link
        the rest of the text."""

    def prepare(self, root: Any) -> None:
        """Find the complete fields of a part of the document that is read next."""
        begun: list[list[Any]] = []
        for mark in root.iter(f"{W}fldChar"):
            if next(mark.iterancestors(f"{W}del", f"{W}moveFrom"), None) is not None:
                continue
            kind = mark.get(f"{W}fldCharType", "")
            if kind == "begin":
                begun.append([mark])
            elif begun:
                begun[-1].append(mark)
                if kind == "end":
                    marks = begun.pop()
                    self._complete.update(marks if len(begun) < _DEEPEST else ())

    @property
    def is_code(self) -> bool:
        """Whether the text here is part of a code, which is not shown."""
        return any(field.is_code for field in self._open)

    @property
    def link(self) -> str:
        """The target of the innermost link around the text, if there is one."""
        return next((field.link for field in reversed(self._open) if field.link), "")

    def feed(self, element: Any) -> None:
        """Process an element of a run: a mark of a field, or a text, which may belong to a code."""
        if element.tag == f"{W}fldChar":
            if element in self._complete:
                self._mark(element.get(f"{W}fldCharType", ""))
        elif element.tag in {f"{W}instrText", f"{W}t"}:
            field = next((each for each in reversed(self._open) if each.is_code), None)
            if field is not None:
                field.code += element.text or ""

    def _mark(self, kind: str) -> None:
        if kind == "begin":
            self._open.append(_Field())
        elif kind == "separate" and self._open:
            self._open[-1].is_code = False
            self._open[-1].link = link_of(self._open[-1].code)
        elif kind == "end" and self._open:
            self._open.pop()


def link_of(code: str) -> str:
    """Return the target of a link, empty if it is the code of another field."""
    name, _, rest = code.strip().partition(" ")
    if name.upper() != "HYPERLINK":
        return ""
    address = anchor = switch = ""
    for quoted, switched, word in _ARGUMENT.findall(rest.translate(_CURLY)):
        if switched:
            switch = switched.lower()
            continue
        value = _ESCAPED.sub(r"\1", quoted or word.strip('"'))
        if switch == "l":
            anchor = anchor or value
        elif switch not in _WITH_VALUE:
            address = address or value
        switch = ""
    return target(address + (f"#{anchor}" if anchor else ""))
