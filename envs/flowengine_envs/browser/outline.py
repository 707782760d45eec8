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
_BESIDE_HEADING = 8
"""Maximum lines of an element that wraps a heading and its links, rather than a card."""
_LOWEST = 99
"""A level below all headings."""
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
        """Return the heading above a region."""
        within = self._level(region[0]) or _LOWEST
        node = region[0]
        while node >= 0:
            siblings = self._siblings(self.lines[node].parent)
            for at in reversed(siblings[: bisect_left(siblings, node)]):
                if 0 < self._level(at) < within:
                    return next(item for item in self.below(at) if self.lines[item].level)
            node = self.lines[node].parent
        return None

    def around(self, at: int) -> range:
        """Return the row, card or section that a line belongs to.

        It is the smallest region that completes the line: a text with its controls, or a control
        with the text that describes it.
        """
        at = self._outermost(at)
        if (row := self._row(at)) is not None:
            return row
        region, node = self.below(at), at
        if len(region) > LARGEST:
            region = range(at, at + 1)
        while node >= 0:
            section, parent = self._section(node), self.lines[node].parent
            if parent >= 0 and section == self.below(parent)[1:]:
                section = self.below(parent)
            if len(section) > LARGEST:
                break
            region = section
            if self._completes(region, at):
                break
            node = parent
        return region

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

    def _outermost(self, at: int) -> int:
        """Return the control that contains a line, or the element that wraps only a heading."""
        while (parent := self.lines[at].parent) >= 0:
            if not self.lines[parent].control and not (
                self._level(at) and self._level(parent) and at == parent + 1
            ):
                break
            at = parent
        return at

    def _row(self, at: int) -> range | None:
        """Return the innermost row, list item or form around a line that completes it."""
        node = at
        while node >= 0 and len(self.below(node)) <= LARGEST:
            region = self.below(node)
            own = node == at and len(region) > 1
            if self.lines[node].role in _ROWS and (own or self._completes(region, at)):
                return region
            node = self.lines[node].parent
        return None

    def _level(self, at: int) -> int:
        """Return the level of a heading or of its wrapper, or 0."""
        line, region = self.lines[at], self.below(at)
        if line.level or line.control or len(region) > _BESIDE_HEADING:
            return line.level
        return next((self.lines[item].level for item in region if self.lines[item].level), 0)

    def _section(self, node: int) -> range:
        """Return the siblings of a line that belong to it.

        They are those under the same heading. Without headings, a text starts a group and a control
        ends it: the next element of the same role belongs to another item.
        """
        line, siblings = self.lines[node], self._siblings(self.lines[node].parent)
        place = bisect_left(siblings, node)
        before = siblings[max(0, place - LARGEST) : place + 1][::-1]
        after = siblings[place + 1 : place + 1 + LARGEST]
        head = next((at for at in before if self._level(at)), None)
        if head is not None:
            level = self._level(head)
            ends = (at for at in after if 0 < self._level(at) <= level)
            return range(head, next(ends, self._ends[siblings[-1]]))
        last = node
        for at in before[1:] if line.control else after:
            if self.lines[at].role == line.role or self._level(at):
                break
            last = at
        return range(min(node, last), self._ends[max(node, last)])

    def _siblings(self, parent: int) -> list[int]:
        """Return the children of a line."""
        if (children := self._children.get(parent)) is None:
            at, end = (0, len(self.lines)) if parent < 0 else (parent + 1, self._ends[parent])
            children = self._children[parent] = []
            while at < end:
                children.append(at)
                at = self._ends[at]
        return children

    def _completes(self, region: range, at: int) -> bool:
        """Return whether a region adds a control to a text, or a text to a control."""
        own = self.below(at)
        others = [self.lines[item] for item in region if item not in own]
        if not self.lines[at].control:
            return any(line.control for line in others)
        names = "\n".join(self.lines[item].words for item in region if self.lines[item].control)
        return any(line.words and not line.control and line.words not in names for line in others)


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
