"""Collects the cells of an HTML table while its text arrives."""

from __future__ import annotations

from typing import Any

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
        """Begin a row."""
        self.rows.append([])
        self._covered = {column: left for column, left in self._covered.items() if left > 0}

    def cell(self, columns: int, rows: int) -> None:
        """Begin a cell."""
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
