"""The rows of a sheet whose cells are read one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from flowengine_envs.documents.sheet_marks import linked, mark_columns, mark_row

_MOST_LINKS = 100_000


class SheetLink(NamedTuple):
    """A link of cells."""

    top: int
    bottom: int
    left: int
    right: int
    address: str


class SheetRows:
    """Collects the cells of a sheet, in any order, without those that are empty."""

    def __init__(self) -> None:
        self.hidden_columns: list[range] = []
        self.hidden_rows: set[int] = set()
        self._links: list[SheetLink] = []
        self._rows: dict[int, dict[int, str]] = {}

    def put(self, row: int, column: int, text: str) -> None:
        """Add a cell."""
        if text:
            self._rows.setdefault(row, {})[column] = text

    def link(self, link: SheetLink) -> None:
        """Add a link."""
        if len(self._links) < _MOST_LINKS:
            self._links.append(link)

    def marked(self, note: Callable[[str], None], most: int) -> list[list[str]]:
        """Return the rows, with links and with marks of hidden rows and columns.

        Args:
            note: Takes notes for the reader.
            most: The number of cells that they may have. The row that exceeds it is the last one.
        """
        self._put_links()
        rows = []
        for number, cells in sorted(self._rows.items()):
            texts = [""] * (max(cells) + 1)
            for column, text in cells.items():
                texts[column] = text
            if number in self.hidden_rows:
                mark_row(texts, note)
            rows.append(texts)
            most -= len(texts)
            if most < 0:
                break
        mark_columns(rows, self.hidden_columns, note)
        return rows

    def _put_links(self) -> None:
        left = _MOST_LINKS
        for link in self._links:
            many = link.bottom - link.top > len(self._rows)
            for row in [*self._rows] if many else range(link.top, link.bottom + 1):
                cells = self._rows.get(row, {}) if link.top <= row <= link.bottom else {}
                for column in cells:
                    if link.left <= column <= link.right:
                        cells[column] = linked(cells[column], link.address)
                left -= 1
            if left < 0:
                return
