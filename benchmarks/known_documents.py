"""Readers of PDF against what the authors wrote: the HTML of the same document.

`KNOWN` names a folder with pairs of the same content: `NAME.pdf` and `NAME.html`, or a folder
`NAME` with its chapters. Manuals of Debian packages come in both forms; Chromium prints pages:

    apt-get download developers-reference && dpkg-deb -x developers-reference_*.deb unpacked
    chromium --headless --no-pdf-header-footer --print-to-pdf=known/NAME.pdf known/NAME.html

A table is one that its author gave header cells; tables that only lay out a page are none.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

_HEADING = re.compile(r"h[1-6]")
_SKIPPED = frozenset({"script", "style", "nav", "head"})
_VOID = frozenset({"br", "hr", "img", "meta", "link", "input", "col", "wbr", "area", "base"})
_AROUND = re.compile(r"nav(header|footer|igation)?|sphinxsidebar|related|footer|toc|headerlink")
"""Classes of what stands around the content of a page, and is not printed."""
_ADMONITIONS = frozenset({"Note", "Tip", "Warning", "Caution", "Important"})
"""Summaries of tables that DocBook makes of a remark and its picture."""
_BLOCK = frozenset({"p", "div", "li", "dt", "dd", "td", "th", "tr", "br", "pre", "table"})


class Known(NamedTuple):
    """What a document says."""

    words: Counter[str]
    headings: list[str]
    cells: Counter[str]
    """Of its tables, without what stands between letters and digits."""
    links: set[str]


class Part(NamedTuple):
    """How much of it a reader gives back."""

    words: float
    headings: float
    cells: float
    """Cells of tables that are cells of tables."""
    sound: float
    """Of the cells that the reader gives, those that are some."""
    links: float


def pairs() -> dict[Path, Known]:
    """Return the documents whose content is known."""
    folder = os.environ.get("KNOWN", "")
    found = sorted(Path(folder).glob("*.pdf")) if folder else []
    return {path: known(_pages(path.with_suffix(""))) for path in found}


def _pages(name: Path) -> list[str]:
    files = sorted(name.glob("**/*.html")) if name.is_dir() else [name.with_suffix(".html")]
    return [path.read_text(errors="replace") for path in files]


def known(pages: Sequence[str]) -> Known:
    """Return what the pages of a document say."""
    whole = Known(Counter(), [], Counter(), set())
    for page in pages:
        reader = _Html()
        reader.feed(page)
        whole.words.update(_words(" ".join(reader.text)))
        whole.headings.extend(filter(None, map(_letters, reader.headings)))
        whole.cells.update(filter(None, map(_key, reader.cells)))
        whole.links.update(reader.links)
    return whole


def part(known: Known, markdown: str) -> Part:
    """Return how much of a document a reader gives back.

    Args:
        known: What it says.
        markdown: What the reader makes of it.
    """
    words = Counter(_words(re.sub(r"\]\([^)]*\)", " ", markdown)))
    given = "".join(re.findall(r"[^\W\d_]+", markdown))
    kept = sum(
        count if word in given else min(count, words[word]) for word, count in known.words.items()
    )
    headings = Counter(map(_letters, re.findall(r"(?m)^#{1,6} (.*)$", markdown)))
    cells = Counter(_cells(markdown))
    both = (cells & known.cells).total()
    return Part(
        _share(kept, known.words.total()),
        _share((headings & Counter(known.headings)).total(), len(known.headings)),
        _share(both, known.cells.total()),
        _share(both, cells.total()),
        _share(sum(link in markdown for link in known.links), len(known.links)),
    )


def _cells(markdown: str) -> Iterator[str]:
    for line in markdown.splitlines():
        if line.startswith("|") and not re.fullmatch(r"[|\s:-]+", line):
            yield from filter(None, map(_key, re.split(r"(?<!\\)\|", line)))


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W\d_]{2,}", text)


def _letters(text: str) -> str:
    return "".join(re.findall(r"[^\W\d_]+", text)).casefold()


def _key(text: str) -> str:
    return "".join(re.findall(r"\w+", text)).casefold()


def _share(found: int, wanted: int) -> float:
    return found / wanted if wanted else 1.0


class _Html(HTMLParser):
    """Reads text, headings, cells of tables with header cells, and addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.text: list[str] = []
        self.headings: list[str] = []
        self.cells: list[str] = []
        self.links: set[str] = set()
        self._open: list[str] = []
        self._hidden: int | None = None
        """How deep it was where something began that is not printed."""
        self._heading: list[str] | None = None
        self._tables: list[tuple[list[list[str]], bool, bool]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _VOID:
            self.text.append(" ")
            return
        self._open.append(tag)
        given = dict(attrs)
        classes = (given.get("class") or "").split()
        if self._hidden is None and (
            tag in _SKIPPED
            or (tag == "details" and "open" not in given)
            or any(_AROUND.fullmatch(one) for one in classes)
        ):
            self._hidden = len(self._open)
        if self._hidden is not None:
            return
        href = given.get("href") or ""
        if tag == "a" and href.startswith(("http:", "https:", "mailto:")):
            self.links.add(href)
        elif _HEADING.fullmatch(tag):
            self._heading = []
        elif tag == "table":
            self._tables.append(([], False, given.get("summary") in _ADMONITIONS))
        elif tag in ("td", "th") and self._tables:
            cells, headed, layout = self._tables[-1]
            cells.append([])
            self._tables[-1] = cells, headed or tag == "th", layout
        if tag in _BLOCK:
            self.text.append(" ")

    def handle_endtag(self, tag: str) -> None:
        if tag not in self._open:
            return
        while self._open.pop() != tag:
            pass
        if self._hidden is not None:
            if len(self._open) < self._hidden:
                self._hidden = None
            return
        if self._heading is not None and _HEADING.fullmatch(tag):
            self.headings.append("".join(self._heading))
            self._heading = None
        elif tag == "table" and self._tables:
            cells, headed, layout = self._tables.pop()
            if headed and not layout:
                self.cells.extend("".join(cell) for cell in cells)

    def handle_data(self, data: str) -> None:
        if self._hidden is not None:
            return
        self.text.append(data)
        if self._heading is not None:
            self._heading.append(data)
        if self._tables and self._tables[-1][0]:
            self._tables[-1][0][-1].append(data)
