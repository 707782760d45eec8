"""Tables of a PDF that are drawn with lines around their cells.

Crossing lines of a page form a grid, and a text belongs to the cell in which it begins. Grids that
are not clearly tables stay text: frames, charts, lines of forms.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import pairwise, product
from typing import Any, NamedTuple

from flowengine_documents.pdf_directions import lines_of
from flowengine_documents.pdf_order import PdfLine, width_of
from flowengine_documents.pdf_tables import looks_like_number

NEAR = 3.0
"""Lines closer than this, in points, count as one. A filled shape that is thinner counts as a
line."""
_MOST_POINTS = 20_000
"""Maximum points of a page's paths. A page with more is a drawing."""
_CURVES = frozenset({b"c", b"v", b"y"})
_STROKES = frozenset({b"S", b"s", b"B", b"B*", b"b", b"b*"})
_FILLS = frozenset({b"f", b"F", b"f*"})
_PAINTS = _STROKES | _FILLS | {b"n"}

Matrix = tuple[float, float, float, float, float, float]
_Point = tuple[float, float]


def segments(operations: Iterable[tuple[Any, bytes]]) -> Iterator[tuple[_Point, _Point]]:
    """Yield the straight lines that a page draws, or none if it draws very many."""
    matrix: Matrix = (1, 0, 0, 1, 0, 0)
    kept: list[Matrix] = []
    path: list[list[_Point]] = []
    pairs: list[tuple[_Point, _Point]] = []
    points = 0
    for operands, operator in operations:
        if operator == b"q":
            kept.append(matrix)
        elif operator == b"Q":
            matrix = kept.pop() if kept else matrix
        elif operator == b"cm":
            matrix = product_of(matrix_of(operands), matrix)
        elif operator == b"m" or operator in _CURVES:
            path.append([_moved(_numbers(operands[-2:], 2), matrix)])
            points += 1
        elif operator == b"l" and path:
            path[-1].append(_moved(_numbers(operands, 2), matrix))
            points += 1
        elif operator == b"re":
            path.append([_moved(corner, matrix) for corner in _corners(operands)])
            points += 5
        elif operator == b"h" and path:
            path[-1].append(path[-1][0])
        elif operator in _PAINTS:
            pairs += _painted(operator, path)
            path = []
        if points > _MOST_POINTS:
            return
    yield from pairs


def _painted(operator: bytes, path: Sequence[Sequence[_Point]]) -> Iterator[tuple[_Point, _Point]]:
    """Yield the lines of a path: its strokes, and shapes as thin as a line."""
    for points in path:
        if operator in _STROKES:
            yield from pairwise(points)
        elif operator in _FILLS:
            (left, right), (low, high) = (
                (min(along), max(along)) for along in zip(*points, strict=True)
            )
            if high - low <= NEAR < right - left:
                yield (left, (low + high) / 2), (right, (low + high) / 2)
            elif right - left <= NEAR < high - low:
                yield ((left + right) / 2, low), ((left + right) / 2, high)
            elif operator == b"f*" and len(path) > 1:  # a frame: one shape minus another
                yield from pairwise(points)


def _corners(operands: Sequence[Any]) -> list[_Point]:
    x, y, wide, high = _numbers(operands, 4)
    return [(x, y), (x + wide, y), (x + wide, y + high), (x, y + high), (x, y)]


def matrix_of(operands: Sequence[Any]) -> Matrix:
    a, b, c, d, e, f = _numbers(operands, 6)
    return a, b, c, d, e, f


def _numbers(operands: Sequence[Any], count: int) -> tuple[float, ...]:
    """Return the numbers of an operator, or zeros if their count is wrong."""
    try:
        numbers = tuple(float(operand) for operand in operands)
    except (TypeError, ValueError):
        numbers = ()
    return numbers if len(numbers) == count else (0.0,) * count


def product_of(one: Matrix, other: Matrix) -> Matrix:
    a, b, c, d, e, f = one
    x, y = _moved((e, f), other)
    return (
        a * other[0] + b * other[2],
        a * other[1] + b * other[3],
        c * other[0] + d * other[2],
        c * other[1] + d * other[3],
        x,
        y,
    )


def _moved(point: Sequence[float], matrix: Matrix) -> _Point:
    """Return the position of a point on the page."""
    x, y = point
    a, b, c, d, e, f = matrix
    return x * a + y * c + e, x * b + y * d + f


_SHORTEST = 6.0
_MOST_LINES = 500
_MOST_CELLS = 10_000
_FEWEST_OPEN_ROWS = 3
"""Minimum number of rows without lines between their columns, or between each other."""
_NONE = frozenset({"-", "\u2013", "\u2014", ".", "..", "..."})
"""Texts that represent a missing number."""
_COLUMN_GAP = 0.6
"""Minimum gap between two such columns, in font sizes. It is wider than a blank."""

_Cell = tuple[int, int]


class _Line(NamedTuple):
    """A horizontal or vertical line."""

    at: float
    """Its height, or its distance from the left."""
    start: float
    end: float


class Piece(NamedTuple):
    """A text, its beginning, and its size, which is 0 if it is not horizontal."""

    text: str
    x: float
    y: float
    size: float = 0.0
    bold: bool = False


def grids_of(operations: Iterable[tuple[Any, bytes]]) -> list[Grid]:
    """Return possible tables, the smaller ones first because they may be nested."""
    level: list[_Line] = []
    upright: list[_Line] = []
    for (x, y), (to_x, to_y) in segments(operations):
        if abs(y - to_y) <= 1 < abs(x - to_x):
            level.append(_Line((y + to_y) / 2, min(x, to_x), max(x, to_x)))
        elif abs(x - to_x) <= 1 < abs(y - to_y):
            upright.append(_Line((x + to_x) / 2, min(y, to_y), max(y, to_y)))
    if len(level) < 2 or len(upright) < 1:
        return []
    level, upright = _merged(level), _merged(upright)
    if max(len(level), len(upright)) > _MOST_LINES:
        return []
    grids = [Grid(*lines) for lines in _crossing(level, upright)]
    return sorted((grid for grid in grids if grid.is_table()), key=lambda grid: grid.size)


class Grid:
    """The cells between crossing lines.

    Args:
        level: Horizontal lines.
        upright: Vertical lines.
    """

    def __init__(self, level: Sequence[_Line], upright: Sequence[_Line]) -> None:
        self._across = _places(upright, level)
        self._down = _places(level, upright)[::-1]
        self.size = (self._across[-1] - self._across[0]) * (self._down[0] - self._down[-1])
        self._level, self._upright = level, upright
        self._first: dict[_Cell, _Cell] = {}
        """Cell → the first of the cells that no line separates from it."""

    def is_table(self) -> bool:
        """Return whether there are at least two columns and two rows, and not too many."""
        columns, rows = len(self._across) - 1, len(self._down) - 1
        return columns > 1 and rows > 1 and columns * rows <= _MOST_CELLS

    def rows(
        self, pieces: Iterable[tuple[int, Piece]], on_right_to_left_page: bool
    ) -> tuple[list[list[str]], set[int]]:
        """Return the rows of a table and the numbers of its texts, or nothing for other grids."""
        texts: dict[tuple[int, int, int], list[Piece]] = {}
        """Row, line in it, column → its texts."""
        taken: set[int] = set()
        last: tuple[int, int, int] | None = None
        own = [*pieces]
        shown = [piece for _, piece in own if piece.text.strip()]
        split = self._split(shown)
        lined = self._lined(shown, split)
        for number, piece in own:
            blank = not piece.text.strip()
            place = self._cell(piece, split)
            if blank and number - 1 in taken:
                cell = last
            elif blank or place is None:
                continue
            else:
                cell = place[0], _nearest(piece.y, lined.get(place[0], [])), place[1]
            if cell is None:
                continue
            gap = "" if cell == last and number - 1 in taken else " "
            texts.setdefault(cell, []).extend((piece._replace(text=gap), piece))
            last = cell
            taken.add(number)
        cells = {
            cell: " ".join(" ".join(lines_of(each, on_right_to_left_page)).split())
            for cell, each in texts.items()
        }
        if not self._is_filled({(row, column) for row, _, column in cells}):
            return [], set()
        rows = self._filled(cells)
        return [row[::-1] for row in rows] if on_right_to_left_page else rows, taken

    def _lined(self, pieces: Iterable[Piece], split: Container[_Cell]) -> dict[int, list[float]]:
        """Return the baselines inside rows that hold several rows, found by columns of numbers.

        Many tables have lines only around the header and around all rows below it.
        """
        rows: dict[int, dict[int, list[Piece]]] = {}
        for piece in pieces:
            cell = self._cell(piece, split)
            if cell is not None and self._place(piece)[0] == cell[0]:
                rows.setdefault(cell[0], {}).setdefault(cell[1], []).append(piece)
        lines_at: dict[int, list[float]] = {}
        for row, columns in rows.items():
            lines = _baselines([piece for column in columns.values() for piece in column])
            numbers = sum(_is_of_numbers(column, lines) for column in columns.values())
            if len(lines) >= _FEWEST_OPEN_ROWS and len(columns) > 1 and numbers * 2 >= len(columns):
                lines_at[row] = lines
        return lines_at

    def has(self, x: float, y: float) -> bool:
        """Return whether a text that begins at a point is in the grid."""
        return self._across[0] <= x <= self._across[-1] and self._down[-1] <= y <= self._down[0]

    def line(self, rows: list[list[str]], size: float) -> PdfLine:
        """Return its rows as a line, with their font size."""
        left, right, top, low = (
            *(self._across[0], self._across[-1]),
            *(self._down[0], self._down[-1]),
        )
        return PdfLine("", left, low, size, right, rows, high=top - low)

    def _cell(self, piece: Piece, split: Container[_Cell] = ()) -> _Cell | None:
        """Return the cell in which a text begins."""
        place = self._place(piece)
        cell = self._whole().get(place)
        return place if cell in split else cell

    def _place(self, piece: Piece) -> _Cell:
        """Return the row and the column in which a text begins."""
        column = sum(at <= piece.x + 1 for at in self._across) - 1
        return sum(at >= piece.y + 1 for at in self._down) - 1, column

    def _split(self, pieces: Iterable[Piece]) -> set[_Cell]:
        """Return cells that span columns, but whose texts are aligned to these columns.

        Many tables have lines between their columns only in the header.
        """
        rows: dict[_Cell, list[Piece]] = {}
        for piece in pieces:
            if (cell := self._cell(piece)) is not None:
                rows.setdefault(cell, []).append(piece)
        split = {cell for cell, row in rows.items() if self._keeps_to_columns(row)}
        return split if len(split) >= _FEWEST_OPEN_ROWS else set()

    def _keeps_to_columns(self, pieces: Sequence[Piece]) -> bool:
        row = sorted(pieces, key=lambda piece: piece.x)
        if len({self._place(piece)[1] for piece in row}) < 2:
            return False
        if max(piece.y for piece in row) - min(piece.y for piece in row) > row[0].size:
            return False  # several lines: a wrapped text
        for left, right in pairwise(row):
            at = self._place(right)[1]
            end = left.x + width_of(left.text, left.size)
            if self._place(left)[1] != at and end + left.size * _COLUMN_GAP > right.x:
                return False
        return True

    def _whole(self) -> dict[_Cell, _Cell]:
        if not self._first:
            left = _walls(self._upright, self._across, self._down)
            above = _walls(self._level, self._down, self._across)
            for row, column in product(range(len(self._down) - 1), range(len(self._across) - 1)):
                self._first[row, column] = (
                    self._first[row, column - 1]
                    if column and (column, row) not in left
                    else self._first[row - 1, column]
                    if row and (row, column) not in above
                    else (row, column)
                )
        return self._first

    def _is_filled(self, cells: Iterable[_Cell]) -> bool:
        """Return whether two rows have two texts or more, which charts and frames do not."""
        filled = [*cells]
        several = {row for row, texts in Counter(row for row, _ in filled).items() if texts > 1}
        columns = {column for row, column in filled if row in several}
        return (
            len(several) > 1
            and len(columns) > 1
            and len(filled) * 3 >= len(set(self._whole().values()))
        )

    def _filled(self, cells: dict[tuple[int, int, int], str]) -> list[list[str]]:
        """Return the rows and columns that contain text, without those of double lines."""
        columns = sorted({column for *_, column in cells})
        rows = sorted({(row, line) for row, line, _ in cells})
        return [[cells.get((*row, column), "") for column in columns] for row in rows]


def _baselines(pieces: Sequence[Piece]) -> list[float]:
    """Return the baselines of texts, from the top."""
    positions: list[float] = []
    for piece in sorted(pieces, key=lambda piece: -piece.y):
        if not positions or positions[-1] - piece.y > 0.5 * piece.size:
            positions.append(piece.y)
    return positions


def _nearest(y: float, baselines: Sequence[float]) -> int:
    """Return the number of the baseline of a text, or of the nearest one."""
    at = bisect_left(baselines, -y, key=lambda item: -item)
    nearby = range(max(at - 1, 0), min(at + 1, len(baselines)))
    return min(nearby, key=lambda item: abs(baselines[item] - y), default=0)


def _is_of_numbers(column: Sequence[Piece], baselines: Sequence[float]) -> bool:
    """Return whether most lines have a number, or a dash for none, and no line has other text."""
    texts: dict[int, str] = {}
    for piece in column:
        line = _nearest(piece.y, baselines)
        texts[line] = texts.get(line, "") + piece.text
    shown = [text.strip() for text in texts.values()]
    return len(shown) * 2 > len(baselines) and all(
        text in _NONE or looks_like_number(text) for text in shown
    )


def _merged(lines: Iterable[_Line]) -> list[_Line]:
    """Return lines with collinear and double ones merged."""
    rows: list[list[_Line]] = []
    for line in sorted(lines):
        if rows and line.at - rows[-1][0].at <= NEAR:
            rows[-1].append(line)
        else:
            rows.append([line])
    merged: list[_Line] = []
    for row in rows:
        at, own = row[0].at, [(line.start, line.end) for line in row]
        merged += [_Line(at, *span) for span in _spans(own) if span[1] - span[0] >= _SHORTEST]
    return merged


def _spans(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return intervals with touching ones merged."""
    segments: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if segments and start <= segments[-1][1] + NEAR:
            segments[-1] = segments[-1][0], max(segments[-1][1], end)
        else:
            segments.append((start, end))
    return segments


def _crossing(
    level: Sequence[_Line], upright: Sequence[_Line]
) -> Iterator[tuple[list[_Line], list[_Line]]]:
    """Yield lines that cross or touch each other, directly or through others."""
    groups: list[tuple[list[_Line], set[_Line]]] = []
    for line in level:
        lines, crossed = [line], {item for item in upright if _touches(line, item)}
        apart = []
        for group in groups:
            if crossed.isdisjoint(group[1]):
                apart.append(group)
            else:
                lines, crossed = group[0] + lines, group[1] | crossed
        groups = [*apart, (lines, crossed)]
    for lines, crossed in groups:
        if crossed:
            yield lines, [*crossed]


def _touches(level: _Line, upright: _Line) -> bool:
    return (
        level.start - NEAR <= upright.at <= level.end + NEAR
        and upright.start - NEAR <= level.at <= upright.end + NEAR
    )


def _places(lines: Iterable[_Line], others: Iterable[_Line]) -> list[float]:
    """Return the positions of lines, and of the ends of crossing lines, for open borders."""
    ends = [[line.start for line in others], [line.end for line in others]]
    positions: list[float] = []
    for at in sorted([*(line.at for line in lines), min(ends[0]), max(ends[1])]):
        if not positions or at - positions[-1] > NEAR:
            positions.append(at)
    return positions


def _walls(
    lines: Iterable[_Line], places: Sequence[float], across: Sequence[float]
) -> set[tuple[int, int]]:
    """Return before which position, and between which two crossing positions, there is a line."""
    middles = [(entry + other) / 2 for entry, other in pairwise(across)]
    return {
        (min(range(len(places)), key=lambda at: abs(places[at] - line.at)), between)
        for line in lines
        for between, middle in enumerate(middles)
        if line.start <= middle <= line.end
    }
