"""The history of an execution: attempts, inputs, outputs and errors of each activation.

It is read from the rows of its steps. Its state is replayed from the last snapshot.
"""

from __future__ import annotations

from typing import Any

from flowengine.engines.executions.moments import Moment
from flowengine.engines.executions.views import entry_view, wait_view
from flowengine.engines.folds import Folds
from flowengine.engines.host import Host
from flowengine.engines.infos import ExecutionInfo, StepFilter, StepInfo, execution_view
from flowengine.engines.inspection.budgets import budget_views
from flowengine.engines.inspection.entries import entry_of
from flowengine.engines.inspection.requests import RequestLog, asks_models
from flowengine.engines.inspection.step_values import events_of, find_values
from flowengine.engines.inspection.steps import (
    Steps,
    StepValues,
    add_times,
    listed,
    stop_with,
    wait_with_what_is_inside,
)
from flowengine.engines.inspection.unattended import standing_view
from flowengine.engines.interventions.retrying import again
from flowengine.engines.messages import view as undelivered
from flowengine.engines.people.waits import stored_wait_view
from flowengine.errors import Hint, NotFound
from flowengine.journal.encoding import unpack
from flowengine.journal.records import ENDED, ExecutionRecord, WaitFilter
from flowengine.journal.shapes import Sound, unpack_error, unpack_outputs
from flowengine.kernel.commands import Observation
from flowengine.kernel.notation.times import format_duration, format_time

_ALL = 1 << 32
"""More than the number of any event, which has 32 bits."""
_ALL_STEPS = StepFilter()


def show(
    host: Host,
    execution: str,
    step: str | None,
    *,
    tries: bool = False,
    wanted: StepFilter = _ALL_STEPS,
) -> ExecutionInfo:
    """Return all details of an execution.

    Args:
        host: Provides the store.
        execution: Full id.
        step: Full address of the only step to show. None: all.
        tries: Whether all steps have their attempts.
        wanted: The steps to show, and their order.

    Returns:
        See `ExecutionInfo`. Without `took` if not all steps are shown.

    Raises:
        NotFound: The execution has no such step.
    """
    record = host.store.execution(execution)
    with Sound(f"the journal of execution {execution}"):
        shown = Steps.stored(host.store, host.flows, record)
        if step is None and wanted != _ALL_STEPS:
            infos = _wanted(host, record, shown, wanted)
            info = _view(host, record, shown, infos, None, tries=tries)
            info.pop("took", None)  # it takes all attempts
            return info
        if step is None:
            _read_outputs(host, record, shown)
            infos = [*map(shown.info, shown.states)]
        else:
            infos = _one(host, record, shown, step)
    return _view(host, record, shown, infos, step, tries=tries)


def _wanted(
    host: Host, record: ExecutionRecord, shown: Steps, wanted: StepFilter
) -> list[StepInfo]:
    """Return some steps, in an order."""
    not_ended = _not_ended(shown, standing_view(host, record)["status"])
    found = list[str]()
    for address in shown.ordered(wanted.sort):
        step, status = shown.states[address]
        status = not_ended[address]["status"] if address in not_ended else status
        if wanted.status in (None, status) and wanted.kind in (None, shown.kind(step)):
            found.append(address)
        if len(found) == wanted.limit:
            break
    shown.read_events(found)
    find_values(host.store, host.flows, record, shown.computed(), shown.values)
    return [{**shown.info(address), **shown.amounts(address)} for address in found]


def _not_ended(shown: Steps, status: str) -> dict[str, StepInfo]:
    """Return what has not ended, without values.

    Args:
        shown: The steps.
        status: Of the execution.
    """
    not_ended = {info["address"]: listed(info) for info in shown.open()}
    wait_with_what_is_inside(not_ended.values())
    stop_with(not_ended.values(), status)
    return not_ended


def _read_outputs(host: Host, record: ExecutionRecord, shown: Steps) -> None:
    """Read the outputs of all steps."""
    shown.read_all()
    find_values(host.store, host.flows, record, shown.computed(), shown.values)


def _one(host: Host, record: ExecutionRecord, shown: Steps, step: str) -> list[StepInfo]:
    """Return a step with all its values, and what has not ended inside it."""
    asked = RequestLog(record.id, step)
    wanted = _numbers(record, shown, step)
    shown.read_events([step])
    find_values(host.store, host.flows, record, wanted, shown.values, asked.record)
    info = shown.info(step)
    request = asked.request(info.get("output")) if asks_models(info["kind"]) else None
    if request is not None:
        info["request"] = dict(request)
    inside = (each for each in shown.open() if each["address"] != step)
    return [info, *inside]


def _numbers(record: ExecutionRecord, shown: Steps, step: str) -> dict[int, set[str]]:
    """Return the numbers of the events about a step, each with its address."""
    if step not in shown.states:
        raise NotFound(
            f"execution {record.id} has no step '{step}'",
            hint=Hint(
                f"see its steps: flowengine show {record.id}",
                http=f"see its steps: GET /v1/executions/{record.id}",
            ),
        )
    return {number: {step} for number in events_of(shown.rows(step)) if number < shown.count}


def found_events(
    host: Host, execution: str, first: int, step: str | None, type: str | None, since: int | None
) -> list[dict[str, Any]]:
    """Return some entries of a journal.

    Args:
        host: Provides the store.
        execution: Full id.
        first: Number of the first entry.
        step: Full address of a step: only entries about it. None: all.
        type: Only entries of this type.
        since: Only entries of this time or later, in milliseconds since 1970.

    Raises:
        NotFound: The execution has no such step.
    """
    record, found = host.store.execution(execution), list[dict[str, Any]]()
    of_step = None
    if step is not None:
        of_step = _numbers(record, Steps.stored(host.store, host.flows, record), step)
    wanted = {
        entry.seq: frozenset[str]()
        for entry in host.store.events(execution, first)
        if (of_step is None or entry.seq in of_step)
        and (since is None or entry.at >= since)
        and (type is None or unpack(entry.payload)["type"] == type)
    }

    def add(moment: Moment, _seen: list[Observation]) -> None:
        found.append(entry_of(moment))

    find_values(host.store, host.flows, record, wanted, StepValues(), add)
    return found


def folds(host: Host, execution: str, until: int | None = None) -> tuple[ExecutionInfo, Folds]:
    """Return an execution with the tree of its steps.

    Args:
        host: Provides the store.
        execution: Full id.
        until: Number of the first event to leave out. None: all are included.

    Returns:
        See `ExecutionInfo`, without `took`. `steps` is empty.
    """
    record = host.store.execution(execution)
    if until is not None:
        shown = _past(host, record, until)
        info, status = _past_view(host, record, shown), ""
    else:
        with Sound(f"the journal of execution {record.id}"):
            shown = Steps.stored(host.store, host.flows, record)
        info = _view(host, record, shown, [], None, tries=False)
        info.pop("took", None)  # it takes all attempts
        status = info["status"]
    not_ended = _not_ended(shown, status)
    ended = ((address, (info["step"], info["status"])) for address, info in not_ended.items())
    return info, Folds(
        {**shown.states, **dict(ended)}, lambda at: not_ended.get(at) or listed(shown.info(at))
    )


def _view(
    host: Host,
    record: ExecutionRecord,
    shown: Steps,
    steps: list[StepInfo],
    step: str | None,
    *,
    tries: bool,
) -> ExecutionInfo:
    """Return the result of `show`."""
    last, execution = shown.last, record.id
    wait_with_what_is_inside(steps)
    took = add_times(steps).get("took", format_duration(0)) if step is None else None
    if step is not None:
        steps = [info for info in steps if info["address"] == step]
    standing = standing_view(host, record)
    stop_with(steps, standing["status"])
    if step is None:
        _leave_out_values(steps, tries=tries)
    error = unpack_error(record.error, f"execution {record.id}")
    return {
        **standing,
        **(again(host, record) if record.status == "failed" else {}),
        "durability": host.store.durability,
        **_budgets(host, execution, last),
        **({} if took is None else {"took": took}),
        "inputs": {} if last is None else last.state["inputs"],
        "steps": steps,
        "waits": [
            stored_wait_view(wait, None if last is None else last.state)
            for wait in host.store.waits(WaitFilter(execution=execution), None, 1000).items
        ],
        "undelivered": [undelivered(sent) for sent in host.store.undelivered(execution)],
        "warnings": [
            {"at": format_time(event["at"]), "about": event["about"], "message": event["message"]}
            for event in shown.warnings()
        ],
        "outputs": unpack_outputs(record.outputs, f"execution {record.id}"),
        "error": error,
    }


def show_past(host: Host, execution: str, until: int, *, tries: bool = False) -> ExecutionInfo:
    """Return an execution as it was before an event.

    Args:
        host: Provides the store.
        execution: Full id.
        until: Number of the event.
        tries: Whether all steps have their attempts.

    Returns:
        See `ExecutionInfo`, without the keys that are not part of the journal.
    """
    record = host.store.execution(execution)
    past = _past(host, record, until)
    with Sound(f"the journal of execution {record.id}"):
        _read_outputs(host, record, past)
    steps = [*map(past.info, past.states)]
    wait_with_what_is_inside(steps)
    _leave_out_values(steps, tries=tries)
    return {**_past_view(host, record, past), "steps": steps}


def _past(host: Host, record: ExecutionRecord, until: int) -> Steps:
    with Sound(f"the journal of execution {record.id}"):
        return Steps.stored(host.store, host.flows, record, min(max(until, 0), _ALL))


def _past_view(host: Host, record: ExecutionRecord, past: Steps) -> ExecutionInfo:
    """Return the result of `show_past`, without steps."""
    view, last = execution_view(record), past.last
    for key in ("ended_at", "due"):
        view.pop(key, None)  # type: ignore[misc]
    if last is None:
        return {**view, "status": "recorded", "inputs": {}, "steps": [], "waits": [], "state": {}}
    state = last.state
    view["event"] = entry_view(last.number, last.event, last.address, last.why)
    loaded = host.store.load(record.id)
    view["entries"] = len(loaded.tail) + (0 if loaded.snapshot is None else loaded.snapshot[0])
    if state["status"] in ENDED:
        view["ended_at"] = format_time(state["now"])
    return {
        **view,
        "status": state["status"],  # type: ignore[typeddict-item]
        "inputs": state["inputs"],
        "steps": [],
        "waits": [
            wait_view(record.id, record.flow, wait["record"])
            for wait in state["waits"].values()
            if wait["shown"]
        ],
        "state": {key: cell[0] for key, cell in state["vars"].items()},
        "outputs": state["outputs"],
        "error": state["error"],
    }


def _leave_out_values(steps: list[StepInfo], *, tries: bool) -> None:
    """Remove the parts that are shown only for one step."""
    for step in steps:
        for key in ("input", "subject", *(() if tries else ("tries",))):
            step.pop(key, None)  # type: ignore[misc]
        for attempt in step.get("tries", ()):
            attempt.pop("input", None)


def _budgets(host: Host, execution: str, last: Moment | None) -> ExecutionInfo:
    """Return the budgets of an execution, as part of the result of `show`."""
    if last is None:
        return {}
    at_work = host.holder(execution) is not None
    now = host.clock.now() if at_work else last.state["now"]
    budgets = budget_views(last.graph, last.state, now)
    return {"budgets": budgets} if budgets else {}
