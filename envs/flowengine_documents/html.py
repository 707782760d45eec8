"""HTML, including that of mails and e-books.

The tree is walked by events, so depth needs no stack. Text is collected until a block begins or
ends. It is then written, after the marks of the enclosing lists and quotes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import urljoin

from lxml import etree

from flowengine_documents.document import Damaged
from flowengine_documents.encodings import declared_in
from flowengine_documents.html_parts import (
    FormFields,
    HtmlList,
    TableText,
    as_shown,
    end_head,
    paragraphs,
    put_first,
    spans_of,
)
from flowengine_documents.markdown import (
    TextSpan,
    Writer,
    fenced,
    hidden_note,
    image,
    inline,
    plain,
    target,
)
from flowengine_documents.mathml import latex, name_of
from flowengine_documents.text import noted

_DROPPED = frozenset(
    {
        *("script", "style", "template", "noscript", "head", "object", "embed", "canvas", "audio"),
        *("video", "iframe", "rp", "datalist"),
    }
)
_BLOCKS = frozenset(
    {
        *("address", "article", "aside", "blockquote", "body", "center", "dd", "details", "dialog"),
        *("div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "frameset"),
        *("header", "hgroup", "html", "legend", "li", "main", "nav", "ol", "p", "pre", "search"),
        *("section", "summary", "ul", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "option"),
        *("table", "caption", "thead", "tbody", "tfoot", "tr", "td", "th"),
        *("dir", "menu", "optgroup", "marquee", "xmp", "listing", "plaintext"),
    }
)
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_WITHIN_HEADINGS = frozenset({"div", "p", "center", "section", "header", "figure", "figcaption"})
"""Blocks that some pages put into a heading, without ending it."""
_LONGEST_HEADING = 400
"""Maximum characters of a heading with blocks. A longer one was probably never closed."""
_LOOKS = {
    **dict.fromkeys(("b", "strong"), "bold"),
    **dict.fromkeys(("i", "em", "cite"), "italic"),
    **dict.fromkeys(("code", "kbd", "samp", "tt"), "code"),
    **dict.fromkeys(("del", "s", "strike"), "strike"),
}
_LISTS = frozenset({"ul", "ol", "dl", "menu", "dir"})
_AROUND = {"q": '""', "rt": "()"}
"""Characters that browsers show around a text, or above another one."""
_SCRIPTS = {"sup": "^", "sub": "_"}
_HIDDEN = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*hidden|opacity\s*:\s*0(?:\.0+)?(?![.\d])"
    r"|font-size\s*:\s*0(?![.\d])",
    re.IGNORECASE,
)
_HIDING = frozenset(("hidden", "popover"))
_LANGUAGE = re.compile(r"(?:language|lang|highlight-source|brush:|sourceCode)[-\s]?([\w+#-]+)")
_SPACE = re.compile(r"\s+")
_DEEPEST = 12
"""Maximum depth of nested lists and quotes that are shown, because each line begins with the marks
of all."""


def convert(data: bytes, out: Writer, declared: str = "", base: str = "") -> None:
    """Convert a page.

    Args:
        data: Its bytes.
        out: Receives the text.
        declared: The encoding that a server or message declares.
        base: Its address, against which links are resolved.

    Raises:
        Damaged: It is not text.
    """
    convert_text(noted(data, out, declared or declared_in(data)), out, base)


def convert_text(text: str, out: Writer, base: str = "", address: Address | None = None) -> None:
    """Convert the text of a page. Other arguments are those of `convert`.

    Args:
        text: The text.
        out: Receives the text.
        base: Its address, against which links are resolved.
        address: Returns the target of a link. By default, the address is resolved against `base`.
    """
    parser = etree.HTMLParser(
        encoding="utf-8", huge_tree=True, remove_comments=True, remove_pis=True, no_network=True
    )
    if not text.strip():
        return
    try:
        root = etree.fromstring(text.encode("utf-8", "replace"), parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise Damaged(f"its HTML cannot be parsed: {error}") from None
    if any("depth" in entry.message for entry in parser.error_log):
        out.note("it is nested too deeply to keep its structure, so only its text was taken")
        for paragraph in paragraphs(text):
            out.paragraph(paragraph)
        return
    if root is None:
        return
    end_head(root)
    given = root.find(".//base[@href]")
    if given is not None:
        base = urljoin(base, given.get("href"))
    title = root.find(".//title")
    if title is not None and title.text and not out.document.title:
        out.document.title = " ".join(title.text.split())
    main = put_first(root)
    HtmlPage(out, lru_cache(address or (lambda url: _resolved(base, url))), main).walk(root)


Address = Callable[[str], str]


def _resolved(base: str, url: str) -> str:
    try:
        return target(urljoin(base, url))
    except ValueError:
        return ""


class HtmlPage:
    """A page that is being converted.

    Args:
        out: Receives the text.
        address: Returns the target of a link.
        main: The element with the main content, if it is known. It comes first.
    """

    def __init__(self, out: Writer, address: Address, main: Any = None) -> None:
        self._out = out
        self._main = main
        self._is_beside = False
        """Whether the next block is the first one outside the main content."""
        self._address = address
        self._text: list[TextSpan] = []
        self._looks: dict[str, int] = dict.fromkeys(("bold", "italic", "code", "strike"), 0)
        self._links: list[str] = []
        self._scripts: list[str] = []
        self._marks: list[list[str]] = []
        """For each enclosing list item and quote: the beginning of its next line, and of further
        lines."""
        self._lists: list[HtmlList] = []
        self._fields = FormFields()
        self._preformatted = 0
        self._heading: Any = None
        """The enclosing heading, if blocks do not end it."""
        self._language = ""
        self._tables: list[TableText | None] = []
        self._layouts: set[Any] = set()
        self._tight = False
        self._hidden = 0

    def walk(self, root: Any) -> None:
        """Convert a tree."""
        as_shown(root)
        around = {next(table.iterancestors("table"), None) for table in root.iter("table")}
        headed = {next(head.iterancestors("table"), None) for head in root.iter("th")}
        self._layouts = {table for table in around - headed if not _has_data(table)}
        self._layouts |= {table for table in root.iter("table") if _is_column(table)}
        walker = etree.iterwalk(root, events=("start", "end"))
        for event, element in walker:
            tag = element.tag if isinstance(element.tag, str) else ""
            if event == "end":
                self._end(tag, element)
                if element is self._main:
                    self._flush()
                    self._is_beside = True
                if element is not root:
                    self._add(element.tail)
            elif not tag or tag in _DROPPED or self._is_hidden(element) or self._drawn(element):
                walker.skip_subtree()
                # The end event of a skipped element still follows, and must not close anything.
                element.tag = "skipped" if tag else element.tag
            else:
                self._start(tag, element)
                self._add(element.text)
        self._flush()
        if self._hidden:
            self._out.note(hidden_note(self._hidden))

    def _is_hidden(self, element: Any) -> bool:
        attributes: Mapping[str, str] = element.attrib
        if not attributes:
            return False
        style = attributes.get("style")
        hidden = not _HIDING.isdisjoint(attributes) or (style and _HIDDEN.search(style))
        if hidden and "".join(element.itertext()).strip():
            self._hidden += 1
        return bool(hidden)

    def _drawn(self, element: Any) -> bool:
        """Handle a formula or a drawing as a whole, and return whether it is one."""
        name = name_of(element)
        if name == "math":
            formula = latex(element)
            self._text.append(TextSpan(f"${formula}$" if formula else "", raw=True))
        elif name == "svg":
            self._add(f" {' '.join(self._words(element))} ")
        return name in {"math", "svg"}

    def _words(self, drawing: Any) -> Iterator[str]:
        """Yield the name of a drawing and its texts."""
        walker = etree.iterwalk(drawing, events=("start",))
        for _, element in walker:
            if element is not drawing and self._is_hidden(element):
                walker.skip_subtree()
            elif name_of(element) in {"text", "title"}:
                yield from "".join(element.itertext()).split()
                walker.skip_subtree()

    def _add(self, text: str | None) -> None:
        if not text:
            return
        if not self._preformatted:
            text = _SPACE.sub(" ", text)
        looks = self._looks
        link = self._links[-1] if self._links else ""
        bold, italic = looks["bold"] > 0, looks["italic"] > 0
        span = TextSpan(text, bold, italic, looks["code"] > 0, looks["strike"] > 0, link)
        self._text.append(span._replace(script=self._scripts[-1]) if self._scripts else span)

    def _start(self, tag: str, element: Any) -> None:
        if self._heading is not None and tag in _WITHIN_HEADINGS:
            self._add(" ")
        elif tag in _BLOCKS:
            self._flush()
            if tag in _HEADINGS and self._heading is None and _is_short(element):
                self._heading = element
            self._begin_block(tag, element)
        elif tag in _LOOKS:
            self._looks[_LOOKS[tag]] += not self._preformatted
            if self._preformatted:
                self._language = self._language or _language(element)
        elif tag == "a":
            self._links.append(
                self._address(element.get("href", "")) if element.get("href") else ""
            )
        elif tag in _SCRIPTS:
            self._scripts.append(_SCRIPTS[tag])
        elif tag == "br":
            self._text.append(TextSpan("\n"))
        elif tag == "img":
            self._image(element)
        elif tag in {"input", "select"}:
            self._add(self._fields.text(element))
        elif tag in {"q", "rt"}:
            self._add(_AROUND[tag][0])

    def _begin_block(self, tag: str, element: Any) -> None:
        if tag in _LISTS:
            self._lists.append(HtmlList(element))
        elif tag == "li":
            self._marks.append(self._lists[-1].marks(element) if self._lists else ["- ", "  "])
        elif tag == "blockquote":
            self._marks.append(["> ", "> "])
        elif tag == "dt":
            self._looks["bold"] += 1
        elif tag == "pre":
            self._preformatted += 1
            self._language = _language(element)
        elif tag == "hr":
            self._write("---")
        elif tag in {"option", "optgroup"}:
            self._add(self._fields.text(element))
        elif tag == "table":
            layout = element in self._layouts and self._outer is None
            self._tables.append(None if layout else TableText())
        elif tag == "caption" and (table := self._table) is not None:
            table.is_in_caption = True
        elif tag in {"td", "th"} and (table := self._table) is not None:
            table.cell(*spans_of(element))
        elif tag == "tr" and (table := self._table) is not None:
            table.row()

    def _end(self, tag: str, element: Any) -> None:
        if self._heading is not None and tag in _WITHIN_HEADINGS:
            self._add(" ")
        elif tag in _BLOCKS:
            if element is self._heading:
                self._heading = None
            self._flush(_HEADINGS.get(tag, 0))
            self._end_block(tag)
        elif tag in _LOOKS:
            self._looks[_LOOKS[tag]] -= not self._preformatted
        elif tag in _SCRIPTS:
            self._scripts.pop()
        elif tag == "a" and self._links:
            self._links.pop()
        elif tag in {"q", "rt"}:
            self._add(_AROUND[tag][1])

    def _end_block(self, tag: str) -> None:
        if tag in _LISTS:
            self._lists.pop()
            self._tight = self._tight and bool(self._lists)
        elif tag in {"li", "blockquote"}:
            self._marks.pop()
        elif tag == "dt":
            self._looks["bold"] -= 1
        elif tag == "pre":
            self._preformatted -= 1
        elif tag == "table":
            table = self._tables.pop()
            if table is not None and (outer := self._outer) is not None:
                outer.text(table.lines())
            elif table is not None:
                self._write_table(table)
        elif tag == "caption" and (own := self._table) is not None:
            own.is_in_caption = False

    @property
    def _table(self) -> TableText | None:
        """The table whose cells receive text, if it is the directly enclosing one."""
        return self._tables[-1] if self._tables else None

    @property
    def _outer(self) -> TableText | None:
        """The nearest enclosing table that is written as one."""
        return next((each for each in reversed(self._tables) if each is not None), None)

    def _image(self, element: Any) -> None:
        alt, source = element.get("alt", ""), element.get("src", "")
        embedded = source[:5].lower() == "data:"
        shown = image(alt, "" if embedded else self._address(source))
        link = self._links[-1] if self._links else ""
        self._text.append(shown._replace(link=link))

    def _flush(self, heading: int = 0) -> None:
        """Write the collected text as a block."""
        spans, self._text = self._text, []
        if not spans:
            return
        if (table := self._outer) is not None:
            table.text(inline(spans, "\n"))
        elif self._preformatted:
            code = "".join(span.text for span in spans).strip("\n")
            if code.strip():
                self._write(fenced(code, self._language))
        elif heading:
            line = " ".join(inline(spans, " ").split())
            if line:
                self._write(f"{'#' * heading} {line}")
        else:
            self._write(plain(inline(spans)))

    def _write(self, text: str) -> None:
        """Write a block after the marks of its enclosing elements."""
        if not text:
            return
        marks = self._marks[-_DEEPEST:]
        begins_item = any(mark[0] != mark[1] and mark[0].strip() for mark in marks)
        first = "".join(mark[0] for mark in marks)
        for mark in marks:
            mark[0] = mark[1]
        rest = "".join(mark[1] for mark in marks)
        begin, _, more = text.partition("\n")
        lines = [first + begin]
        if more:
            lines += [(rest + line).rstrip() for line in more.split("\n")]
        self._mark_what_is_beside()
        self._out.block("\n".join(lines), tight=begins_item and self._tight)
        self._tight = bool(self._lists) and bool(marks)

    def _mark_what_is_beside(self) -> None:
        if self._is_beside:
            self._is_beside = False
            self._out.block("<!-- beside the main text: menus and the like -->")

    def _write_table(self, table: TableText) -> None:
        for caption in table.caption:
            self._write(plain(caption))
        self._mark_what_is_beside()
        self._out.table(table.rows)
        self._tight = False


def _has_data(table: Any) -> bool:
    """Return whether a table that contains another one holds data, and is not used for layout."""
    if table is None or table.get("role") in {"presentation", "none"}:
        return False
    cells = _cells(table, "td")
    rows = {next(cell.iterancestors("tr", "table")) for cell in cells}
    with_tables = sum(cell.find(".//table") is not None for cell in cells)
    return len(rows) > 1 and len(cells) >= 2 * len(rows) and with_tables * 4 <= len(cells)


def _is_column(table: Any) -> bool:
    """Return whether a table has one cell per row: it is used for layout, or is a list."""
    cells = _cells(table, "td", "th")
    rows = {cell.getparent() for cell in cells}
    return len(rows) == len(cells) and all("rowspan" not in cell.attrib for cell in cells)


def _cells(table: Any, *tags: str) -> list[Any]:
    """Return the cells of a table, without those of tables in it."""
    return [cell for cell in table.iter(*tags) if next(cell.iterancestors("table")) is table]


def _is_short(heading: Any) -> bool:
    """Return whether a heading does not exceed the maximum length."""
    length = 0
    for text in heading.itertext():
        length += len(text)
        if length > _LONGEST_HEADING:
            return False
    return True


def _language(element: Any) -> str:
    language = _LANGUAGE.search(element.get("class", ""))
    return language[1] if language else ""
