"""Parts of web pages: the main content, tables, lists, forms, and elements nested too deeply."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import dropwhile
from typing import Any

from flowengine_documents.text import shown
from flowengine_documents.word_styles import numbered

# Elements after which the head of a page continues. Any other element begins the body.
#
# Source: HTML Living Standard, 13.2.6.4.4 (the insertion mode "in head").

_IN_HEAD = frozenset(
    {
        *("base", "basefont", "bgsound", "link", "meta", "noframes", "noscript", "script", "style"),
        *("template", "title"),
    }
)


def end_head(root: Any) -> None:
    """Move elements that end the head into the body.

    Without a `<body>`, the parser leaves elements in the head that are newer than itself, such as
    `main`.
    """
    head, body = root.find("head"), root.find("body")
    beyond = [] if head is None else [*dropwhile(lambda item: item.tag in _IN_HEAD, head)]
    if not beyond:
        return
    if body is None:
        body = root.makeelement("body")
        root.append(body)
    beyond[-1].tail = (beyond[-1].tail or "") + (body.text or "")
    body.text = None
    body[:0] = beyond


# The main content of a page, which is moved before menus, search boxes and sidebars.
#
# Source: HTML Living Standard, 4.4.14 (`main`) and 4.3.2 (`article`), WAI-ARIA 1.2, role `main`.

_MAIN = "//main | //*[@role='main']"
_ARTICLE = "//article"


def put_first(root: Any) -> Any:
    """Move the main content of a page to the beginning of its body, with the heading above it.

    Returns:
        Its element. None if the page marks none, or several.
    """
    body, main = root.find("body"), _main(root)
    if body is None or main is None:
        return None
    headings = root.xpath("//h1")
    if len(headings) == 1 and main not in headings[0].iterancestors():
        _move(headings[0], main, 0)
    _move(main, body, 0)
    return main


def _main(root: Any) -> Any:
    for path in (_MAIN, _ARTICLE):
        shown = {item for item in root.xpath(path) if "hidden" not in item.attrib}
        outermost = [item for item in shown if shown.isdisjoint(item.iterancestors())]
        if outermost:
            return outermost[0] if len(outermost) == 1 else None
    return None


def _move(element: Any, to: Any, at: int) -> None:
    """Move an element. The text after it stays in its place."""
    before, parent, tail = element.getprevious(), element.getparent(), element.tail or ""
    element.tail = None
    if before is not None:
        before.tail = (before.tail or "") + tail
    else:
        parent.text = (parent.text or "") + tail
    to.insert(at, element)
    if at == 0:
        element.tail, to.text = to.text, None


# Formulas that a script of the page has drawn, beside their MathML or TeX.
#
# Source: the pages of KaTeX 0.16, MathJax 2.7 and 3.2, and of MediaWiki.

_DRAWN = ("MathJax", "MJX", "mjx")
_DATA_MARKS = re.compile(r"%?\s*(?:<!\[CDATA\[|\]\]>)")


def _keep_formulas_once(root: Any) -> None:
    """Drop the drawing of a formula, which is hidden from screen readers, and keep its source."""
    for script in root.xpath("//script[starts-with(@type, 'math/tex')]"):
        drawing = script.getprevious()
        while drawing is not None and drawing.get("class", "").startswith(_DRAWN):
            drawing.tag, drawing = _NOT_SHOWN, drawing.getprevious()
        script.tag, script.text = "math", _DATA_MARKS.sub("", script.text or "")
    for formula in root.iter("math"):
        around = formula.getparent()
        if around is None or len(around) > 1 or around.tag not in {"span", "mjx-assistive-mml"}:
            continue
        for drawing in (around.getprevious(), around.getnext()):
            if drawing is not None and drawing.get("aria-hidden") == "true":
                drawing.tag = _NOT_SHOWN
                around.attrib.pop("style", None)  # which hides the source, as the drawing is shown


# Elements that are shown as others, or elsewhere.
#
# Source: WAI-ARIA 1.2, 5.4, and HTML Living Standard, 4.9.7 (`tfoot`), 4.11.4 (`dialog`) and 4.12.3
# (`template`).

_ROLES = {
    **dict.fromkeys(("table", "grid", "treegrid"), "table"),
    **{"row": "tr", "cell": "td", "gridcell": "td", "columnheader": "th", "rowheader": "th"},
    **{"list": "ul", "listitem": "li"},
}

_NOT_SHOWN = "template"
"""A tag whose content is not shown."""
_FONT = re.compile(r"font-family:\s*['\"]?(symbol|wingdings)\b(?!\s*\d)", re.IGNORECASE)


def as_shown(root: Any) -> None:
    """Give elements the tag and the place that they have on the screen."""
    for element in root.xpath("//div[@role] | //span[@role]"):
        level = element.get("aria-level", "2")
        heading = f"h{level}" if level in "123456" else "h6"
        role = element.get("role")
        element.tag = heading if role == "heading" else _ROLES.get(role, element.tag)
    for shadow in root.xpath("//template[@shadowrootmode]"):
        shadow.tag = "div"
    _keep_formulas_once(root)
    for dialog in root.xpath("//dialog[not(@open)]"):
        dialog.set("hidden", "")
    for element in root.xpath("//span[@style] | //font[@face]"):
        font = _FONT.search(element.get("style") or f"font-family:{element.get('face')}")
        element.text = shown(element.text or "", font[1]) if font else element.text
    for foot in root.xpath("//table/tfoot[following-sibling::*]"):
        foot.getparent().append(foot)


# Collects the cells of an HTML table while its text arrives.

_WIDEST = 1_000
"""Maximum columns or rows that a cell may span."""


def spans_of(element: Any) -> tuple[int, int]:
    """Return how many columns and rows a cell spans."""
    return _count(element.get("colspan", "1")), _count(element.get("rowspan", "1"))


def _count(text: str) -> int:
    text = text.strip()
    return min(max(int(text), 1), _WIDEST) if text.isascii() and text.isdigit() else 1


class TableText:
    """Collects cells. A merged cell fills only its first place, and the others stay empty."""

    def __init__(self) -> None:
        self.rows: list[list[str]] = []
        self.caption: list[str] = []
        self.is_in_caption = False
        self._covered: dict[int, int] = {}
        """Column → number of rows below the current one that a cell above covers."""
        self.width = 0

    def row(self) -> None:
        self.rows.append([])
        self._covered = {column: left for column, left in self._covered.items() if left > 0}

    def cell(self, columns: int, rows: int) -> None:
        if not self.rows:
            self.row()
        row = self.rows[-1]
        while self._covered.get(len(row), 0) > 0:
            self._covered[len(row)] -= 1
            row.append("")
        for column in range(len(row), len(row) + columns):
            if rows > 1:
                self._covered[column] = rows - 1
        self._at = len(row)
        row += [""] * columns
        self.width = max(self.width, len(row))

    def text(self, text: str) -> None:
        """Add a block to the current cell, or to the caption."""
        if not text:
            return
        if self.is_in_caption:
            self.caption.append(text)
            return
        if not self.rows or not self.rows[-1]:
            self.rows.append([text])
            self._at = 0
            return
        before = self.rows[-1][self._at]
        self.rows[-1][self._at] = f"{before}\n{text}" if before else text

    def lines(self) -> str:
        """Return the rows as lines of a cell, for a nested table."""
        filled = (filter(None, (" ".join(cell.split()) for cell in row)) for row in self.rows)
        return "\n".join([*self.caption, *filter(None, map("; ".join, filled))])


# Numbers of the items of HTML lists, as browsers show them.
#
# Source: HTML Living Standard, 4.4.5 (`ol`) and 4.4.8 (`li`).

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


# The content of the fields of HTML forms.

_UNSHOWN = frozenset({"hidden", "password", "image", "file"})
_TICKS = frozenset({"checkbox", "radio"})
_TICKED, _OPEN = "[x]", "[ ]"


class FormFields:
    """The fields of a page, which are read in their order."""

    def __init__(self) -> None:
        self._chosen: set[Any] = set()
        """The chosen options of the last `select`."""

    def text(self, element: Any) -> str:
        """Return the text that a field shows before its content."""
        if element.tag == "input":
            return _text_of_input(element)
        if element.tag == "option":
            return self._mark_of_option(element)
        if element.tag == "select":
            self._chosen = _chosen_options(element)
        return element.get("label", "") if element.tag == "optgroup" else ""

    def _mark_of_option(self, option: Any) -> str:
        """Return whether an option is chosen, and its label if it has no text."""
        text, label = "".join(option.itertext()).strip(), option.get("label", "").strip()
        if not text and not label:
            return ""
        return f"{_TICKED if option in self._chosen else _OPEN} {'' if text else label}"


def _text_of_input(field: Any) -> str:
    kind = field.get("type", "text").lower()
    if kind in _TICKS:
        return f" {_TICKED if 'checked' in field.attrib else _OPEN} "
    return "" if kind in _UNSHOWN else f" {field.get('value') or field.get('placeholder') or ''} "


def _chosen_options(select: Any) -> set[Any]:
    """Return the options that a browser shows as chosen."""
    options = [*select.iter("option")]
    selected = [option for option in options if "selected" in option.attrib]
    if "multiple" in select.attrib:
        return set(selected)
    if not selected and select.get("size", "1") in {"", "0", "1"}:
        selected = [option for option in options if not _is_disabled(option)][:1]
    return set(selected[-1:])


def _is_disabled(option: Any) -> bool:
    group = option.getparent()
    return "disabled" in option.attrib or (group.tag == "optgroup" and "disabled" in group.attrib)


# The text of HTML that is nested too deeply for its parser: only paragraphs.

_DROPPED = frozenset(("script", "style", "template", "noscript", "head"))
_INLINE = frozenset(
    ("a", "abbr", "b", "code", "em", "font", "i", "s", "small", "span", "strong", "u")
)


def paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a page."""
    reader = _Paragraphs()
    reader.feed(text)
    reader.close()
    reader.end()
    return reader.texts


class _Paragraphs(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: list[str] = []
        self._text: list[str] = []
        self._dropped = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag in _DROPPED and not self._dropped:
            self._dropped = tag
        if tag not in _INLINE:
            self.end()

    def handle_endtag(self, tag: str) -> None:
        if tag == self._dropped:
            self._dropped = ""
        if tag not in _INLINE:
            self.end()

    def handle_data(self, data: str) -> None:
        if not self._dropped:
            self._text.append(data)

    def end(self) -> None:
        text = " ".join("".join(self._text).split())
        self._text.clear()
        if text:
            self.texts.append(text)
