"""The list of executions, and charts of them over time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from flowengine.engines.infos import is_found_by
from flowengine.engines.results import ENDED
from flowengine.kernel.notation.addresses import NOTIFIES
from flowengine.kernel.notation.times import format_time, parse_time
from flowengine.kernel.view import DECIDABLE
from flowengine.page.choices import why_not
from flowengine.page.looks import duration, now, waiting
from flowengine.page.view import LIMIT, PageView, checked_query, waits_in
from flowengine.server import executions
from flowengine.server.calls import ApiCall, moment
from flowengine.server.models import LARGEST_PAGE, ExecutionsQuery, FlowQuery

_FILTERS = ("search", "flow", "status", "label", "since", "for", "notifications")
_DATE = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
_KINDS = (*sorted(DECIDABLE), "signal", "timer", "state", "worker")
_MOST_WAITS = 3
"""Waits of an execution in the list."""


def list_executions(call: ApiCall, given: dict[str, str]) -> PageView:
    """Show executions, newest first, or the one whose id begins with the text to search for."""
    filters = filters_in(given)
    page = listed(call, filters, given.get("after"), LIMIT)
    match = [item["execution"] for item in page["items"]]
    if [*filters] == ["search"] and len(match) == 1 and match[0].startswith(filters["search"]):
        return PageView("", {}, redirect=f"/executions/{match[0]}")
    query = FlowQuery(flow=filters.get("flow"))
    counts = executions.count_executions(call._replace(query=query))
    awaited = {
        item["execution"]: _awaited(call, item["execution"])
        for item in page["items"]
        if item["status"] not in ENDED
    }
    others = {name: value for name, value in filters.items() if name != "status"}
    context = {"page": page, "filters": filters, "others": others, "awaited": awaited, **counts}
    is_live = not given.get("after")
    context["charts"] = charts(_newest(call, filters, page) if is_live else [], now())
    return PageView("executions.html", {**context, "is_live": is_live, "most": LARGEST_PAGE})


def _newest(call: ApiCall, filters: dict[str, str], page: Any) -> list[Any]:
    """Return the newest executions of a list, whose first page is known, for its chart."""
    items: list[Any] = page["items"]
    if page["next"]:
        items = items + listed(call, filters, page["next"], LARGEST_PAGE - LIMIT)["items"]
    return items


def filters_in(given: Mapping[str, str]) -> dict[str, str]:
    """Return the filters of the list."""
    return {name: given[name].strip() for name in _FILTERS if given.get(name, "").strip()}


def listed(call: ApiCall, filters: dict[str, str], after: str | None, limit: int) -> Any:
    """Return a page of executions: all, or those with an approval for the user, oldest first."""
    if filters.get("for") == "me":
        flow = filters.get("flow")
        waits = waits_in(call, assignee="me", flow=flow, after=after or None, limit=limit)
        ids = dict.fromkeys(wait["execution"] for wait in waits["items"])
        items = [executions.shown_execution(call, call.engine.executions.summary(id)) for id in ids]
        return {"items": [item for item in items if _fits(item, filters)], "next": waits["next"]}
    wanted: dict[str, Any] = {"after": after or None, "limit": limit}
    wanted |= {name: filters[name] for name in ("search", "flow", "status") if name in filters}
    if "label" in filters:
        wanted["label"] = [filters["label"]]
    if "since" in filters:
        wanted["since"] = _day(filters["since"])
    query = checked_query(ExecutionsQuery, wanted)
    also = "notifications" in filters or filters.get("flow", "").startswith(NOTIFIES)
    return executions.list_executions(call._replace(query=query), notifications=also)


def _fits(item: Any, filters: dict[str, str]) -> bool:
    """Return whether an execution with an approval for the user fits the other filters."""
    name, _, value = filters.get("label", "").partition("=")
    return (
        filters.get("status", item["status"]) == item["status"]
        and ("search" not in filters or is_found_by(item, filters["search"]))
        and ("label" not in filters or item["labels"].get(name) == value)
        and ("since" not in filters or moment(item["started_at"]) >= moment(_day(filters["since"])))
    )


def _day(text: str) -> str:
    """Return the start of a day in UTC. A full time is unchanged."""
    return f"{text}T00:00:00Z" if _DATE.fullmatch(text) else text


def _awaited(call: ApiCall, execution: str) -> dict[str, Any]:
    """Return short descriptions of an execution's open waits, the oldest first."""
    page = waits_in(call, execution=execution, kind=[*_KINDS], limit=_MOST_WAITS + 1)
    waits: list[Any] = page["items"]
    texts = [_in_words(wait) for wait in waits[:_MOST_WAITS]]
    return {
        "texts": texts if len(waits) <= _MOST_WAITS else [*texts, "and more"],
        "badge": waiting(waits, any(not why_not(call, wait) for wait in waits)),
    }


def _in_words(wait: Any) -> str:
    """Describe a wait in a few words."""
    if wait.get("chat"):
        return "the next message"
    if wait.get("title"):
        return str(wait["title"])
    names = " or ".join(item["signal"] for item in wait.get("signals", ()))
    return f"{wait['kind']} {names or wait['step']}"


# Outcomes and durations of executions over time, as bars that the server draws.

WIDTH, HEIGHT = 720, 120
"""Size of a chart."""
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
    keys: list[tuple[str, str]]
    """Status, and the number of its executions in words."""
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
    unit = next((unit for unit in _UNITS if (now - first) // unit < 30 - 1), _UNITS[-1])
    first -= first % unit
    bars = (now - first) // unit + 1
    if bars < _LEAST_BARS:
        first, bars = first - (_LEAST_BARS - bars) * unit, _LEAST_BARS
    bar = WIDTH / bars
    groups: dict[int, list[tuple[int, str]]] = {}
    for start, end, status in ended:
        groups.setdefault((start - first) // unit, []).append((max(end - start, 0), status))
    most = max(map(len, groups.values()))
    counts = Counter(status for _, _, status in ended)
    longest = max(share_of(_took(group), _SLOW) for group in groups.values())
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
        format_time(now),
        duration(unit),
        [(status, f"{number:,} {status}") for status, number in counts.most_common()],
        most,
        duration(longest),
        duration(share_of(sorted(end - start for start, end, _ in ended), 0.5)),
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
        parts.append(_part(place, bottom, bar, height, status, what))
    return parts


def _pair(
    group: Sequence[tuple[int, str]], place: float, bar: float, longest: int, at: str
) -> list[ChartPart]:
    """Return the bars of the durations of one time: of the slow ones, and of half of them."""
    took, parts = _took(group), []
    shares = ((_SLOW, "slow", "19 of 20 within"), (0.5, "succeeded", "median"))
    for share, status, words in shares:
        part = share_of(took, share)
        height = part / max(longest, 1) * HEIGHT
        what = f"{at}: {words} {duration(part)}"
        parts.append(_part(place, HEIGHT - height, bar, height, status, what))
    return parts


def _part(x: float, y: float, bar: float, height: float, status: str, what: str) -> ChartPart:
    return ChartPart(round(x, 1), round(y, 1), round(bar * 0.8, 1), height, status, what)


def durations(ended: Iterable[Mapping[str, Any]]) -> list[int]:
    """Return how long executions took that have ended, the shortest first."""
    return sorted(parse_time(item["ended_at"]) - parse_time(item["started_at"]) for item in ended)


def _took(group: Iterable[tuple[int, str]]) -> list[int]:
    return sorted(took for took, _ in group)


def share_of(took: Sequence[int], share: float) -> int:
    """Return the duration that a share of some, in order of their size, does not exceed."""
    return took[min(int(len(took) * share), len(took) - 1)]
