"""The history of an execution: attempts, inputs, outputs and errors of each activation.

Most come from the index of the steps that is stored beside the snapshots, and from a replay of the
events since the last snapshot. Executions without an index are replayed from their beginning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from flowengine.engines.executions.linked_flows import LinkedFlows, read, walk
from flowengine.engines.executions.moments import Moment
from flowengine.engines.executions.views import entry_view, wait_view
from flowengine.engines.folds import Folds
from flowengine.engines.host import Host
from flowengine.engines.infos import ExecutionInfo, StepInfo, execution_view
from flowengine.engines.inspection.budgets import budget_views
from flowengine.engines.inspection.indexed import step_with_values
from flowengine.engines.inspection.replayed import OpenHistories, Replayed, Values, Watch
from flowengine.engines.inspection.requests import RequestLog, asks_models
from flowengine.engines.inspection.steps import (
    ActivationLog,
    add_times,
    stop_with,
    wait_with_what_is_inside,
)
from flowengine.engines.inspection.unattended import standing_view
from flowengine.engines.interventions.retrying import again
from flowengine.engines.messages import view as undelivered
from flowengine.engines.people.waits import stored_wait_view
from flowengine.errors import Hint, NotFound
from flowengine.journal.records import ENDED, ExecutionRecord, WaitFilter
from flowengine.journal.shapes import Sound, unpack_error, unpack_outputs
from flowengine.kernel.commands import Observation
from flowengine.kernel.events import Event, Warned
from flowengine.kernel.notation.times import format_duration, format_time


def show(
    host: Host,
    execution: str,
    step: str | None,
    histories: OpenHistories | None = None,
    *,
    tries: bool = False,
) -> ExecutionInfo:
    """Return all details of an execution.

    Args:
        host: Provides the store.
        execution: Full id.
        step: Full address of the only step to show. None: all.
        histories: The executions that were shown last. None: they are not kept.
        tries: Whether all steps have their attempts.

    Returns:
        See `ExecutionInfo`.

    Raises:
        NotFound: The execution has no such step.
    """
    record = host.store.execution(execution)
    asked = RequestLog(execution, step or "")
    with Sound(f"the journal of execution {execution}"):
        at = host.store, host.flows, record
        known = None if step is None else step_with_values(*at, step, asked.record)
    values: Values = "all" if step is not None else _values(host, record, tries)
    if known is not None:
        values = "none"
    watch = None if step is None or known is not None else asked.record
    with _opened(host, record, histories or OpenHistories(0), values, watch) as replayed:
        steps, is_read = replayed.steps(step), known is not None or replayed.is_watched
        if known is not None:
            _fill_in(steps, known)
        info = _view(host, record, replayed, steps, step, tries=tries)
    if step is not None:
        _add_request(host, record, info["steps"], asked, is_read=is_read)
    return info


def _add_request(
    host: Host, record: ExecutionRecord, steps: list[StepInfo], asked: RequestLog, *, is_read: bool
) -> None:
    """Add the request that the shown step sent to a model.

    Args:
        host: Provides the store.
        record: The execution.
        steps: The shown step.
        asked: Collects the parts of the request.
        is_read: Whether it is complete. Otherwise, the journal is replayed.
    """
    for shown in steps:
        if not asks_models(shown["kind"]):
            continue
        if not is_read:
            seen: list[Observation] = []
            for moment in walk(host.flows, record.hash, read(host.store, record.id), seen):
                asked.record(moment, seen)
                seen.clear()
        request = asked.request(shown.get("output"))
        if request is not None:
            shown["request"] = dict(request)


def _values(host: Host, record: ExecutionRecord, tries: bool) -> Values:
    """Return which values the steps of an execution need, if all are shown.

    Args:
        host: Provides the flows.
        record: The execution.
        tries: Whether its attempts are shown. Those of agents are shown without inputs.
    """
    return "all" if tries and not host.flows.by_hash(record.hash).tells else "outputs"


def _listed_values(host: Host, record: ExecutionRecord) -> Values:
    """Return which values lists of steps need: the status of a call depends on its output."""
    return "outputs" if host.flows.by_hash(record.hash).tells else "none"


def _fill_in(steps: list[StepInfo], known: StepInfo) -> None:
    """Give a step its values. A map or loop began with its first item or round."""
    for number, step in enumerate(steps):
        if step["address"] == known["address"]:
            steps[number] = {**known, "started_at": step["started_at"]}


@contextmanager
def folds(
    host: Host, execution: str, histories: OpenHistories
) -> Iterator[tuple[ExecutionInfo, Folds]]:
    """Return an execution with the tree of its steps, which changes after the block.

    If it was shown before, the cost depends on the changed and the open steps.

    Args:
        host: Provides the store.
        execution: Full id.
        histories: The executions that were shown last.

    Returns:
        See `ExecutionInfo`, without `took`. `steps` is empty.
    """
    record = host.store.execution(execution)
    with _opened(host, record, histories, _listed_values(host, record)) as replayed:
        info = _view(host, record, replayed, [], None, tries=False)
        info.pop("took", None)  # it takes all attempts
        yield info, replayed.folds(info["status"])


@contextmanager
def _opened(
    host: Host,
    record: ExecutionRecord,
    histories: OpenHistories,
    values: Values,
    watch: Watch | None = None,
) -> Iterator[Replayed]:
    """Return an execution after all its events, in the block only."""
    with ExitStack() as stack:
        with Sound(f"the journal of execution {record.id}"):
            opened = histories.opened(host.store, host.flows, record, values, watch)
            replayed = stack.enter_context(opened)
        yield replayed


def _view(
    host: Host,
    record: ExecutionRecord,
    shown: Replayed,
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
        if not steps:
            raise NotFound(
                f"execution {execution} has no step '{step}'",
                hint=Hint(
                    f"see its steps: flowengine show {execution}",
                    http=f"see its steps: GET /v1/executions/{execution}",
                ),
            )
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
        "warnings": [_warning(event) for event in _warnings(shown.warnings)],
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
    past = _past(host, record, until, _values(host, record, tries))
    info, steps = _past_view(host, record, past), past.steps()
    wait_with_what_is_inside(steps)
    _leave_out_values(steps, tries=tries)
    return {**info, "steps": steps}


def past_folds(host: Host, execution: str, until: int) -> tuple[ExecutionInfo, Folds]:
    """Return an execution as it was before an event, with the tree of its steps, like `folds`."""
    record = host.store.execution(execution)
    past = _past(host, record, until, _listed_values(host, record))
    return _past_view(host, record, past), past.folds("")


def _past(host: Host, record: ExecutionRecord, until: int, values: Values) -> Replayed:
    past, length = Replayed(host.store, host.flows, record, values), _length(host, record)
    with Sound(f"the journal of execution {record.id}"):
        past.read(min(max(until, 0), length))
    return past


def _length(host: Host, record: ExecutionRecord) -> int:
    """Return the length of a journal."""
    loaded = host.store.load(record.id)
    return len(loaded.tail) + (0 if loaded.snapshot is None else loaded.snapshot[0])


def _past_view(host: Host, record: ExecutionRecord, past: Replayed) -> ExecutionInfo:
    """Return the result of `show_past`, without steps."""
    view, last = execution_view(record), past.last
    for key in ("ended_at", "due"):
        view.pop(key, None)  # type: ignore[misc]
    if last is None:
        return {**view, "status": "recorded", "inputs": {}, "steps": [], "waits": [], "state": {}}
    state = last.state
    view["event"] = entry_view(last.number, last.event, last.address, last.why)
    view["entries"] = _length(host, record)
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


def steps_of(flows: LinkedFlows, hash: str, journal: list[Event]) -> list[StepInfo]:
    """Return every activation of a journal with its attempts, in order of beginning.

    Args:
        flows: The flows under which it was written.
        hash: Hash of the flow that the execution runs now.
        journal: All events.
    """
    log, seen = ActivationLog(), list[Observation]()
    for moment in walk(flows, hash, journal, seen):
        log.record(moment, seen)
    return [*map(log.read, log.steps)]


def _budgets(host: Host, execution: str, last: Moment | None) -> ExecutionInfo:
    """Return the budgets of an execution, as part of the result of `show`."""
    if last is None:
        return {}
    at_work = host.holder(execution) is not None
    now = host.clock.now() if at_work else last.state["now"]
    budgets = budget_views(last.graph, last.state, now)
    return {"budgets": budgets} if budgets else {}


def _warnings(events: Sequence[Event]) -> list[Warned]:
    return [event for event in events if event["type"] == "warning" and concerns_others(event)]


def _warning(event: Warned) -> dict[str, Any]:
    return {"at": format_time(event["at"]), "about": event["about"], "message": event["message"]}


def concerns_others(warning: Mapping[str, Any]) -> bool:
    """Return whether a warning is shown, and not only kept in the journal.

    A refused decision is kept for an audit: the user who tried to decide received it.

    Args:
        warning: The event, or a view of it.
    """
    return bool(warning["about"] != "decision")
