"""Tables in the text of a PDF, which contains only words with positions.

Lines of the page layout are split at gaps. Consecutive lines with matching gaps are the rows of a
table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_GAP = re.compile(r"\S+(?: \S+)*")
"""A cell: words with single spaces between them."""
_MARKS = re.compile(r"[•◦▪‣●○■*\u2013-]|\(?\w{1,4}[.)]")
"""Marks before the items of a list."""
_NUMBER = re.compile(r"[-+(]?[$€£]?\s?\d[\d.,\s]*\S{0,3}$")
_FEWEST_ROWS = 3
_WIDEST = 2_000


class TableRow(NamedTuple):
    """A row of a table."""

    cells: list[str]
    key: str
    """Its text without spaces, by which it is found in the text of the page."""


class _Cell(NamedTuple):
    start: int
    end: int
    text: str


def key_of(line: str) -> str:
    """Return a line without spaces."""
    return "".join(line.split())


def looks_like_number(text: str) -> bool:
    """Return whether a text begins as a number, an amount or a date does."""
    return _NUMBER.match(text) is not None


def looks_like_mark(text: str) -> bool:
    """Return whether a text looks like the mark of a list item."""
    return _MARKS.fullmatch(text) is not None


def find_tables(layout: str) -> list[list[TableRow]]:
    """Return the tables of a page.

    Args:
        layout: Its text, with the layout reproduced by spaces.
    """
    return [rows for lines in _groups(layout.splitlines()) if (rows := _rows(lines))]


def find_rows(layout: str) -> dict[str, list[TableRow]]:
    """Return the lines of a page that have several cells, by the key of their first cell.

    Programs that draw a table cell by cell put each cell on a separate line.
    """
    tables: dict[str, list[TableRow]] = {}
    for line in layout.splitlines():
        cells = _GAP.findall(line[:_WIDEST])
        if len(cells) > 1:
            row = TableRow(cells, key_of("".join(cells)))
            tables.setdefault(key_of(cells[0]), []).append(row)
    return tables


def _groups(lines: Iterable[str]) -> Iterator[list[list[_Cell]]]:
    """Yield consecutive lines of several cells."""
    group: list[list[_Cell]] = []
    for line in (*lines, "end"):
        cells = [_Cell(*gap.span(), gap[0]) for gap in _GAP.finditer(line[:_WIDEST])]
        if len(cells) > 1:
            group.append(cells)
        elif cells:
            if len(group) >= _FEWEST_ROWS:
                yield group
            group = []


def _rows(lines: list[list[_Cell]]) -> list[TableRow]:
    """Return lines as the rows of a table, or none if their gaps do not match."""
    columns = _columns(lines)
    if len(columns) < 2:
        return []
    rows = []
    for line in lines:
        cells = [""] * len(columns)
        for cell in line:
            at = next(at for at, end in enumerate(columns) if cell.start < end)
            cells[at] = f"{cells[at]} {cell.text}".strip()
        rows.append(TableRow(cells, key_of("".join(cell.text for cell in line))))
    return rows if _is_table([row.cells for row in rows]) else []


def _is_table(rows: list[list[str]]) -> bool:
    """Return whether rows are a table, and not a list, code or text in columns.

    A table has a column of numbers after its first one, or four rows and three columns that are
    nearly full.
    """
    if all(not row[0] or _MARKS.fullmatch(row[0]) for row in rows):
        return False
    columns = [*zip(*rows, strict=True)]
    numbers = (sum(map(bool, map(_NUMBER.match, column[1:]))) for column in columns[1:])
    if any(count * 2 >= len(rows) - 1 for count in numbers):
        return True
    filled = sum(map(bool, (cell for row in rows for cell in row)))
    return len(rows) > 3 and len(columns) > 2 and filled * 10 >= len(rows) * len(columns) * 9


def _columns(lines: list[list[_Cell]]) -> list[int]:
    """Return the end of each column, at places where no line has text."""
    spans = sorted((cell.start, cell.end) for line in lines for cell in line)
    ends: list[int] = []
    for start, end in spans:
        if ends and start <= ends[-1]:
            ends[-1] = max(ends[-1], end)
        else:
            ends.append(end)
    return ends
