"""The outcomes and durations of a flow's executions over time, as bars that the server draws."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from flowengine.engines.results import ENDED
from flowengine.kernel.notation.times import format_time, parse_time
from flowengine.page.readable import duration

WIDTH, HEIGHT = 720, 120
"""Size of a chart."""
_MOST_BARS = 30
_LEAST_BARS = 12
_MINUTE, _HOUR, _DAY = 60_000, 3_600_000, 86_400_000
_UNITS = (
    *(_MINUTE, 5 * _MINUTE, 15 * _MINUTE, _HOUR, 6 * _HOUR, _DAY, 7 * _DAY, 30 * _DAY),
    365 * _DAY,
)
"""Lengths of the time that one bar stands for (ms)."""
_SLOW = 0.95


class ChartPart(NamedTuple):
    """A rectangle of a chart, from its upper left corner."""

    x: float
    y: float
    width: float
    height: float
    status: str
    """The class of its color: a status, or `slow` for the duration that few exceed."""
    what: str


class Charts(NamedTuple):
    """Executions that have ended, by the time of their start."""

    outcomes: list[ChartPart]
    durations: list[ChartPart]
    start: str
    end: str
    unit: str
    """The time that one bar stands for, in words."""
    counts: list[tuple[str, int]]
    """Status → number of executions."""
    most: int
    """Executions of the highest bar."""
    longest: str
    """Duration of the highest bar."""
    typical: str
    """Median of the durations."""


def charts(items: Iterable[Mapping[str, Any]], now: int) -> Charts | None:
    """Return the charts of executions.

    Args:
        items: Executions as a list has them. Open ones are left out.
        now: The end of the charts (ms).

    Returns:
        None if no execution has ended.
    """
    ended = [
        (parse_time(item["started_at"]), parse_time(item["ended_at"]), item["status"])
        for item in items
        if item["status"] in ENDED and item.get("ended_at")
    ]
    if not ended:
        return None
    first = min(start for start, _, _ in ended)
    now = max(now, *(start for start, _, _ in ended))
    unit = next((unit for unit in _UNITS if (now - first) // unit < _MOST_BARS - 1), _UNITS[-1])
    first -= first % unit
    bars = (now - first) // unit + 1
    if bars < _LEAST_BARS:
        first, bars = first - (_LEAST_BARS - bars) * unit, _LEAST_BARS
    bar = WIDTH / bars
    groups: dict[int, list[tuple[int, str]]] = {}
    for start, end, status in ended:
        groups.setdefault((start - first) // unit, []).append((max(end - start, 0), status))
    most = max(map(len, groups.values()))
    longest = max(_share(_took(group), _SLOW) for group in groups.values())
    outcomes: list[ChartPart] = []
    durations: list[ChartPart] = []
    for number, group in sorted(groups.items()):
        place, at = number * bar, format_time(first + number * unit)[:16].replace("T", " ")
        outcomes += _stacked(group, place, bar, most, at)
        durations += _pair(group, place, bar, longest, at)
    return Charts(
        outcomes,
        durations,
        format_time(first),
        format_time(first + bars * unit),
        duration(unit),
        Counter(status for _, _, status in ended).most_common(),
        most,
        duration(longest),
        duration(_share(sorted(end - start for start, end, _ in ended), 0.5)),
    )


def _stacked(
    group: Sequence[tuple[int, str]], place: float, bar: float, most: int, at: str
) -> list[ChartPart]:
    """Return a bar of the executions of one time, by status, the failed ones at the bottom."""
    parts, bottom = [], float(HEIGHT)
    counts = Counter(status for _, status in group)
    for status in sorted(counts, key=lambda item: (item != "failed", item)):
        height = counts[status] / most * HEIGHT
        bottom -= height
        what = f"{at}: {counts[status]} {status}"
        parts.append(
            ChartPart(round(place, 1), round(bottom, 1), round(bar * 0.8, 1), height, status, what)
        )
    return parts


def _pair(
    group: Sequence[tuple[int, str]], place: float, bar: float, longest: int, at: str
) -> list[ChartPart]:
    """Return the bars of the durations of one time: of the slow ones, and of half of them."""
    took, parts = _took(group), []
    for share, status, words in (
        (_SLOW, "slow", "19 of 20 within"),
        (0.5, "succeeded", "median"),
    ):
        part = _share(took, share)
        height = part / max(longest, 1) * HEIGHT
        what = f"{at}: {words} {duration(part)}"
        parts.append(
            ChartPart(
                round(place, 1),
                round(HEIGHT - height, 1),
                round(bar * 0.8, 1),
                height,
                status,
                what,
            )
        )
    return parts


def _took(group: Iterable[tuple[int, str]]) -> list[int]:
    return sorted(took for took, _ in group)


def _share(took: Sequence[int], share: float) -> int:
    """Return the duration that a share of some, in order of their size, does not exceed."""
    return took[min(int(len(took) * share), len(took) - 1)]
