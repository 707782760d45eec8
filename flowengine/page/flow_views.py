"""The deployed flows: how one is started, its versions, schedules, graph and results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import unified_diff
from itertools import islice, pairwise
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from markupsafe import Markup

from flowengine.drawing.icons import look_of
from flowengine.drawing.picture import Box, Statuses, draw, step_name
from flowengine.drawing.svg import svg
from flowengine.engines.folds import Folds
from flowengine.engines.results import ENDED
from flowengine.errors import FlowEngineError, InputError, NotFound, UsageError
from flowengine.flow.export.definition import definition
from flowengine.flow.schedules import NoSchedule, Schedule
from flowengine.kernel.notation.addresses import around, steps_in
from flowengine.kernel.notation.times import format_time, parse_time
from flowengine.page.execution_list import charts, durations, listed, share_of
from flowengine.page.fields import MORE, shown_form
from flowengine.page.forms import entered_inputs, inputs_of
from flowengine.page.looks import duration, now
from flowengine.page.view import PageView, checked, with_error
from flowengine.server import executions
from flowengine.server import flows as deployed_flows
from flowengine.server.calls import ApiCall, deployed_flow, flow_of_execution
from flowengine.server.models import LARGEST_PAGE, FlowsQuery, StartBody, TriggerBody
from flowengine.server.rights import Right

# The names of steps, and the graph of a flow, as the page embeds it.


def titles_of(flow: Any) -> dict[str, str]:
    """Return step id → title of the steps of a flow that have one.

    Steps of several flows with the same id have none, unless it is the same.
    """
    names: dict[str, set[str]] = {}
    for step in flow.compiled["steps"]:
        if step["body"] >= 0:  # not a compensation, which has the id of the step that it undoes
            names.setdefault(step["id"], set()).add(step_name(step))
    return {
        id: min(several) for id, several in names.items() if several != {id} and len(several) == 1
    }


def titled(titles: Mapping[str, str], address: str) -> str:
    """Return the title of the step at an address, with its item and round. Empty: it has none."""
    outer = [len(place) + 1 for place in around(address)[:-1] if address[len(place)] == "/"]
    last = address[max(outer, default=0) :]
    id = steps_in(last)[0]
    return f"{titles[id]} {last[len(id) :]}".rstrip() if id in titles else ""


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
    marked = next((id for id in reversed([*_boxes(lit)]) if id in drawn), "")
    return Markup(svg(picture, "graph_", link, marked))  # `svg` escapes every text and every id


def _boxes(address: str) -> Iterator[str]:
    """Yield the ids of the boxes of a step and of those around it, outermost first."""
    for outer, inner in pairwise(["", *around(address)]):
        name = inner[len(outer) :].lstrip("/")
        if name and name[0] not in "[@#":
            yield f"step_{name.partition('#')[0]}"


# The deployed flows: how one is started, its versions, its schedules, and how it has done.

_RECENT = 20
"""Newest executions of a flow in the list of flows."""
_NEXT_TIMES = 3
"""Next times of a schedule."""
_MOST_LINES = 2000
"""Lines of a comparison of two versions."""
_MOST_COMPARED = 20_000
"""Lines of a definition that the server compares."""


class Health(NamedTuple):
    """How the newest executions of a flow have done."""

    outcomes: list[tuple[str, str]]
    """Status and look of each, oldest first."""
    rate: str
    """Share of those that have succeeded among those that have ended. Empty: none has."""
    typical: str
    """Median of their durations."""
    open: int
    """Executions of the flow that have not ended."""


def list_flows(call: ApiCall, given: dict[str, str]) -> PageView:
    """Show the deployed flows with how they have done, and the schedules of all."""
    every = FlowsQuery(flow=None, versions=False)
    flows = deployed_flows.list_flows(call._replace(query=every))["items"]
    titles = {flow["flow"]: flow["title"] or flow["flow"] for flow in flows}
    starts = [item for item in call.engine.flows.starts() if item["flow"] in titles]
    schedules = [_with_times(item) for item in starts if "schedule" in item]
    context = {
        "items": flows,
        "titles": titles,
        "health": {flow: _health(call, flow) for flow in titles},
        "schedules": sorted(schedules, key=lambda item: item["times"] or ["~"]),
        "may_start": {flow for flow in titles if call.may(Right.START, flow)},
    }
    return PageView("flows.html", context)


def _health(call: ApiCall, flow: str) -> Health:
    items = call.engine.executions.list(flow=flow, limit=_RECENT).items[::-1]
    ended = [item for item in items if item["status"] in ENDED]
    good = sum(item["status"] == "succeeded" for item in ended)
    counts = call.engine.executions.counts(flow)
    return Health(
        [(item["status"], look_of(item["status"])) for item in items],
        f"{good * 100 // len(ended)} %" if ended else "",
        duration(share_of(durations(ended), 0.5)) if ended else "",
        sum(number for status, number in counts.items() if status not in ENDED),
    )


def show_flow(call: ApiCall, given: dict[str, str]) -> PageView:
    """Show a flow, and the form that starts it, with the inputs of the execution `like`."""
    known: dict[str, Any] = {}
    like = given.get("like")
    if like:
        call.need(Right.CONTENT, flow_of_execution(call.engine, call.principal, like).flow)
        known = dict(call.engine.executions.show(like, until=1)["inputs"])
    return _flow(call, known, {}, None)


def start(call: ApiCall, given: dict[str, str], refused: FlowEngineError | None = None) -> PageView:
    """Start an execution, and show it. A refused form keeps its values."""
    flow = deployed_flows.show_flow(call)
    call.need(Right.START, flow["flow"])
    if refused is not None or MORE in given:
        return _flow(call, {}, given, refused)
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


def pause(call: ApiCall, given: dict[str, str]) -> PageView:
    """Pause the schedules of a flow."""
    deployed_flows.pause_schedules(call)
    return _shown(call)


def resume(call: ApiCall, given: dict[str, str]) -> PageView:
    """Resume the schedules of a flow."""
    deployed_flows.resume_schedules(call)
    return _shown(call)


def run_now(call: ApiCall, given: dict[str, str]) -> PageView:
    """Record an execution with the inputs of a schedule, and show it."""
    body = checked(TriggerBody, {"schedule": given.get("schedule") or None})
    started = deployed_flows.trigger(call._replace(body=body))
    return PageView("", {}, redirect=f"/executions/{quote(started['execution'])}")


def compare(call: ApiCall, given: dict[str, str]) -> PageView:
    """Show how two deployed versions of a flow differ."""
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
            hint="compare them with 'flowengine diff' on the server's machine",
        )
    lines = list(islice(unified_diff(before, after, lineterm="", n=3), 2, _MOST_LINES + 2))
    context = {"older": older, "newer": newer, "lines": lines, "most": _MOST_LINES}
    return PageView("flow_versions.html", context)


def _shown(call: ApiCall) -> PageView:
    return PageView("", {}, redirect=f"/flows/{quote(deployed_flow(call, call.path['flow']).id)}")


def address_again(call: ApiCall, execution: str, flow: str) -> str | None:
    """Return the address of the form with the inputs of an execution.

    None if the user is not allowed to start it, or its flow is not deployed.
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
    return with_error(
        "flow.html",
        {
            "flow": flow,
            **shown_form(fields, error, given),
            "paths": [name for name in flow["inputs"] if name not in names],
            "labels": given.get("labels", ""),
            "may_start": call.may(Right.START, flow["flow"]),
            "may_operate": call.may(Right.OPERATE, flow["flow"]),
            "sees_content": call.may(Right.CONTENT, flow["flow"]),
            "versions": call.engine.flows.versions(flow["flow"]),
            "starts": [_with_times(item) for item in call.engine.flows.starts(flow["flow"])],
            "charts": charts(
                listed(call, {"flow": flow["flow"]}, None, LARGEST_PAGE)["items"], now()
            ),
            "counted": LARGEST_PAGE,
            "graph": graph(call.engine.flows.kept(flow["hash"]), {}),
        },
        error,
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
            pass  # it has no further time, or its zone is missing on this host
    return {**start, "times": times}


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
