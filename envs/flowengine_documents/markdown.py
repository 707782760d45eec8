"""Markdown: inline formatting, blocks, lists, tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple
from urllib.parse import quote

from flowengine_documents.document import ConversionLimits, Document, DocumentPart, Table

_BLOCK_MARK = re.compile(
    r"(?:#{1,6}(?=\s|$)|[-+*](?=\s|$)|>|(?:```|~~~|---|===))|(\d{1,9})([.)])(?=\s)"
)
_SAFE_SCHEMES = ("http", "https", "mailto", "tel", "ftp", "file", "cid")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_LONGEST_LINK = 2_000
_LONGEST_ALT = 500
_DEEPEST_ITEM = 20
_BREAK = "\n"
_SCRIPT = re.compile(r"[\w+\-\u2212\u2013=().,*/\u2032 ]{1,20}")
_ORDINALS = frozenset(("st", "nd", "rd", "th", "e", "er", "re", "ème", "ère", "o", "a", "tm", "sm"))

Visible = Callable[[str], tuple[str, int]]
"""Takes text, and returns it without its invisible characters, and how many there were."""


class TextSpan(NamedTuple):
    """Text with uniform formatting. A line break is a separate span, or part of the text."""

    text: str
    bold: bool = False
    italic: bool = False
    code: bool = False
    strike: bool = False
    link: str = ""
    raw: bool = False
    """Whether it is already Markdown."""
    script: str = ""
    """`^` for superscript, `_` for subscript."""


class Full(Exception):
    """The document has reached its maximum length. Its text so far is kept."""


def inline(spans: Iterable[TextSpan], line_break: str = "  \n") -> str:
    """Return spans as Markdown, with white space collapsed.

    Args:
        line_break: The Markdown for a line break.
    """
    parts: list[str] = []
    for link, linked in groupby(_collapsed(_scripted(spans)), lambda span: span.link):
        text = "".join(_formatted(list(same)) for same in _of_one_look(linked))
        if link and text.strip():
            before, core, after = _split(text)
            text = f"{before}[{core}]({link}){after}"
        parts.append(text)
    text = "".join(parts)
    text = re.sub(r"[ \t]*\n[ \t]*", _BREAK, text).strip()
    return text.replace(_BREAK, line_break)


def _scripted(spans: Iterable[TextSpan]) -> Iterator[TextSpan]:
    """Mark superscript and subscript, so that `10⁶` does not become `106`.

    Marks of footnotes, ordinals (`1st`), links and whole sentences are left unchanged.
    """
    for script, together in groupby(spans, lambda span: span.script):
        if not script:
            yield from together
            continue
        same = [span._replace(script="") for span in together]
        before, core, after = _split("".join(span.text for span in same))
        if not _SCRIPT.fullmatch(core) or core.lower() in _ORDINALS or any(x.link for x in same):
            yield from same
        else:
            shown = core if len(core) == 1 else f"{{{core}}}"
            yield same[0]._replace(text=f"{before}{script}{shown}{after}")


def _collapsed(spans: Iterable[TextSpan]) -> Iterator[TextSpan]:
    """Collapse white space, including that across spans."""
    space = True
    for span in spans:
        text = re.sub(r"[ \t\r\f\v\u00a0]+", " ", span.text) if not span.raw else span.text
        if space and text.startswith(" "):
            text = text[1:]
        if text:
            space = text[-1] in " \n"
            if span.link and not span.raw:
                text = text.replace("[", "\\[").replace("]", "\\]")
            yield span._replace(text=text)


def _of_one_look(spans: Iterable[TextSpan]) -> Iterator[Iterator[TextSpan]]:
    looks = groupby(spans, lambda span: (span.bold, span.italic, span.code, span.strike, span.raw))
    return (same for _, same in looks)


def _formatted(spans: Sequence[TextSpan]) -> str:
    """Return spans with the same formatting. Marks must be next to the text to be recognized."""
    first = spans[0]
    text = "".join(span.text for span in spans)
    before, core, after = _split(text)
    if not core or first.raw:
        return text
    if first.code:
        core = _code(core)
    marks = ("~~" if first.strike else "") + ("**" if first.bold else "")
    marks += "*" if first.italic else ""
    if marks:
        core = "\n".join(f"{marks}{line}{marks[::-1]}" if line else "" for line in core.split("\n"))
    return f"{before}{core}{after}"


def _split(text: str) -> tuple[str, str, str]:
    core = text.strip()
    if not core:
        return text, "", ""
    at = text.index(core)
    return text[:at], core, text[at + len(core) :]


def _code(text: str) -> str:
    if "`" not in text:
        return f"`{text}`"
    return f"`` {text} ``"


def target(url: str) -> str:
    """Return the target of a link in Markdown, empty if it is not safe."""
    url = "".join(url.split()) if "\n" in url or "\t" in url else url.strip()
    scheme = _SCHEME.match(url)
    if scheme is not None and scheme[1].lower() not in _SAFE_SCHEMES:
        return ""
    if len(url) > _LONGEST_LINK:
        return ""
    return quote(url, safe="!#$%&'*+,/:;=?@[]~-._|{}^").replace("|", "%7C")


def image(alt: str, url: str) -> TextSpan:
    """Return an image. Embedded ones have no address."""
    text = " ".join(alt.split())
    if len(text) > _LONGEST_ALT:  # it is only read by machines, and could hide instructions
        text = f"{text[:_LONGEST_ALT]}…"
    shown = text.replace("[", "\\[").replace("]", "\\]")
    where = target(url)
    return TextSpan(f"![{shown}]({where})" if shown or where else "", raw=True)


def plain(text: str) -> str:
    """Return text in which no line begins like the mark of a block."""
    return "\n".join(_unmarked(line) for line in text.split("\n"))


def _unmarked(line: str) -> str:
    mark = _BLOCK_MARK.match(line)
    if mark is None:
        return line
    if mark[1] is not None:
        return f"{mark[1]}\\{line[mark.end(1) :]}"
    return f"\\{line}"


def rectangle(rows: Iterable[Sequence[str]]) -> Table:
    """Return rows as a table with equal lengths, without empty rows and columns."""
    kept = [[cell.strip() for cell in row] for row in rows]
    kept = [row for row in kept if any(row)]
    width = max((len(row) for row in kept), default=0)
    full = [row + [""] * (width - len(row)) for row in kept]
    used = [column for column in range(width) if any(row[column] for row in full)]
    return full if len(used) == width else [[row[column] for column in used] for row in full]


class Writer:
    """Writes the Markdown of a document, block by block, within the limits.

    Args:
        document: The document to fill.
        limits: The limits.
        visible: Removes invisible characters.
    """

    def __init__(self, document: Document, limits: ConversionLimits, visible: Visible) -> None:
        self.document = document
        self.limits = limits
        self._visible = visible
        self.unpacked = 0
        """Bytes that the archives in an archive unpack to."""
        self._blocks: list[str] = []
        self.length = 0
        """Characters written so far."""
        self._list: list[tuple[int, str]] = []
        """For the item written last and the enclosing ones: its level, and the indentation of
        nested items."""
        self._cells = 0
        self._invisible = 0
        self._undecoded = 0

    @property
    def characters_left(self) -> int:
        """Number of further characters that the text may have."""
        return max(self.limits.characters - self.length - len("\n\n"), 0)

    @property
    def cells_left(self) -> int:
        """Number of further cells that tables may have."""
        return self.limits.cells - self._cells

    def block(self, text: str, *, tight: bool = False) -> None:
        """Write a block.

        Args:
            text: Markdown, possibly of several lines.
            tight: Whether it follows the previous block without an empty line.

        Raises:
            Full: The document has reached its maximum length.
        """
        if not tight:
            self._list.clear()
        text, count = self._visible(text)
        self._invisible += count
        self._undecoded += text.count("\ufffd")
        if not text.strip():
            return
        between = "" if not self._blocks else "\n" if tight else "\n\n"
        room = self.limits.characters - self.length - len(between)
        if len(text) > room:
            self._add(between, text[: max(room, 0)])
            self.cut(f"cut after {self.limits.characters:,} characters (limit 'characters')")
            raise Full
        self._add(between, text)

    def _add(self, between: str, text: str) -> None:
        self._blocks += [between, text]
        self.length += len(between) + len(text)

    def paragraph(self, text: str) -> None:
        """Write a paragraph. Its text is Markdown that does not begin another block."""
        self.block(plain(text))

    def heading(self, level: int, text: str) -> None:
        """Write a heading in one line, unless it is empty."""
        line = " ".join(text.split())
        if line:
            self.block(f"{'#' * min(max(level, 1), 6)} {line}")

    def item(self, level: int, text: str, mark: str = "-") -> None:
        """Write an item of a list.

        Args:
            level: 0 for the outermost list. An item is indented only below an item of a lower
                level, because deeper lines without a preceding item would be code.
            mark: `-`, or a number with a dot.
        """
        if not text.strip():
            return
        tight = bool(self._list)
        while self._list and self._list[-1][0] >= level:
            self._list.pop()
        indent = self._list[-1][1] if self._list else ""
        inner = f"\n{indent}{' ' * (len(mark) + 1)}"
        self.block(f"{indent}{mark} {text.replace(_BREAK, inner)}", tight=tight)
        if len(self._list) < _DEEPEST_ITEM:
            self._list.append((level, indent + " " * max(4, len(mark) + 1)))

    def code(self, text: str, language: str = "") -> None:
        """Write a block of code."""
        if text.strip():
            self.block(fenced(text.strip("\n"), language))

    def table(self, rows: Iterable[Sequence[str]]) -> None:
        """Write a table with its first row as the head.

        Cells are Markdown in one or several lines.

        Rows are consumed one by one, up to the limit of cells.
        """
        taken: list[Sequence[str]] = []
        for row in rows:
            if self._cells + len(row) > self.limits.cells:
                self.cut(f"tables cut after {self.limits.cells:,} cells (limit 'cells')")
                break
            self._cells += len(row)
            taken.append(row)
        table = rectangle(taken)
        if table:
            self.block("\n".join(lines_of(table)))
            self.document.tables.append(table)

    def part(self, kind: str, number: int, name: str = "", remark: str = "") -> None:
        """Mark the beginning of a page, slide, sheet or chapter.

        Raises:
            Full: The maximum number of parts is reached.
        """
        if len(self.document.parts) == self.limits.pages:
            self.cut(f"cut after {self.limits.pages:,} {kind}s (limit 'pages')")
            raise Full
        start = self.length + (2 if self._blocks else 0)
        self.document.parts.append(DocumentPart(kind, number, name, start))
        self.block(line_of_part(kind, number, remark))

    def include(self, document: Document, name: str) -> None:
        """Write the content of another file.

        Args:
            document: The file, converted with the characters and cells that are left.
            name: Its name, for its notes.
        """
        self.block(document.markdown)
        self.document.tables += document.tables
        self._cells += sum(len(row) for table in document.tables for row in table)
        for note in document.notes:
            self.note(f"{name}: {note}")
        self.document.truncated = self.document.truncated or document.truncated

    def note(self, text: str) -> None:
        """Add a note about the document for the reader."""
        if text not in self.document.notes:
            self.document.notes.append(text)

    def cut(self, note: str) -> None:
        """Add a note that a limit cut something off."""
        self.document.truncated = True
        self.note(note)

    def finish(self) -> None:
        """Assemble the Markdown."""
        self.document.markdown = "".join(self._blocks)
        if self._invisible:
            self.note(f"{self._invisible:,} invisible characters removed")
        if self._undecoded:
            self.note(f"characters that could not be decoded: {self._undecoded:,}")


def hidden_note(places: int) -> str:
    """Return the note about omitted hidden text."""
    return f"hidden text left out (places: {places:,})"


def line_of_part(kind: str, number: int, remark: str = "") -> str:
    """Return the line that begins a page, slide, sheet or chapter."""
    return f"<!-- {kind} {number}{remark} -->"


def fenced(text: str, language: str = "") -> str:
    """Return a block of code, in a fence that the code does not contain."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def lines_of(table: Table) -> Iterator[str]:
    yield _line(table[0])
    yield "|" + " --- |" * len(table[0])
    for row in table[1:]:
        yield _line(row)


def _line(row: Sequence[str]) -> str:
    return f"| {' | '.join(map(_cell, row))} |"


def _cell(text: str) -> str:
    escaped = text.replace("|", "\\|") if "|" in text else text
    return "<br>".join(filter(None, map(str.strip, escaped.splitlines())))
