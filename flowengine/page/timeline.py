"""The steps of an execution over time: attempts, waits and pauses as bars on an axis with cuts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from flowengine.engines.folds import FoldLevel, FoldRow, Folds
from flowengine.kernel.notation.times import format_time, parse_time
from flowengine.kernel.view import DECIDABLE
from flowengine.page.looks import duration

WIDTH = 1000
"""Length of the axis."""
_CUT = 30
"""Length of a gap that is cut out."""
_THINNEST = 3
"""Length of a bar that is too short to be seen."""
_LONG = 10
"""A gap is cut out if it is longer than the busy time divided by this number."""
_MOST_READ = 2000
"""Steps that are read for the times at which attempts ran."""
_RUNNING = frozenset({"waiting", "retrying", "running", "uncertain"})
_MOST_INSIDE = 100
"""Bars of failed or open steps that the bar of a fold shows."""


class BarSpan(NamedTuple):
    """A part of a step's time."""

    start: int
    """Milliseconds since 1970."""
    end: int
    status: str
    """The class of its color: a status, `pause` for a time without humans, or `fold` around other
    steps."""
    what: str


class Bar(NamedTuple):
    """A span on the axis."""

    x: float
    width: float
    status: str
    what: str
    """The label of the bar, with its duration."""
    grows: bool
    """Whether it ends where the axis does, so that it may still run."""


class AxisCut(NamedTuple):
    """A gap that is cut out of the axis, in which no attempt runs."""

    x: float
    width: float
    length: str


class Timeline(NamedTuple):
    """A part of an execution's time."""

    level: FoldLevel
    bars: dict[str, list[Bar]]
    """Address → bars, of the rows and of those in their folds."""
    cuts: list[AxisCut]
    start: str
    end: str
    took: str
    rate: float
    """Length by which the axis grows in a second. 0: nothing runs at its end."""
    views: dict[str, tuple[int, int]]
    """Name → start and end of another part: `Zoom in`, `Later`, …"""


class Axis:
    """From a time to a place on the axis, on which long gaps are short.

    Args:
        start: First time (ms).
        end: Last time (ms).
        busy: When attempts ran, and single times at which something happened.
    """

    def __init__(self, start: int, end: int, busy: Iterable[tuple[int, int]]) -> None:
        self.end = max(end, start + 1)
        self._gaps = _long_gaps(start, self.end, busy)
        rest = self.end - start - sum(stop - begin for begin, stop in self._gaps)
        self._scale = (WIDTH - _CUT * len(self._gaps)) / max(rest, 1)
        self._start = start

    def __call__(self, at: int) -> float:
        """Return the place of a time."""
        at = min(max(at, self._start), self.end)
        place, before = 0.0, self._start
        for begin, stop in self._gaps:
            if at <= begin:
                break
            place += (begin - before) * self._scale
            place += _CUT * (min(at, stop) - begin) / (stop - begin)
            before = stop
        return place + max(at - before, 0) * self._scale

    @property
    def rate(self) -> float:
        """Its length of a second. 0 if it ends in a gap."""
        ends_in_gap = bool(self._gaps) and self._gaps[-1][1] == self.end
        return 0.0 if ends_in_gap else self._scale * 1000

    def cuts(self) -> list[AxisCut]:
        """Return the gaps that are cut out."""
        return [AxisCut(self(begin), _CUT, duration(stop - begin)) for begin, stop in self._gaps]


def timeline(
    folds: Folds,
    begun: str,
    now: int,
    at: str,
    first: int,
    part: tuple[int, int] = (0, 0),
    most: int = _MOST_READ,
) -> Timeline:
    """Return the steps in a fold over time.

    Args:
        folds: The steps, with their attempts.
        begun: When the execution began.
        now: The end (ms) of the execution, or of spans that have not ended.
        at: Address of the fold, or of a step in it. Empty: the whole execution.
        first: Number of the first row.
        part: Start and end of the part to show (ms after the beginning). Equal: everything.
        most: Folds of more steps are shown as a whole, without reading them.
    """
    level = folds.level(at, first)
    zero = parse_time(begun)
    spans = {row.address: list(_spans(row, folds, now, most)) for row in _with_inner(level.rows)}
    last = max([span.end for of_row in spans.values() for span in of_row], default=zero)
    last = last if level.address else max(last, now)
    start, end = (zero + part[0], zero + part[1]) if part[0] < part[1] else (zero, last)
    exact = most if sum(row.steps for row in level.rows) <= most else 0
    busy = (
        span for row in level.rows for span in _busy(row, spans[row.address], folds, now, exact)
    )
    axis = Axis(start, end, busy)
    bars = {
        address: [_bar(axis, span) for span in of_row if span.end >= start and span.start <= end]
        for address, of_row in spans.items()
    }
    views = _views(start - zero, end - zero, last - zero)
    times = (format_time(start), format_time(end), duration(end - start))
    return Timeline(level, bars, axis.cuts(), *times, axis.rate if end == now else 0.0, views)


def _with_inner(rows: Iterable[FoldRow]) -> Iterator[FoldRow]:
    for row in rows:
        yield row
        yield from _with_inner(row.rows)


def _spans(row: FoldRow, folds: Folds, now: int, most: int) -> Iterator[BarSpan]:
    """Yield the spans of a row. A fold shows the failed and open spans inside it."""
    if not row.total:
        if row.step is not None:
            yield from _spans_of(row.step, now)
        return
    whole = folds.first(row.address) if row.step is None else row.step
    end = now
    if row.step is not None:
        end = _end(row.step, now)
    elif row.steps <= most and _RUNNING.isdisjoint(dict((*row.counts, *row.deeper))):
        end = max(_end(step, now) for step in folds.steps_inside(row.address))
    is_done = row.step is not None and row.step["status"] == "succeeded"
    color = "succeeded" if is_done else "fold"
    yield BarSpan(parse_time(whole["started_at"]), end, color, f"{row.total} {row.noun}s")
    if row.steps > most:
        return
    for step in islice(folds.steps_inside(row.address, only_urgent=True), _MOST_INSIDE):
        yield from _spans_of(step, now)


def _spans_of(step: Mapping[str, Any], now: int) -> Iterator[BarSpan]:
    """Yield the waits, attempts and pauses of a step, in order."""
    at, end = parse_time(step["started_at"]), _end(step, now)
    for number, attempt in enumerate(step.get("tries", ())):
        begun = parse_time(attempt["started_at"])
        if begun > at:
            yield BarSpan(
                at, begun, "pause" if number else "waiting", "pause" if number else "wait"
            )
        at = _end(attempt, now)
        yield BarSpan(begun, at, attempt["status"], f"attempt {attempt['attempt']}")
    if not step.get("tries"):
        yield BarSpan(at, end, _color(step), step["kind"])
    elif at < end:
        yield BarSpan(at, end, step["status"], step["status"])


def _color(step: Mapping[str, Any]) -> str:
    """Return the color of a step that makes no attempts: a wait, unless it ended badly."""
    if step["status"] not in ("succeeded", "running", "waiting"):
        return str(step["status"])
    return "waiting" if step["kind"] in DECIDABLE else "pause"


def _end(timed: Mapping[str, Any], now: int) -> int:
    return parse_time(timed["ended_at"]) if "ended_at" in timed else now


def _busy(
    row: FoldRow, spans: list[BarSpan], folds: Folds, now: int, most: int
) -> Iterator[tuple[int, int]]:
    """Yield when attempts ran, also inside a fold. Of everything else only the ends matter."""
    for span in spans:
        if span.what.startswith("attempt"):
            yield span.start, span.end
        elif row.total and span is spans[0]:
            if row.steps > most:
                yield span.start, span.end
                continue
            for step in folds.steps_inside(row.address):
                for one in _spans_of(step, now):
                    if one.what.startswith("attempt"):
                        yield one.start, one.end
        yield span.start, span.start
        yield span.end, span.end


def _long_gaps(start: int, end: int, busy: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the gaps to cut out, in order."""
    gaps: list[tuple[int, int]] = []
    at = start
    for begin, stop in [*sorted(busy), (end, end)]:
        if at < min(begin, end):
            gaps.append((at, min(begin, end)))
        at = max(at, stop)
    time_in_gaps = sum(stop - begin for begin, stop in gaps)
    limit = (end - start - time_in_gaps) / _LONG
    if limit <= 0:  # nothing but waits
        return []
    long = sorted(gaps, key=lambda gap: gap[0] - gap[1])[:8]
    return sorted(gap for gap in long if gap[1] - gap[0] > limit)


def _bar(axis: Axis, span: BarSpan) -> Bar:
    x = axis(span.start)
    width = max(axis(span.end) - x, _THINNEST)
    what = f"{span.what}, {duration(span.end - span.start)}"
    x = round(min(x, WIDTH - width), 1)
    return Bar(x, round(width, 1), span.status, what, grows=span.end >= axis.end)


def _views(start: int, end: int, last: int) -> dict[str, tuple[int, int]]:
    """Return the parts to which the view can move (ms after the beginning)."""
    half = (end - start) // 2
    views = {}
    if half > 1:
        views["Zoom in"] = (start + half // 2, end - half // 2)
    if end - start < last:
        views["Zoom out"] = (max(start - half, 0), min(end + half, last))
        views["Whole"] = (0, 0)
    if start > 0:
        views["Earlier"] = (max(start - half, 0), max(end - half, half))
    if end < last:
        views["Later"] = (start + half, end + half)
    return views
