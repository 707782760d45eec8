"""The straight lines that a page of a PDF draws."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

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
