"""The layout of a frame's boxes: in layers from top to bottom, with few crossings.

The usual layered drawing of directed graphs: edges that lead back are reversed, every box gets the
layer after its last predecessor, edges over several layers get a bend in each, boxes are sorted
within their layers by the positions of their neighbors and then moved as close to them as the
other boxes allow. Between any two layers is one for the labels of arrows, which reserves space for
them. A group is laid out by itself and then treated as a box of that size.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from flowengine.drawing.picture import Arrow, Box, ScopeFrame

CHARACTER = 7.0
"""Average width of a character of a name."""
SMALL_CHARACTER = 5.8
"""The same of other texts."""
TEXT_AT = 34.0
"""Where the text of a box begins, right of its icon."""
NARROWEST, WIDEST = 110.0, 260.0
"""Of boxes. Longer texts are cut."""
LONGEST_LABEL = 32
LINE = 18.0
"""Height of a label."""
GAP = 20.0
"""Space between boxes of a layer."""
ROW_GAP = 14.0
"""Space above and below a row of labels."""
PADDING = 16.0
"""Padding inside a group."""
HEAD = 24.0
"""Height of the title of a group."""
SWEEPS = 12

Point = tuple[float, float]


class ArrowRoute(NamedTuple):
    """How an arrow runs."""

    arrow: Arrow
    points: list[Point]
    label: Point
    """Middle of the label."""
    from_side: bool = False
    """Whether an arrow that leads back leaves its source at a side, not at the bottom."""
    to_side: bool = False


class Laid(NamedTuple):
    """A frame with its layout."""

    width: float
    height: float
    places: dict[str, tuple[float, float, float, float]]
    """Box → left, top, width, height."""
    routes: list[ArrowRoute]
    inside: dict[str, Laid]
    """The groups in it."""


class _Edge(NamedTuple):
    """An arrow during layout: the nodes it passes through, from the upper to the lower end."""

    arrow: Arrow
    turned: bool
    chain: list[int]


def lay_out(frame: ScopeFrame) -> Laid:
    """Return the position of everything in a frame."""
    return _Layout(frame).laid()


def size_of(box: Box) -> tuple[float, float]:
    """Return width and height of a box that is not a group."""
    if box.shape in ("start", "end", "end_all"):
        return 14.0, 14.0
    name, detail = name_of(box), detail_of(box)
    text = max(len(name) * CHARACTER, len(detail) * SMALL_CHARACTER)
    width = min(max(text + TEXT_AT + 12, NARROWEST), WIDEST)
    return width, 36.0 + (10.0 if detail else 0.0) + (4.0 if box.counts else 0.0)


def name_of(box: Box) -> str:
    """Return the name of a box as far as there is room for it."""
    return _shortened(box.lines[0], int((WIDEST - TEXT_AT - 12) / CHARACTER))


def detail_of(box: Box) -> str:
    """Return the line below the name as far as there is room for it."""
    return _shortened(box.detail(), int((WIDEST - TEXT_AT - 12) / SMALL_CHARACTER))


def label_of(arrow: Arrow) -> str:
    """Return the label of an arrow as far as there is room for it."""
    return _shortened(arrow.label, LONGEST_LABEL)


def _shortened(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


class _Layout:
    def __init__(self, frame: ScopeFrame) -> None:
        self.frame = frame
        self.inside = {box.id: lay_out(box.frame) for box in frame.boxes if box.frame is not None}
        self.number = {box.id: n for n, box in enumerate(frame.boxes)}
        self.loops = [arrow for arrow in frame.arrows if arrow.source == arrow.target]
        self.room = dict.fromkeys(self.number, 0.0)
        """Box → space for its loop and the label of it, at each side."""
        for loop in self.loops:
            self.room[loop.source] = 44.0 + len(label_of(loop)) * SMALL_CHARACTER
        sizes = [self._size(box) for box in frame.boxes]
        self.sizes = [
            (width + 2 * self.room[box.id], height)
            for box, (width, height) in zip(frame.boxes, sizes, strict=True)
        ]
        self.edges = [arrow for arrow in frame.arrows if arrow.source != arrow.target]
        self.between = Counter(frozenset(edge[:2]) for edge in self.edges)
        self.layer = self._layers()
        self.rows: list[list[int]] = []
        self.chains: list[_Edge] = []
        self.above: dict[int, list[int]] = {}
        self.below: dict[int, list[int]] = {}

    def laid(self) -> Laid:
        self._bend()
        self._sort()
        x = self._columns()
        tops, height = self._heights()
        left = min((x[n] - self.sizes[n][0] / 2 for row in self.rows for n in row), default=0.0)
        right = max((x[n] + self.sizes[n][0] / 2 for row in self.rows for n in row), default=0.0)
        places = {}
        for box in self.frame.boxes:
            n = self.number[box.id]
            width, own = self.sizes[n][0] - 2 * self.room[box.id], self.sizes[n][1]
            middle = tops[self.layer[n]][0] + tops[self.layer[n]][1] / 2
            places[box.id] = (x[n] - left - width / 2, middle - own / 2, width, own)
        routes = [self._route(edge, x, left, tops, places) for edge in self.chains]
        routes += [_loop(arrow, places[arrow.source]) for arrow in self.loops]
        return Laid(right - left, height, places, routes, self.inside)

    def _size(self, box: Box) -> tuple[float, float]:
        if box.frame is None:
            return size_of(box)
        inner = self.inside[box.id]
        title = len(name_of(box)) * CHARACTER + len(detail_of(box)) * SMALL_CHARACTER + TEXT_AT
        return max(inner.width + 2 * PADDING, title + 24), inner.height + HEAD + 2 * PADDING

    def _layers(self) -> list[int]:
        """Return the layer of each box, even numbers only, with back edges reversed."""
        following: list[list[int]] = [[] for _ in self.frame.boxes]
        for arrow in self.edges:
            following[self.number[arrow.source]].append(self.number[arrow.target])
        self.back: set[tuple[int, int]] = set()
        order = _walk(following, self.back)
        layer = [0] * len(following)
        for n in order:
            for target in following[n]:
                if (n, target) not in self.back:
                    layer[target] = max(layer[target], layer[n] + 2)
        for n in order:
            for target in following[n]:
                if (n, target) in self.back and layer[target] == layer[n]:
                    layer[n] += 2
        self._pull_down(layer, following, order)
        return layer

    def _pull_down(self, layer: list[int], following: list[list[int]], order: list[int]) -> None:
        """Move boxes that do not follow the start to their successors, isolated ones to the end."""
        begun = {n for n, box in enumerate(self.frame.boxes) if box.shape == "start"}
        for n in order:
            if n in begun:
                begun.update(following[n])
        lowest = max(layer, default=0)
        for n in reversed(order):
            ahead = [layer[t] for t in following[n] if (n, t) not in self.back]
            if begun and n not in begun and ahead:
                layer[n] = max(layer[n], min(ahead) - 2)
        tied = {self.number[end] for arrow in self.frame.arrows for end in arrow[:2]}
        for n in range(len(layer)):
            if tied and n not in tied:
                layer[n] = lowest + 2

    def _bend(self) -> None:
        """Give every edge a node in each layer that it crosses. One of them holds the label."""
        self.rows = [[] for _ in range(max(self.layer, default=0) + 1)]
        for n, layer in enumerate(self.layer):
            self.rows[layer].append(n)
        for arrow in self.edges:
            upper, lower = self.number[arrow.source], self.number[arrow.target]
            turned = self.layer[upper] > self.layer[lower]
            if turned:
                upper, lower = lower, upper
            chain = [upper]
            labelled = self.layer[lower] - 1 if turned else self.layer[upper] + 1
            for layer in range(self.layer[upper] + 1, self.layer[lower]):
                width = len(label_of(arrow)) * SMALL_CHARACTER + 14 if layer == labelled else 2.0
                self.sizes.append((width, LINE if layer == labelled and arrow.label else 0.0))
                self.layer.append(layer)
                self.rows[layer].append(len(self.sizes) - 1)
                chain.append(len(self.sizes) - 1)
            chain.append(lower)
            self.chains.append(_Edge(arrow, turned, chain))
            for entry, other in pairwise(chain):
                self.below.setdefault(entry, []).append(other)
                self.above.setdefault(other, []).append(entry)

    def _sort(self) -> None:
        """Order each row by the mean position of its neighbors, from above and from below."""
        place = {n: float(i) for row in self.rows for i, n in enumerate(row)}
        best, fewest = [list(row) for row in self.rows], self._crossings(place)
        for sweep in range(SWEEPS):
            if not fewest:
                break
            down = sweep % 2 == 0
            beside = self.above if down else self.below
            for row in self.rows if down else reversed(self.rows):
                wanted = {n: _mean([place[m] for m in beside.get(n, ())], place[n]) for n in row}
                row.sort(key=lambda n, wanted=wanted: wanted[n])  # type: ignore[misc]
                place.update({n: float(i) for i, n in enumerate(row)})
            crossings = self._crossings(place)
            if crossings < fewest:
                best, fewest = [list(row) for row in self.rows], crossings
        self.rows = best

    def _crossings(self, place: dict[int, float]) -> int:
        """Return how many pairs of arrows cross between rows."""
        depth = 0
        for row in self.rows:
            seen: list[float] = []
            for n in row:
                below = sorted(place[m] for m in self.below.get(n, ()))
                depth += sum(len(seen) - bisect_right(seen, end) for end in below)
                for end in below:
                    insort(seen, end)
        return depth

    def _columns(self) -> list[float]:
        """Return the middle of each node: close to its neighbors, without overlap."""
        x = [0.0] * len(self.sizes)
        for row in self.rows:
            self._place(row, x, [0.0] * len(row))
        for sweep in range(SWEEPS):
            down = sweep % 2 == 0
            beside = self.above if down else self.below
            for row in self.rows if down else reversed(self.rows):
                wanted = [_mean([x[m] for m in beside.get(n, ())], x[n]) for n in row]
                self._place(row, x, wanted)
        return x

    def _place(self, row: list[int], x: list[float], wanted: Sequence[float]) -> None:
        """Move the nodes of a row to their ideal positions as far as they do not overlap.

        Without the widths, this is isotonic regression, which pooling adjacent violators solves
        exactly.
        """
        offsets, offset = [], 0.0
        for i, n in enumerate(row):
            if i:
                offset += (self.sizes[row[i - 1]][0] + self.sizes[n][0]) / 2 + GAP
            offsets.append(offset)
        pools: list[tuple[float, int]] = []
        for i, want in enumerate(wanted):
            total, count = want - offsets[i], 1
            while pools and pools[-1][0] / pools[-1][1] > total / count:
                before, many = pools.pop()
                total, count = total + before, count + many
            pools.append((total, count))
        i = 0
        for total, count in pools:
            for _ in range(count):
                x[row[i]] = total / count + offsets[i]
                i += 1

    def _heights(self) -> tuple[list[tuple[float, float]], float]:
        """Return top and height of each row, and the height of all."""
        tops, y = [], 0.0
        for row in self.rows:
            height = max((self.sizes[n][1] for n in row), default=0.0)
            tops.append((y, height))
            y += height + ROW_GAP
        return tops, y - ROW_GAP

    def _route(
        self,
        edge: _Edge,
        x: list[float],
        left: float,
        tops: list[tuple[float, float]],
        places: Places,
    ) -> ArrowRoute:
        """Return the points of an arrow, from its source to its target."""
        labelled = bool(edge.arrow.label) or self.between[frozenset(edge.arrow[:2])] > 1
        bends: list[Point] = []
        for n in edge.chain[1:-1]:
            top, height = tops[self.layer[n]]
            if self.layer[n] % 2 == 0:  # straight down past the boxes of the row
                bends += [(x[n] - left, top), (x[n] - left, top + height)]
            elif labelled:
                bends.append((x[n] - left, top + height / 2))
        n = edge.chain[-2 if edge.turned else 1]
        top, height = tops[self.layer[n]]
        label = (x[n] - left, top + height / 2)
        if not edge.turned:
            down = self._upright(edge.chain[0], places, tops)[2:]
            into = self._upright(edge.chain[-1], places, tops)[:2]
            return ArrowRoute(edge.arrow, [*down, *bends, *into], label)
        if not bends:
            bends = [label]
        end, to_side = self._beside(edge.chain[0], bends[0], places, tops)
        begin, from_side = self._beside(edge.chain[-1], bends[-1], places, tops)
        points = [*begin, *bends[::-1], *end[::-1]]
        return ArrowRoute(edge.arrow, points, label, from_side, to_side)

    def _upright(
        self, n: int, places: Places, tops: list[tuple[float, float]], x: float | None = None
    ) -> list[Point]:
        """Return points from the top of a box's row through the box to the bottom of the row.

        Args:
            places: Positions of boxes.
            tops: Positions of rows.
            x: Position of the line. Default: the middle of the box.
        """
        left, top, width, height = places[self.frame.boxes[n].id]
        above, high = tops[self.layer[n]]
        at = left + width / 2 if x is None else x
        return [(at, above), (at, top), (at, top + height), (at, above + high)]

    def _beside(
        self, n: int, bend: Point, places: Places, tops: list[tuple[float, float]]
    ) -> tuple[list[Point], bool]:
        """Return where an arrow that leads back touches a box, and whether that is a side.

        From above it touches the top, from below the bottom, or a side if nothing is in between.
        """
        left, top, width, height = places[self.frame.boxes[n].id]
        row = [places[self.frame.boxes[m].id] for m in self.rows[self.layer[n]]
               if m < len(self.frame.boxes) and m != n]  # fmt: skip
        low, high = min(bend[0], left), max(bend[0], left + width)
        free = not any(low < other[0] + other[2] and other[0] < high for other in row)
        if free and not left - 4 < bend[0] < left + width + 4:
            return [(left if bend[0] < left else left + width, top + height / 2)], True
        x = min(max(bend[0], left + width / 3), left + width * 2 / 3)
        points = self._upright(n, places, tops, x)
        return (points[2:] if bend[1] > top + height else points[1::-1]), False


Places = dict[str, tuple[float, float, float, float]]
"""Box → left, top, width, height."""


def _walk(following: list[list[int]], back: set[tuple[int, int]]) -> list[int]:
    """Return the nodes so that edges lead forward, and note those that lead back."""
    state = [0] * len(following)
    order: list[int] = []
    for root in range(len(following)):
        stack = [(root, iter(following[root]))] if not state[root] else []
        state[root] = state[root] or 1
        while stack:
            n, rest = stack[-1]
            target = next(rest, None)
            if target is None:
                state[n] = 2
                order.append(n)
                stack.pop()
            elif state[target] == 1:
                back.add((n, target))
            elif state[target] == 0:
                state[target] = 1
                stack.append((target, iter(following[target])))
    return order[::-1]


def _loop(arrow: Arrow, place: tuple[float, float, float, float]) -> ArrowRoute:
    """Return the path of an arrow from a box to itself."""
    left, top, width, height = place
    right, middle = left + width, top + height / 2
    points = [(right - 4, middle - 4), (right - 4, middle + 4)]
    return ArrowRoute(
        arrow, points, (right + 36 + len(label_of(arrow)) * SMALL_CHARACTER / 2, middle)
    )


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
