"""The deployed flows: how one is started, its versions, schedules, graph and results."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import unified_diff
from itertools import islice, pairwise
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from markupsafe import Markup

from flowengine.drawing.picture import Box, Statuses, draw
from flowengine.drawing.svg import svg
from flowengine.engines.folds import Folds
from flowengine.engines.results import ENDED
from flowengine.errors import FlowEngineError, InputError, NotFound, UsageError
from flowengine.flow.schedules import NoSchedule, Schedule
from flowengine.kernel.notation.addresses import around
from flowengine.kernel.notation.times import format_time, parse_time
from flowengine.page.fields import MORE
from flowengine.page.forms import entered_inputs, inputs_of
from flowengine.page.looks import duration
from flowengine.page.view import PageView, checked
from flowengine.server import executions
from flowengine.server import flows as deployed_flows
from flowengine.server.calls import ApiCall, deployed_flow, flow_of_execution
from flowengine.server.models import FlowsQuery, StartBody, TriggerBody
from flowengine.server.problems import status_of
from flowengine.server.rights import Right

# The outcomes and durations of a flow's executions over time, as bars that the server draws.

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


# The graph of a flow, as the page embeds it.


def graph(
    flow: Any, statuses: Statuses, base: str = "", folds: Folds | None = None, lit: str = ""
) -> Markup:
    """Return the drawing of a flow with the statuses of its steps.

    Args:
        flow: Loaded or stored.
        statuses: As for `draw`.
        base: Address of the execution.
        folds: Its steps, to which their boxes lead.
        lit: Address of the step whose box is emphasized.
    """

    def link(box: Box, groups: tuple[Box, ...]) -> str | None:
        names: list[str] = []
        for part in (*groups, box):
            names.append(part.id.removeprefix("step_"))
            if part.counts:  # of items or rounds, which are in a list
                break
        address = "/".join(names)
        if folds is None or box.status is None or address not in folds:
            return None
        query = urlencode({"at": address})
        return f"{base}?{query}#steps" if part.counts else f"{base}?{query}"

    picture = draw(flow.compiled, statuses)._replace(title="")
    drawn = {*picture.frame.ids()}
    marked = [id for id in _boxes(lit) if id in drawn][-1:]
    return Markup(svg(picture, "graph_", link, marked))  # `svg` escapes every text and every id


def _boxes(address: str) -> Iterator[str]:
    """Yield the ids of the boxes of a step and of those around it, outermost first."""
    for outer, inner in pairwise(["", *around(address)]):
        name = inner[len(outer) :].lstrip("/")
        if name and name[0] not in "[@#":
            yield f"step_{name.partition('#')[0]}"


# The deployed flows: how one is started, its versions, its schedules, and how it has done.

_COUNTED = 1000
"""Newest executions whose outcomes and durations are shown."""
_AT_ONCE = 500
"""Executions that are read at once."""
_NEXT_TIMES = 3
"""Next times of a schedule."""
_MOST_LINES = 2000
"""Lines of a comparison of two versions."""
_MOST_COMPARED = 20_000
"""Lines of a definition that the server compares."""


def list_flows(call: ApiCall, given: dict[str, str]) -> PageView:
    """Show the deployed flows, with what starts them."""
    every = FlowsQuery(flow=None, versions=False)
    flows = deployed_flows.list_flows(call._replace(query=every))["items"]
    starts: dict[str, list[Any]] = {}
    for item in call.engine.flows.starts():
        starts.setdefault(item["flow"], []).append(item)
    return PageView("flows.html", {"items": flows, "starts": starts})


def show_flow(call: ApiCall, given: dict[str, str]) -> PageView:
    """Show a flow, and the form that starts it, with the inputs of the execution `like`."""
    known: dict[str, Any] = {}
    like = given.get("like")
    if like:
        call.need(Right.CONTENT, flow_of_execution(call.engine, call.principal, like).flow)
        known = dict(call.engine.executions.show(like, until=1)["inputs"])
    return _flow(call, known, {}, None)


def start(call: ApiCall, given: dict[str, str]) -> PageView:
    """Start an execution, and show it. A refused form keeps its values."""
    flow = deployed_flows.show_flow(call)
    call.need(Right.START, flow["flow"])
    if MORE in given:
        return _flow(call, {}, given, None)
    try:
        body = StartBody(
            flow=call.path["flow"],
            inputs=entered_inputs(flow["inputs"], given),
            id=None,
            labels=_labels(given.get("labels", "")),
        )
        started = executions.start_execution(call._replace(body=body))
    except FlowEngineError as error:
        return _flow(call, {}, given, error)
    return PageView("", {}, redirect=f"/executions/{quote(started['execution'])}")


def refuse(call: ApiCall, given: dict[str, str], error: FlowEngineError) -> PageView:
    """Show a flow with its form again, of which a file was refused."""
    return _flow(call, {}, given, error)


def pause(call: ApiCall, given: dict[str, str]) -> PageView:
    """Pause the schedules of a flow."""
    deployed_flows.pause_schedules(call)
    return _shown(call)


def resume(call: ApiCall, given: dict[str, str]) -> PageView:
    """Resume the schedules of a flow."""
    deployed_flows.resume_schedules(call)
    return _shown(call)


def run_now(call: ApiCall, given: dict[str, str]) -> PageView:
    """Record an execution with the inputs of a schedule, out of turn, and show it."""
    body = checked(TriggerBody, {"schedule": given.get("schedule") or None})
    started = deployed_flows.trigger(call._replace(body=body))
    return PageView("", {}, redirect=f"/executions/{quote(started['execution'])}")


def compare(call: ApiCall, given: dict[str, str]) -> PageView:
    """Show how two deployed versions of a flow differ."""
    from flowengine.flow.export.definition import definition

    names = [given.get("from") or call.path["flow"], call.path["flow"]]
    older, newer = (deployed_flow(call, name) for name in names)
    for flow in (older, newer):
        call.need(Right.CONTENT, flow.id)
    if older.id != newer.id:
        raise UsageError(f"'{names[0]}' is another flow than '{newer.id}'")
    before, after = (definition(flow.compiled).splitlines() for flow in (older, newer))
    if max(len(before), len(after)) > _MOST_COMPARED:
        raise UsageError(
            f"the definitions have more than {_MOST_COMPARED} lines",
            hint="compare them with 'flowengine flows diff' on the server's machine",
        )
    lines = list(islice(unified_diff(before, after, lineterm="", n=3), 2, _MOST_LINES + 2))
    context = {"older": older, "newer": newer, "lines": lines, "most": _MOST_LINES}
    return PageView("flow_versions.html", context)


def _shown(call: ApiCall) -> PageView:
    return PageView("", {}, redirect=f"/flows/{quote(deployed_flow(call, call.path['flow']).id)}")


def address_again(call: ApiCall, execution: str, flow: str) -> str | None:
    """Return the address of the form with the inputs of an execution.

    None if the user may not start it, or its flow is not deployed.
    """
    if not (call.may(Right.START, flow) and call.may(Right.CONTENT, flow)):
        return None
    try:
        deployed_flows.show_flow(call._replace(path={"flow": flow}))
    except NotFound:
        return None
    return f"/flows/{quote(flow)}?like={quote(execution)}"


def _flow(
    call: ApiCall, known: dict[str, Any], given: dict[str, str], error: FlowEngineError | None
) -> PageView:
    flow = deployed_flows.show_flow(call)
    fields = inputs_of(flow["inputs"], known, given)
    names = {field.key for field in fields}
    return PageView(
        "flow.html",
        {
            "flow": flow,
            "fields": fields,
            "paths": [name for name in flow["inputs"] if name not in names],
            "labels": given.get("labels", ""),
            "may_start": call.may(Right.START, flow["flow"]),
            "may_operate": call.may(Right.OPERATE, flow["flow"]),
            "sees_content": call.may(Right.CONTENT, flow["flow"]),
            "versions": call.engine.flows.versions(flow["flow"]),
            "starts": [_with_times(item) for item in call.engine.flows.starts(flow["flow"])],
            "charts": _charts(call, flow["flow"]),
            "counted": _COUNTED,
            "error": error,
            "hint": None if error is None else error.hint_for("page"),
            "graph": graph(call.engine.flows.kept(flow["hash"]), {}),
        },
        200 if error is None else status_of(error),
    )


def _with_times(start: Any) -> dict[str, Any]:
    """Return what starts a flow, of a schedule with its next times."""
    times: list[str] = []
    if "next" in start:
        times, at = [start["next"]], parse_time(start["next"])
        try:
            schedule = Schedule(start["schedule"], start["timezone"])
            while len(times) < _NEXT_TIMES:
                at = schedule.after(at)
                times.append(format_time(at))
        except NoSchedule:
            pass  # it has no further time, or this host lacks its zone
    return {**start, "times": times}


def _charts(call: ApiCall, flow: str) -> Charts | None:
    """Return the outcomes and durations of the newest executions of a flow, read from a list."""
    items: list[Any] = []
    after = None
    while len(items) < _COUNTED:
        page = call.engine.executions.list(flow=flow, limit=_AT_ONCE, after=after)
        items += page.items
        after = page.next
        if after is None:
            break
    return charts(items, int(time.time() * 1000))


def _labels(text: str) -> dict[str, str]:
    """Return the labels of a form.

    Raises:
        InputError: A line is not `NAME=VALUE`.
    """
    labels = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, sign, value = line.partition("=")
        if not sign or not name.strip():
            raise InputError(f"the label {line!r} is not NAME=VALUE", field="labels")
        labels[name.strip()] = value.strip()
    return labels
