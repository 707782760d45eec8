"""Tables of a PDF without lines, which contains only texts with positions.

Texts on one height are cells, with gaps between them. Consecutive lines whose cells keep to common
columns are the rows of a table. A cell may continue on the lines below it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

_MARKS = re.compile(r"[•◦▪‣●○■*\u2013-]|\(?\w{1,4}[.)]")
"""Marks before the items of a list."""
_NUMBER = re.compile(r"[-+(]?[$€£]?\s?\d[\d.,\s]*\S{0,3}$")
_RIGHT_TO_LEFT = re.compile(r"[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]")
_LEADER = re.compile(r"(?:\. ?){4}")
_FEWEST_ROWS = 3
_MOST_LINES = 600
"""Maximum lines of a page with such tables."""
_SAME_LINE = 0.3
"""Maximum difference in height of the texts of a line. All distances are in font sizes."""
_GAP = 0.7
"""Minimum gap between two cells."""
_LARGER = 1.1
"""Ratio of the size of a heading between tables to that of their texts."""
_COLUMN_GAP = 0.38
"""Minimum gap between two columns, where no row has text."""
_STEP = 3.2
"""Maximum distance between lines of a table."""
_TIGHT = 1.4
"""Maximum distance between the lines of a cell."""


class Word(NamedTuple):
    """A word of a page, in points from its lower left corner."""

    text: str
    start: float
    end: float
    y: float
    """Its baseline."""
    size: float
    """Its approximate font size."""


class TableRow(NamedTuple):
    """A row of a table."""

    cells: list[str]
    key: str
    """Its text without spaces, by which it is found in the text of the page."""


class AlignedTable(NamedTuple):
    """A table without lines, and where it is."""

    rows: list[list[str]]
    left: float
    right: float
    lines: list[float]
    """The baselines of its lines, from the top."""
    size: float
    """Its font size."""

    def has(self, x: float, y: float) -> bool:
        """Return whether a text that begins at a point belongs to it."""
        return self.left - self.size <= x <= self.right and any(
            abs(y - line) <= _SAME_LINE * self.size for line in self.lines
        )


class _Cell(NamedTuple):
    start: float
    end: float
    words: list[Word]


class _Line(NamedTuple):
    y: float
    size: float
    cells: list[_Cell]


def key_of(line: str) -> str:
    """Return a line without spaces."""
    return "".join(line.split())


def looks_like_number(text: str) -> bool:
    """Return whether a text begins as a number, an amount or a date does."""
    return _NUMBER.match(text) is not None


def looks_like_mark(text: str) -> bool:
    """Return whether a text looks like the mark of a list item."""
    return _MARKS.fullmatch(text) is not None


def find_tables(
    words: Iterable[Word], bold: Collection[float] = (), is_reversed: bool = False
) -> Iterator[AlignedTable]:
    """Yield the tables of a page.

    Args:
        words: Its words that are in no other table.
        bold: The baselines of lines in bold type, which may be headings between tables.
        is_reversed: Whether the page is read from right to left.
    """
    lines = _lines(words)
    if len(lines) > _MOST_LINES:
        return
    is_bold = [any(abs(line.y - y) < 1 for y in bold) for line in lines]
    for start, end in _groups(lines, is_bold):
        if table := _table(lines[start:end], lines[max(start - 1, 0) : start]):
            rows = [row[::-1] for row in table.rows] if is_reversed else table.rows
            yield table._replace(rows=rows)


def _lines(words: Iterable[Word]) -> list[_Line]:
    """Return the lines of a page from the top."""
    lines: list[list[Word]] = []
    for word in sorted(words, key=lambda word: (-word.y, word.start)):
        if lines and lines[-1][0].y - word.y <= _SAME_LINE * word.size:
            lines[-1].append(word)
        else:
            lines.append([word])
    return [_line(line) for line in lines]


def _line(words: Sequence[Word]) -> _Line:
    cells: list[_Cell] = []
    for word in sorted(words, key=lambda word: word.start):
        if cells and word.start - cells[-1].end < _GAP * word.size:
            start, end, own = cells.pop()
            cells.append(_Cell(start, max(end, word.end), [*own, word]))
        else:
            cells.append(_Cell(word.start, word.end, [word]))
    return _Line(words[0].y, max(word.size for word in words), cells)


def _groups(lines: Sequence[_Line], is_bold: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of consecutive lines that may be a table.

    The first one has several cells.
    """
    start: int | None = None
    for at, line in enumerate(lines):
        alone = len(line.cells) == 1
        is_heading = alone and is_bold[at] and not is_bold[at - 1]
        if start is not None and (is_heading or not _belongs(line, lines[start:at])):
            yield start, at
            start = None
        if start is None and not alone:
            start = at
    if start is not None:
        yield start, len(lines)


def _belongs(line: _Line, group: Sequence[_Line]) -> bool:
    """Return whether a line may belong to the table above it."""
    steps = [above.y - below.y for above, below in pairwise([*group, line])]
    size = max(line.size, group[-1].size)
    most = max(1.9 * max(steps[:-1]), 1.7 * size) if len(group) > 1 else _STEP * size
    if steps[-1] > min(most, _STEP * size):
        return False
    if len(line.cells) > 1:
        return True
    if line.size > _LARGER * min(above.size for above in group):
        return False
    (cell,) = line.cells
    several = (above for above in group if len(above.cells) > 1)
    columns = _merged(((each.start, each.end) for above in several for each in above.cells), 0)
    return sum(cell.start < end and start < cell.end for start, end in columns) == 1


def _table(lines: Sequence[_Line], above: Sequence[_Line]) -> AlignedTable | None:
    """Return lines as a table, or None if their cells keep to no columns.

    Args:
        lines: The lines. The first one has several cells.
        above: The line above them, if there is one. It is a header with narrow gaps if its words
            are in several columns.
    """
    several = [line for line in lines if len(line.cells) > 1]
    if len(several) < _FEWEST_ROWS:
        return None
    columns = _columns(several)
    if len(columns) < 2:
        return None
    gap = _least_gap(lines)
    if (
        above
        and above[0].size < _LARGER * lines[0].size
        and _belongs(lines[0], above)
        and len(_by_column(above[0], columns, gap)) > 1
    ):
        lines = [*above, *lines]
    rows = _rows(lines, columns, gap)
    while len(rows[-1]) == len(rows[-1][0]) == 1:  # a text below the table
        rows.pop()
    cells = [
        [" ".join(line[at] for line in row if at in line) for at in range(len(columns))]
        for row in rows
    ]
    if len(cells) < _FEWEST_ROWS or not _is_table(cells):
        return None
    baselines = [line.y for line in lines[: sum(map(len, rows))]]
    return AlignedTable(cells, columns[0][0], columns[-1][1], baselines, lines[0].size)


def _columns(lines: Sequence[_Line]) -> list[tuple[float, float]]:
    """Return the start and the end of each column: where words of the fullest lines are.

    Texts of other lines add a column if they are beside all others.
    """
    by_count = sorted(lines, key=lambda line: -len(line.cells))
    most = len(by_count[1].cells)
    full = [line for line in by_count if len(line.cells) >= max(most - 1, 2)]
    words = [(word.start, word.end) for line in full for cell in line.cells for word in cell.words]
    columns = _merged(words, _least_gap(lines))
    for cell in (cell for line in by_count[len(full) :] for cell in line.cells):
        if sum(cell.start < end and start < cell.end for start, end in columns) < 2:
            columns = _merged([*columns, (cell.start, cell.end)], 0)
    return columns


def _least_gap(lines: Sequence[_Line]) -> float:
    """Return the minimum gap between columns, which is clearly wider than a blank."""
    gaps = (
        after.start - before.end
        for line in lines
        for cell in line.cells
        for before, after in pairwise(cell.words)
    )
    return max(median([*gaps] or [0.0]) * 1.3, _COLUMN_GAP * lines[0].size)


def _merged(spans: Iterable[tuple[float, float]], gap: float) -> list[tuple[float, float]]:
    """Return spans, with those joined that are closer than a gap."""
    merged: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if merged and start - merged[-1][1] < gap:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return merged


def _rows(
    lines: Sequence[_Line], columns: Sequence[tuple[float, float]], gap: float
) -> list[list[dict[int, str]]]:
    """Return the rows of a table: the texts of their lines by column.

    Where rows are farther apart than lines, the distance shows which lines belong together.
    Elsewhere, a line with a single text continues the row above it.
    """
    texts = [_by_column(line, columns, gap) for line in lines]
    tight = _tight_step(lines)
    rows = [[texts[0]]]
    for (above, below), line in zip(pairwise(lines), texts[1:], strict=True):
        if tight:
            continues = above.y - below.y <= tight and not _has_same_number(line, rows[-1])
        else:
            ((column, text),) = line.items() if len(line) == 1 else ((0, ""),)
            continues = (bool(column) and not looks_like_number(text)) or text[:1].islower()
        if continues:
            rows[-1].append(line)
        else:
            rows.append([line])
    return rows


def _tight_step(lines: Sequence[_Line]) -> float:
    """Return the maximum distance between the lines of a row, or 0 if it is that between rows."""
    steps = [above.y - below.y for above, below in pairwise(lines)]
    rows = sum(len(line.cells) > 1 for line in lines)
    for low, high in reversed([*pairwise(sorted(steps))]):
        far = sum(step > low for step in steps)
        if low <= _TIGHT * lines[0].size and high > 1.15 * low and far * 2 >= rows - 1:
            return low
    return 0.0


def _by_column(line: _Line, columns: Sequence[tuple[float, float]], gap: float) -> dict[int, str]:
    """Return the texts of a line by the column that has most of each, or is nearest."""
    texts: dict[int, list[Word]] = {}
    for part in (part for cell in line.cells for part in _parts(cell, columns, gap)):
        column = texts.setdefault(_column(part[0].start, part[-1].end, columns), [])
        column += part
    return {column: _text(words) for column, words in texts.items()}


def _text(words: Sequence[Word]) -> str:
    """Return the text of words from left to right. Those of Hebrew or Arabic begin at the right."""
    is_reversed = any(_RIGHT_TO_LEFT.search(word.text) for word in words)
    return " ".join(word.text for word in (words[::-1] if is_reversed else words))


def _parts(cell: _Cell, columns: Sequence[tuple[float, float]], gap: float) -> Iterator[list[Word]]:
    """Yield the words of a cell, apart where another column begins after a gap."""
    part = cell.words[:1]
    for before, word in pairwise(cell.words):
        places = (_column(each.start, each.end, columns) for each in (before, word))
        if word.start - before.end >= gap and len({*places}) > 1:
            yield part
            part = []
        part.append(word)
    yield part


def _column(start: float, end: float, columns: Sequence[tuple[float, float]]) -> int:
    shared = [min(end, right) - max(start, left) for left, right in columns]
    return shared.index(max(shared))


def _has_same_number(line: dict[int, str], row: Sequence[dict[int, str]]) -> bool:
    """Return whether a line has a number below one of a row, which would be another row."""
    return any(
        looks_like_number(text) and looks_like_number(above.get(column, ""))
        for column, text in line.items()
        for above in row
    )


def _is_table(rows: list[list[str]]) -> bool:
    """Return whether rows are a table, and not a list, code or text in columns.

    A table has a column of numbers after its first one, or four rows and three columns that are
    nearly full. Dots lead to the page numbers of an index.
    """
    if sum(any(map(_LEADER.search, row)) for row in rows) * 2 > len(rows):
        return False
    if all(not row[0] or _MARKS.fullmatch(row[0]) for row in rows):
        return False
    columns = [*zip(*rows, strict=True)]
    numbers = (sum(map(bool, map(_NUMBER.match, column[1:]))) for column in columns[1:])
    if any(count * 2 >= len(rows) - 1 for count in numbers):
        return True
    filled = sum(map(bool, (cell for row in rows for cell in row)))
    return len(rows) > 3 and len(columns) > 2 and filled * 10 >= len(rows) * len(columns) * 9
