"""The history of an execution: attempts, inputs, outputs and errors of each activation.

Most come from the index of the steps that is stored beside the snapshots, and from a replay of the
events since the last snapshot. Executions without an index are replayed from their beginning.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine.engines.executions.linked_flows import first_form, read, walk_on
from flowengine.engines.executions.step_index import REMARK
from flowengine.engines.executions.views import entry_view, execution_view, wait_view
from flowengine.engines.folds import Folds
from flowengine.engines.inspection.budgets import budget_views
from flowengine.engines.inspection.call_endings import shown_status
from flowengine.engines.inspection.indexed import Indexed, read_glance, read_index, step_with_values
from flowengine.engines.inspection.replayed import OpenHistories, Replayed
from flowengine.engines.inspection.steps import ActivationLog, stop_with, wait_with_what_is_inside
from flowengine.engines.inspection.unattended import standing_view
from flowengine.engines.interventions.retrying import again
from flowengine.engines.messages import view as undelivered
from flowengine.engines.people.waits import stored_wait_view
from flowengine.engines.running.recovery import concerns_others
from flowengine.errors import Hint, NotFound
from flowengine.journal.records import ENDED, WaitFilter
from flowengine.journal.shapes import Sound, unpack_error, unpack_outputs
from flowengine.kernel.commands import Observation
from flowengine.kernel.notation.times import format_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from flowengine.engines.executions.linked_flows import LinkedFlows
    from flowengine.engines.host import Host
    from flowengine.engines.infos import Again, ExecutionInfo, StepInfo
    from flowengine.journal.records import ExecutionRecord
    from flowengine.kernel import Graph
    from flowengine.kernel.events import Event, Warned
    from flowengine.kernel.state.records import State


_DONE = frozenset({"succeeded", "skipped", "cancelled"})


class Last(NamedTuple):
    """An execution after its last event."""

    graph: Graph
    state: State


class _Shown(NamedTuple):
    """The displayed parts of an execution besides its record."""

    steps: list[StepInfo]
    last: Last | None
    """None: it has not begun."""
    events: Sequence[Event]
    """All, or from an index only those that are shown."""
    again: Callable[[], Again]
    """Returns how it is continued, if it has failed."""


def show(
    host: Host,
    execution: str,
    step: str | None,
    histories: OpenHistories | None = None,
    *,
    plumbing: bool = False,
    tries: bool = False,
) -> ExecutionInfo:
    """Return all details of an execution.

    Args:
        host: Provides the store.
        execution: Full id.
        step: Full address of the only step to show. None: all.
        histories: The executions that were shown last. None: they are not kept.
        plumbing: Whether to include the connecting steps of a generated flow.
        tries: Whether all steps have their attempts.

    Returns:
        See `ExecutionInfo`.

    Raises:
        NotFound: The execution has no such step.
    """
    record = host.store.execution(execution)
    if step is None and not plumbing:
        with Sound(f"the journal of execution {execution}"):
            shown = _by_index(host, record, tries=tries)
        if shown is not None:
            return _view(host, record, shown, step, plumbing=plumbing, tries=tries)
    with Sound(f"the journal of execution {execution}"):
        known = None if step is None else step_with_values(host.store, host.flows, record, step)
    kept = histories or OpenHistories(0)
    with _replayed(host, record, kept, values=known is None) as replayed:
        now = None if replayed.last is None else Last(replayed.last.graph, replayed.last.state)
        steps = replayed.steps(step)
        if known is not None:
            _fill_in(steps, known)
        shown = _Shown(steps, now, replayed.warnings, _again(host, record, replayed))
        return _view(host, record, shown, step, plumbing=plumbing, tries=tries)


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
        See `ExecutionInfo`. `steps` is empty.
    """
    record = host.store.execution(execution)
    if _has_plumbing(host, record):
        info = show(host, execution, None, histories, tries=True)
        yield {**info, "steps": []}, Folds(info["steps"])  # the view depends on all steps
        return
    with _replayed(host, record, histories, values=False) as replayed:
        now = None if replayed.last is None else Last(replayed.last.graph, replayed.last.state)
        shown = _Shown([], now, replayed.warnings, _again(host, record, replayed))
        info = _view(host, record, shown, None, plumbing=False, tries=False)
        yield info, replayed.folds(info["status"])


def glance(host: Host, execution: str, histories: OpenHistories) -> ExecutionInfo | None:
    """Return the open steps of an execution, like `show`, without its past.

    The cost depends on the size of its state, not on the length of its journal. If it has failed,
    only the journal determines how it is continued, so that is left out.

    Args:
        host: Provides the store.
        execution: Full id.
        histories: The executions that were shown last.

    Returns:
        See `ExecutionInfo`. `steps` contains the open ones and the items of open maps, and
        `warnings` the newest. None: `show` is as fast.
    """
    record = host.store.execution(execution)
    if histories.has(record):
        return None
    with Sound(f"what is stored of execution {execution}"):
        found = read_glance(host, record)
    if found is None:
        return None
    last = Last(found.execution.linked.graph, found.execution.state)
    shown = _Shown(found.steps, last, found.tail, _unknown)
    info = _view(host, record, shown, None, plumbing=False, tries=False)
    _leave_out_values(found.items, tries=False)
    return {**info, "steps": [*info["steps"], *found.items]}


@contextmanager
def _replayed(
    host: Host,
    record: ExecutionRecord,
    histories: OpenHistories | None,
    *,
    values: bool,
    until: int | None = None,
) -> Iterator[Replayed]:
    """Return an execution after all its events, in the block only.

    Args:
        host: Provides the store.
        record: The execution.
        histories: The executions that were shown last. None: they are not kept.
        values: Whether its steps must have their inputs and outputs.
        until: Number of an event, if only the past before it is shown.
    """
    sound = Sound(f"the journal of execution {record.id}")
    if histories is None:
        with sound:
            replayed = Replayed(host.flows, record.hash)
            replayed.add(read(host.store, record.id))
        yield replayed
        return
    with ExitStack() as stack:
        with sound:
            opened = histories.opened(host.store, host.flows, record, values=values, until=until)
            replayed = stack.enter_context(opened)
        yield replayed


def _view(
    host: Host,
    record: ExecutionRecord,
    shown: _Shown,
    step: str | None,
    *,
    plumbing: bool,
    tries: bool,
) -> ExecutionInfo:
    """Return the result of `show`."""
    steps, last, events, retried = shown
    execution = record.id
    wait_with_what_is_inside(steps)
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
    elif not plumbing:
        steps = [step for step in steps if "plumbing" not in step or _needs_a_look(step, steps)]
    standing = standing_view(host, record)
    stop_with(steps, standing["status"])
    if step is None:
        _leave_out_values(steps, tries=tries)
    error = unpack_error(record.error, f"execution {record.id}")
    return {
        **standing,
        **(retried() if record.status == "failed" else {}),
        "durability": host.store.durability,
        **_budgets(host, execution, last),
        "inputs": {} if last is None else last.state["inputs"],
        "steps": steps,
        "waits": [
            stored_wait_view(wait, None if last is None else last.state)
            for wait in host.store.waits(WaitFilter(execution=execution), None, 1000).items
        ],
        "undelivered": [undelivered(sent) for sent in host.store.undelivered(execution)],
        "warnings": [_warning(event) for event in _warnings(events)],
        "outputs": unpack_outputs(record.outputs, f"execution {record.id}"),
        "error": error,
    }


def show_past(
    host: Host,
    execution: str,
    until: int,
    histories: OpenHistories | None = None,
    *,
    plumbing: bool = False,
    tries: bool = False,
) -> ExecutionInfo:
    """Return an execution as it was before an event.

    Args:
        host: Provides the store.
        execution: Full id.
        until: Number of the event.
        histories: The executions that were shown last. None: they are not kept.
        plumbing: Whether to include the connecting steps of a generated flow.
        tries: Whether all steps have their attempts.

    Returns:
        See `ExecutionInfo`, without the keys that are not part of the journal.
    """
    record = host.store.execution(execution)
    with _past(host, record, until, histories, values=True) as (past, entries):
        info, steps = _past_view(record, past, entries), past.steps()
    wait_with_what_is_inside(steps)
    if not plumbing:
        steps = [step for step in steps if "plumbing" not in step or _needs_a_look(step, steps)]
    _leave_out_values(steps, tries=tries)
    return {**info, "steps": steps}


@contextmanager
def past_folds(
    host: Host, execution: str, until: int, histories: OpenHistories
) -> Iterator[tuple[ExecutionInfo, Folds]]:
    """Return an execution as it was before an event, with the tree of its steps, like `folds`.

    If it was shown before an earlier event last, the cost depends on the events between them.
    """
    record = host.store.execution(execution)
    if _has_plumbing(host, record):
        info = show_past(host, execution, until, histories)
        yield {**info, "steps": []}, Folds(info["steps"])
        return
    with _past(host, record, until, histories, values=False) as (past, entries):
        yield _past_view(record, past, entries), past.folds("")


@contextmanager
def _past(
    host: Host,
    record: ExecutionRecord,
    until: int,
    histories: OpenHistories | None,
    *,
    values: bool,
) -> Iterator[tuple[Replayed, int]]:
    """Return an execution before an event, and the length of its journal, in the block only."""
    if histories is None:
        whole = read(host.store, record.id)
        with Sound(f"the journal of execution {record.id}"):
            past = Replayed(host.flows, first_form(whole, record.hash))
            past.add(whole[: max(until, 0)])  # replayed only as far as needed
        yield past, len(whole)
        return
    until = max(until, 0)
    with _replayed(host, record, histories, values=values, until=until) as replayed:
        with Sound(f"the journal of execution {record.id}"):
            past = replayed.before(until)
        yield past, replayed.length


def _past_view(record: ExecutionRecord, past: Replayed, entries: int) -> ExecutionInfo:
    """Return the result of `show_past`, without steps.

    Args:
        record: The execution.
        past: The execution as it was.
        entries: Length of its journal now.
    """
    view, last = execution_view(record), past.last
    for key in ("ended_at", "due"):
        view.pop(key, None)  # type: ignore[misc]
    if last is None:
        return {**view, "status": "recorded", "inputs": {}, "steps": [], "waits": [], "state": {}}
    state = last.state
    view["event"] = entry_view(last.number, last.event, last.address, last.why)
    view["entries"] = entries
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


def _has_plumbing(host: Host, record: ExecutionRecord) -> bool:
    return any("plumbing" in step for step in host.flows.by_hash(record.hash).compiled["steps"])


def _needs_a_look(step: StepInfo, steps: list[StepInfo]) -> bool:
    """Return whether to show a connecting step to users."""
    if step["status"] != "waiting":
        return step["status"] in ("failed", "refused", "uncertain", "retrying")
    inside = (f"{step['address']}/", f"{step['address']}[")
    return not any(step["address"].startswith(inside) for step in steps)


def _by_index(host: Host, record: ExecutionRecord, *, tries: bool) -> _Shown | None:
    """Return the same from the index of the steps and later events. None: it has no index.

    Args:
        host: Provides the store.
        record: The execution.
        tries: Whether its attempts are shown, whose inputs only the indexes of agents lack.
    """
    linked = host.flows.by_hash(record.hash)
    if tries and not linked.tells:
        return None
    indexed = read_index(host.store, host.flows, record, values=True)
    if indexed is None:
        return None
    log = ActivationLog()
    hidden = _done_plumbing(indexed)
    log.load(host.flows, indexed.first_form, indexed.rows, indexed.events, hidden)
    seen: list[Observation] = []
    for moment in walk_on(host.flows, record.hash, *indexed[:3], indexed.tail, observe=seen):
        log.take(moment, seen)
    last = Last(indexed.graph, indexed.state)
    read_all = partial(read, host.store, record.id)
    again_ = partial(again, host, record, read_all)
    return _Shown([*map(log.read, log.steps)], last, [*indexed.remarked, *indexed.tail], again_)


def _again(host: Host, record: ExecutionRecord, replayed: Replayed) -> Callable[[], Again]:
    journal = partial(replayed.events, 0, replayed.length)
    return partial(again, host, record, journal, replayed.fork_point)


def _unknown() -> Again:
    """Return how an execution is continued whose journal is not read, although it determines it."""
    return {}


def _done_plumbing(indexed: Indexed) -> set[str]:
    """Return the addresses of connecting steps that are never shown."""
    node, steps = indexed.graph.node, indexed.graph.flow["steps"]
    statuses = {
        row.address: shown_status(row.observation, steps[row.step])
        for row in indexed.rows
        if row.source != REMARK and node(row.step).plumbing
    }
    return {address for address, status in statuses.items() if status in _DONE}


def steps_of(flows: LinkedFlows, hash: str, journal: list[Event]) -> list[StepInfo]:
    """Return every activation of a journal with its attempts, in order of beginning.

    Args:
        flows: The flows under which it was written.
        hash: Hash of the flow that the execution runs now.
        journal: All events.
    """
    replayed = Replayed(flows, hash)
    replayed.add(journal)
    return replayed.steps()


def _budgets(host: Host, execution: str, last: Last | None) -> ExecutionInfo:
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
