"""An accessibility tree as lines, with their groups and controls.

The tree is Playwright's text of a page, one element per line, indented below its parent:

    - row "Lamp 30 Buy" [ref=e7]:
      - cell "Lamp" [ref=e8]
      - button "Buy" [ref=e10] [cursor=pointer]
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

_LINE = re.compile(
    r"- '?(?P<role>[/a-z]+)(?: (?P<name>\"(?:[^\"\\]|\\.)*\"))?(?P<states>(?: \[[^\]]*\])*)"
    r"(?P<text>.*)",
    re.DOTALL,
)
_REFERENCE = re.compile(r"\[ref=((?:f\d+)?e\d+)\]")
_LEVEL = re.compile(r"\[level=(\d+)\]")
_CONTROLS = {
    *("button", "checkbox", "combobox", "link", "listbox", "radio", "searchbox", "slider"),
    *("menuitem", "menuitemcheckbox", "menuitemradio", "spinbutton", "switch", "tab", "textbox"),
    "treeitem",
}
_ROWS = {
    *("alertdialog", "article", "dialog", "figure", "form", "group", "listitem", "region", "row"),
    *("tabpanel", "treeitem"),
}
"""Roles of elements whose parts belong together."""
LARGEST = 40
"""Maximum lines of a region. A larger one contains too much unrelated content."""
_CARD = 8
"""Maximum lines of an element that is shown whole with any part of it."""
_MOST_WORDS = 10


class OutlineLine(NamedTuple):
    """A line of a tree."""

    text: str
    """The text without indentation."""
    depth: int
    parent: int
    """Line number of its parent, or -1."""
    role: str
    words: str
    """Its name and text."""
    ref: str
    control: bool
    """Whether it can be clicked or filled in."""
    level: int
    """Level of a heading, or 0."""

    @property
    def stands_out(self) -> bool:
        """Whether it is a control, a heading or a row, rather than text or a container."""
        return self.control or bool(self.level) or self.role in _ROWS


class Outline:
    """The lines of a tree.

    Args:
        tree: Its text.
    """

    def __init__(self, tree: str) -> None:
        self.lines: list[OutlineLine] = []
        self._ends: list[int] = []
        self._children: dict[int, list[int]] = {}
        open_lines: list[tuple[int, int]] = []  # indentation and number of each ancestor
        # Names may contain other line separators, which must not create further lines.
        for raw in tree.removesuffix("\n").split("\n") if tree else ():
            text = raw.lstrip(" ")
            indentation = len(raw) - len(text)
            while open_lines and open_lines[-1][0] >= indentation:
                self._ends[open_lines.pop()[1]] = len(self.lines)
            parent = open_lines[-1][1] if open_lines else -1
            open_lines.append((indentation, len(self.lines)))
            self.lines.append(_line(text.rstrip(), len(open_lines) - 1, parent))
            self._ends.append(0)
        for _, number in open_lines:
            self._ends[number] = len(self.lines)

    def below(self, at: int) -> range:
        """Return a line and its descendants."""
        return range(at, self._ends[at])

    def find(self, ref: str) -> int | None:
        """Return the line with a reference."""
        return next((at for at, line in enumerate(self.lines) if line.ref == ref), None)

    def path(self, at: int) -> list[OutlineLine]:
        """Return the named ancestors of a line, the outermost first."""
        lines = []
        while (at := self.lines[at].parent) >= 0:
            if '"' in self.lines[at].text.partition("[")[0]:
                lines.append(self.lines[at])
        return lines[::-1]

    def heading(self, region: range) -> int | None:
        """Return the last heading before a region of a higher level than its own."""
        own = self._level(region[0])
        levels = ((at, self.lines[at].level) for at in range(region[0] - 1, -1, -1))
        return next((at for at, level in levels if level and (not own or level < own)), None)

    def around(self, at: int) -> range:
        """Return the row, the card, or the section below a heading that a line belongs to."""
        card, node = at, at
        while node >= 0 and len(region := self.below(node)) <= LARGEST:
            if self.lines[node].role in _ROWS and len(region) > 1:
                return region
            card = node if len(region) <= _CARD else card
            node = self.lines[node].parent
        if card != at and not self._level(card):
            return self.below(card)
        siblings = self._siblings(self.lines[card].parent)
        place = bisect_left(siblings, card)
        before = siblings[max(0, place - LARGEST) : place + 1]
        head = next((each for each in reversed(before) if self._level(each)), None)
        if head is None:
            return self.below(card)[:LARGEST]
        after = siblings[place + 1 : place + 1 + LARGEST]
        ends = (each for each in after if 0 < self._level(each) <= self._level(head))
        section = range(head, next(ends, self._ends[siblings[-1]]))
        return section if len(section) <= LARGEST else self.below(card)[:LARGEST]

    def holding(self, words: Sequence[str]) -> list[int]:
        """Return the innermost lines that, with their descendants, contain all of these words."""
        counts = []
        for word in words[:_MOST_WORDS]:
            hits = [word in line.words.casefold() for line in self.lines]
            counts.append([0, *accumulate(map(int, hits))])

        def holds(at: int) -> bool:
            end = self._ends[at]
            return all(count[end] > count[at] for count in counts)

        positions = [at for at in range(len(self.lines)) if holds(at)]
        outer = {self.lines[at].parent for at in positions}
        return [at for at in positions if at not in outer and len(self.below(at)) <= LARGEST]

    def _level(self, at: int) -> int:
        """Return the level of a heading, or of the first one in a card."""
        region = self.below(at)
        if len(region) > _CARD:
            return self.lines[at].level
        return next((self.lines[item].level for item in region if self.lines[item].level), 0)

    def _siblings(self, parent: int) -> list[int]:
        """Return the children of a line."""
        if (children := self._children.get(parent)) is None:
            at, end = (0, len(self.lines)) if parent < 0 else (parent + 1, self._ends[parent])
            children = self._children[parent] = []
            while at < end:
                children.append(at)
                at = self._ends[at]
        return children


def _line(text: str, depth: int, parent: int) -> OutlineLine:
    parts = _LINE.fullmatch(text)
    if parts is None:
        return OutlineLine(text, depth, parent, "", text, "", False, 0)
    role, states = parts["role"], parts["states"]
    ref, level = _REFERENCE.search(states), _LEVEL.search(states)
    control = role in _CONTROLS or "[cursor=pointer]" in states
    words = f"{parts['name'] or ''}{parts['text'].strip(' :')}"
    return OutlineLine(
        text,
        depth,
        parent,
        role,
        "" if role.startswith("/") else words,
        ref[1] if ref else "",
        control and ref is not None,
        int(level[1]) if level and role == "heading" else 0,
    )
