"""Markdown: inline formatting, blocks, lists, tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple
from urllib.parse import quote

from flowengine_envs.documents.document import Document, Limits, Part, Table
from flowengine_envs.documents.invisible_characters import visible

_BLOCK_MARK = re.compile(
    r"(?:#{1,6}(?=\s|$)|[-+*](?=\s|$)|>|(?:```|~~~|---|===))|(\d{1,9})([.)])(?=\s)"
)
_SAFE_SCHEMES = ("http", "https", "mailto", "tel", "ftp", "file", "cid")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_LONGEST_LINK = 2_000
_LONGEST_ALT = 500
_BREAK = "\n"
_SCRIPT = re.compile(r"[\w+\-\u2212\u2013=().,*/\u2032 ]{1,20}")
_ORDINALS = frozenset(("st", "nd", "rd", "th", "e", "er", "re", "ème", "ère", "o", "a", "tm", "sm"))


class Span(NamedTuple):
    """Text of one look. A line break is a span of its own, or within the text."""

    text: str
    bold: bool = False
    italic: bool = False
    code: bool = False
    strike: bool = False
    link: str = ""
    raw: bool = False
    """Whether it is Markdown already."""
    script: str = ""
    """`^` if it stands above the line, `_` if it stands below."""


class Full(Exception):
    """The document has as many characters as it may; what is there is kept."""


def inline(spans: Iterable[Span], line_break: str = "  \n") -> str:
    """Return spans as Markdown, with white space collapsed.

    Args:
        line_break: What stands for a line break.
    """
    parts: list[str] = []
    for link, linked in groupby(_collapsed(_scripted(spans)), lambda span: span.link):
        text = "".join(_look(list(same)) for same in _of_one_look(linked))
        if link and text.strip():
            before, core, after = _split(text)
            text = f"{before}[{core}]({link}){after}"
        parts.append(text)
    text = "".join(parts)
    text = re.sub(r"[ \t]*\n[ \t]*", _BREAK, text).strip()
    return text.replace(_BREAK, line_break)


def _scripted(spans: Iterable[Span]) -> Iterator[Span]:
    """Write what stands above or below the line so that `10⁶` does not become `106`.

    Marks of footnotes, ordinals (`1st`), links and whole sentences stay as they are.
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


def _collapsed(spans: Iterable[Span]) -> Iterator[Span]:
    """Collapse white space, also across spans."""
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


def _of_one_look(spans: Iterable[Span]) -> Iterator[Iterator[Span]]:
    looks = groupby(spans, lambda span: (span.bold, span.italic, span.code, span.strike, span.raw))
    return (same for _, same in looks)


def _look(spans: Sequence[Span]) -> str:
    """Return spans of one look; marks go next to the text, or they would not count."""
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
    """Return where a link leads as it stands in Markdown; empty: it leads nowhere that is safe."""
    url = "".join(url.split()) if "\n" in url or "\t" in url else url.strip()
    scheme = _SCHEME.match(url)
    if scheme is not None and scheme[1].lower() not in _SAFE_SCHEMES:
        return ""
    if len(url) > _LONGEST_LINK:
        return ""
    return quote(url, safe="!#$%&'*+,/:;=?@[]~-._|{}^").replace("|", "%7C")


def image(alt: str, url: str) -> Span:
    """Return an image; embedded ones have no address."""
    text = " ".join(alt.split())
    if len(text) > _LONGEST_ALT:  # only machines read it: a place to hide instructions
        text = f"{text[:_LONGEST_ALT]}…"
    shown = text.replace("[", "\\[").replace("]", "\\]")
    where = target(url)
    return Span(f"![{shown}]({where})" if shown or where else "", raw=True)


def plain(text: str) -> str:
    """Return text so that the start of no line is taken for the mark of a block."""
    return "\n".join(_unmarked(line) for line in text.split("\n"))


def _unmarked(line: str) -> str:
    found = _BLOCK_MARK.match(line)
    if found is None:
        return line
    if found[1] is not None:
        return f"{found[1]}\\{line[found.end(1) :]}"
    return f"\\{line}"


def rectangle(rows: Iterable[Sequence[str]]) -> Table:
    """Return rows as a table: all of one length, without rows and columns that are empty."""
    kept = [[cell.strip() for cell in row] for row in rows]
    kept = [row for row in kept if any(row)]
    width = max((len(row) for row in kept), default=0)
    full = [row + [""] * (width - len(row)) for row in kept]
    used = [column for column in range(width) if any(row[column] for row in full)]
    return full if len(used) == width else [[row[column] for column in used] for row in full]


class Writer:
    """Writes the Markdown of a document, block by block, within the limits.

    Args:
        document: What is filled.
        limits: How long it may become.
    """

    def __init__(self, document: Document, limits: Limits) -> None:
        self.document = document
        self.limits = limits
        self._blocks: list[str] = []
        self._length = 0
        self._in_list = False
        self._cells = 0
        self._invisible = 0

    @property
    def length(self) -> int:
        """Characters written so far."""
        return self._length

    def block(self, text: str, *, tight: bool = False) -> None:
        """Write a block.

        Args:
            text: Markdown of several lines.
            tight: Whether it follows the one before without an empty line.

        Raises:
            Full: The document is as long as it may be.
        """
        text, count = visible(text)
        self._invisible += count
        if not text.strip():
            return
        between = "" if not self._blocks else "\n" if tight else "\n\n"
        room = self.limits.characters - self._length - len(between)
        if len(text) > room:
            self._add(between, text[: max(room, 0)])
            self.cut(f"cut after {self.limits.characters:,} characters (limit 'characters')")
            raise Full
        self._add(between, text)

    def _add(self, between: str, text: str) -> None:
        self._blocks += [between, text]
        self._length += len(between) + len(text)

    def paragraph(self, text: str) -> None:
        """Write a paragraph; its text is Markdown, but begins no other block."""
        self._in_list = False
        self.block(plain(text))

    def heading(self, level: int, text: str) -> None:
        """Write a heading in one line; an empty one is left out."""
        self._in_list = False
        line = " ".join(text.split())
        if line:
            self.block(f"{'#' * min(max(level, 1), 6)} {line}")

    def item(self, level: int, text: str, mark: str = "-") -> None:
        """Write an item of a list.

        Args:
            level: 0 for the outermost list.
            mark: `-`, or a number with a dot.
        """
        indent = " " * 4 * min(level, 20)
        inner = f"\n{indent}{' ' * (len(mark) + 1)}"
        if text.strip():
            self.block(f"{indent}{mark} {text.replace(_BREAK, inner)}", tight=self._in_list)
            self._in_list = True

    def code(self, text: str, language: str = "") -> None:
        """Write a block of code."""
        self._in_list = False
        if text.strip():
            self.block(fenced(text.strip("\n"), language))

    def table(self, rows: Iterable[Sequence[str]]) -> None:
        """Write a table, its first row as the head; cells are Markdown in one line or several.

        Rows are taken one by one, no more than the limit of cells lets in.
        """
        self._in_list = False
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
        """Mark where a page, slide, sheet or chapter begins.

        Raises:
            Full: There are as many as there may be.
        """
        if len(self.document.parts) == self.limits.pages:
            self.cut(f"cut after {self.limits.pages:,} {kind}s (limit 'pages')")
            raise Full
        self._in_list = False
        start = self._length + (2 if self._blocks else 0)
        self.document.parts.append(Part(kind, number, name, start))
        self.block(line_of_part(kind, number, remark))

    def note(self, text: str) -> None:
        """Tell the reader something about the document."""
        if text not in self.document.notes:
            self.document.notes.append(text)

    def cut(self, note: str) -> None:
        """Tell the reader that a limit cut something off."""
        self.document.truncated = True
        self.note(note)

    def finish(self) -> None:
        """Put the Markdown together."""
        self.document.markdown = "".join(self._blocks)
        if self._invisible:
            self.note(f"{self._invisible:,} invisible characters removed")


def hidden_note(places: int) -> str:
    """Return the note that hidden text was left out."""
    return f"hidden text left out (places: {places:,})"


def line_of_part(kind: str, number: int, remark: str = "") -> str:
    """Return the line with which a page, slide, sheet or chapter begins."""
    return f"<!-- {kind} {number}{remark} -->"


def fenced(text: str, language: str = "") -> str:
    """Return a block of code, in a fence that the code does not contain."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def lines_of(table: Table) -> Iterator[str]:
    """Yield the lines of a table."""
    yield _line(table[0])
    yield "|" + " --- |" * len(table[0])
    for row in table[1:]:
        yield _line(row)


def _line(row: Sequence[str]) -> str:
    return f"| {' | '.join(map(_cell, row))} |"


def _cell(text: str) -> str:
    escaped = text.replace("|", "\\|") if "|" in text else text
    return re.sub(r"\s*\n\s*", "<br>", escaped) if "\n" in escaped else escaped
