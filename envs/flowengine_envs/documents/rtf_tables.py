"""Tables in Rich Text Format, whose rows state the right edges of their cells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_NEAR = 40
"""Edges closer than this, in twentieths of a point, count as one."""
_MOST_CELLS = 500


class RtfTable:
    """Collects the rows of a table."""

    def __init__(self) -> None:
        self._rows: list[tuple[list[int], list[str]]] = []
        """Left edges and texts of the cells of each row."""
        self._cells: list[str] = []
        self._edges: list[int] = []
        self._left = 0

    def define(self, word: bytes, number: int) -> None:
        """Take a control word of the definition of a row. Others are ignored."""
        if word == b"trowd":
            self._edges, self._left = [], 0
        elif word == b"trleft":
            self._left = number
        elif word == b"cellx" and len(self._edges) < _MOST_CELLS:
            self._edges.append(number)

    def end_cell(self, lines: Sequence[str]) -> None:
        """End a cell with these lines."""
        if len(self._cells) < _MOST_CELLS:
            self._cells.append("\n".join(filter(None, lines)))

    def end_row(self) -> None:
        """End a row."""
        lefts = [self._left, *self._edges]
        while len(lefts) < len(self._cells):
            lefts.append(lefts[-1] + _NEAR)
        if self._cells:
            self._rows.append((lefts[: len(self._cells)], self._cells))
        self._cells = []

    def rows(self) -> list[list[str]]:
        """Return the rows, with cells of the same left edge in the same column."""
        if self._cells:
            self.end_row()
        columns = _columns(left for lefts, _ in self._rows for left in lefts)
        rows = []
        for lefts, texts in self._rows:
            row = [""] * len(set(columns.values()))
            for left, text in zip(lefts, texts, strict=True):
                at = columns[left]
                row[at] = f"{row[at]}\n{text}".strip()
            rows.append(row)
        return rows


def _columns(lefts: Iterable[int]) -> dict[int, int]:
    """Return the column of each left edge."""
    columns: dict[int, int] = {}
    before, column = None, -1
    for left in sorted(set(lefts)):
        if before is None or left - before > _NEAR / 2:
            column += 1
        columns[left] = column
        before = left
    return columns
