"""Forks: new executions that continue from a point of an existing one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

from flowengine.engines.attempts.runtime_resources import check_names
from flowengine.engines.executions.execution import Execution
from flowengine.engines.executions.linked_flows import LinkedFlow, forms, read
from flowengine.engines.flows import LoadedFlow, as_loaded
from flowengine.engines.host import Host
from flowengine.engines.interventions.counterparts import running
from flowengine.engines.interventions.fork_points import (
    ForkPast,
    Results,
    check_same_past,
    form_then,
    past_of,
    undoing,
    undone_in,
)
from flowengine.engines.interventions.retracing import within
from flowengine.engines.interventions.retrying import fork_at
from flowengine.engines.snapshots import unit_at
from flowengine.engines.starting.beginning import execution_data, new_record
from flowengine.engines.starting.inputs import with_defaults
from flowengine.errors import Conflict, Hint, InputError
from flowengine.flow.building.flow import Flow
from flowengine.journal.records import ExecutionRecord
from flowengine.journal.shapes import Sound
from flowengine.kernel.events import Event
from flowengine.kernel.notation.addresses import COMPENSATION
from flowengine.kernel.view import View
from flowengine.sdk.values.validation import validate


def fork(
    host: Host,
    old: str,
    at: str,
    values: Mapping[str, Any] | None,
    flow: Flow | LoadedFlow | str | PathLike[str] | None,
    id: str | None,
    labels: Mapping[str, str] | None,
    user: str,
    resources: Mapping[str, Any] | None = None,
) -> Execution:
    """Create an execution that shares the past of another one up to the start of a step.

    That step starts again, after `values` are written into the state. Other steps keep waiting. A
    step that was running takes its later result from the old execution. Without a result it counts
    as interrupted. A fork at a compensation undoes the steps that the old execution has not undone.

    Args:
        host: Provides the store.
        old: Its id, or an unambiguous prefix of it. It is not changed.
        at: Address of the step.
        values: State to write.
        flow: A changed flow, if any.
        id: Id of the new execution. None: a new id. That of an ended old one replaces it.
        labels: Labels to filter lists by. None: those of the old execution.
        user: The user who forks it.
        resources: Objects of the caller for it, by name.

    Returns:
        The new execution, with its lease. Its first commit creates it.
    """
    changed = None if flow is None else as_loaded(flow)
    values, old = values or {}, host.store.find_execution(old)
    record = host.store.execution(old)
    journal = read(host.store, old)
    check_not_undone(host, record, journal, at)
    with Sound(f"the stored data of execution {old}"):
        found = past_of(host.flows, record.hash, journal, old, at)
    past = found.events
    before = host.flows.by_hash(form_then(journal, past, record.hash))
    linked = before if changed is None else host.flows.of(changed.compiled, changed.form)
    if linked is not before:
        check_same_past(host.flows, before, linked, past, at)
    values = _checked_state(linked, values)
    now = host.clock.now()
    data = execution_data(host, linked.compiled, now, id, labels or record.labels, user)
    began = past[0]["execution"]
    if id == old:  # it continues under its name
        data["identity"] = began["identity"]
    data["started_by"] = began["started_by"]  # a fork changes no user's part
    data["forked_by"] = [*began.get("forked_by", ()), user]
    if "environments" in began:
        data["environments"] = began["environments"]
    check_names(linked.compiled, resources or {}, data.get("environments", {}))
    if brought := {*began.get("resources", ()), *(resources or ())}:
        data["resources"] = sorted(brought)
    host.bring(data["id"], resources or {})
    past[0] = {**past[0], "inputs": _with_new_inputs(linked, past[0]), "execution": data}
    execution = host.execution(data["id"], linked, 1, user)
    origin = record.forked_from if id == old else f"{old} at {at}"
    new = new_record(linked, data, past[0], host.keeper.owner.id, origin, files_of=old)
    execution.begin_with(new, past, forms(past))
    host.keeper.reserve(data["id"])
    graph, state = linked.graph, execution.state
    # Written at the time of the past, because the retry extends the deadlines of steps by the time
    # since then.
    written: Any = {"type": "state", "at": state["now"], "values": dict(values), "by": user}
    again, *late = _again(View(graph, state), at, found, now, user)
    if at.endswith(COMPENSATION):
        again |= {"undone": found.undone, **found.ended}
    else:
        late += _warnings(record, found, now)
    execution.queue += [written, again, *late]
    return execution


def _with_new_inputs(linked: LinkedFlow, started: Any) -> dict[str, Any]:
    """Return the inputs of an execution, with the defaults of those that a changed flow has added.

    Raises:
        InputError: One of them has no default.
    """
    given, declared = started["inputs"], linked.compiled.get("inputs", {})
    if declared.keys() <= given.keys():
        return dict(given)
    kept = {name: given[name] for name in declared if name in given}
    complete = with_defaults(linked.graph, kept, started["execution"], started["at"])
    for name in declared.keys() - complete.keys():
        raise InputError(
            f"the changed flow needs the input '{name}', which the execution does not have",
            field=name,
            hint="give it a default",
        )
    return {**complete, **given}


def _again(view: View, at: str, past: ForkPast, now: int, user: str) -> list[Any]:
    """Return the event that restarts a step, and the results that follow it."""
    late = [{**result, "at": now} for result in _came_later(view, at, past.results)]
    again = {"type": "retry", "at": now, "by": user, **_beginning(view, at)}
    attempts = running(view.graph, view.state).items()
    if fresh := [unit for unit, attempt in attempts if attempt not in past.at_work]:
        again["fresh"] = fresh
    if late:
        again["late"] = [result["unit"] for result in late]
    if anew := _whole(view):
        again["overdue"] = anew
    return [again, *late]


def _beginning(view: View, at: str) -> dict[str, Any]:
    """Return the fields of the event that identify the step to restart."""
    if view.state.get("hold", {}).get("at") == at:
        return {"unit": None, "hold": {"at": at}}
    return {"unit": unit_at(view.graph, view.state, at)}


def _came_later(view: View, at: str, results: Results) -> list[Any]:
    """Return the later results of attempts that ran beside the step of a fork, which are facts.

    If the step is not active or held, other attempts may depend on it, so nothing is returned.
    """
    state = view.state
    tables: list[Any] = [state["units"], state["acts"], state["scopes"]]
    is_held = any("then" in record for table in tables for record in table.values())
    if not is_held and unit_at(view.graph, state, at) is None:
        return []
    beside = {
        n: attempt
        for n, attempt in running(view.graph, state).items()
        if not within(attempt[0], at)
    }
    return [{**results[attempt], "unit": n} for n, attempt in beside.items() if attempt in results]


def check_not_undone(
    host: Host, record: ExecutionRecord, journal: Sequence[Event], at: str
) -> None:
    """Check that no earlier fork has run the same compensation.

    Raises:
        Conflict: One has undone it or a part of it, or is at work on it.
    """
    if not at.endswith(COMPENSATION):
        return
    undone = undoing(host, record)
    step = at.removesuffix(COMPENSATION)
    if step in undone_in(host, record):
        hint = Hint(f"flowengine show {host.store.short_execution(record.id)}")
        raise Conflict(f"'{step}' was undone by execution {record.id}", hint=hint)
    if not undone.by:
        return
    step = step if step in undone.by else next(iter(undone.by))
    short = host.store.short_execution
    hint = Hint(f"see it: flowengine show {short(undone.by[step])}")
    if undone.left:
        command = fork_at(short(undone.last), undone.left[0] + COMPENSATION)
        hint = Hint(f"undo the rest: {command}")
    raise Conflict(
        f"'{step}' was undone by execution {undone.by[step]}, a fork of this one", hint=hint
    )


def _warnings(record: ExecutionRecord, past: ForkPast, now: int) -> list[Any]:
    """Return a warning if steps that had succeeded before a fork begins were undone later."""
    message = (
        f"the fork keeps results that execution {record.id} has undone: "
        f"{', '.join(past.outdated)}. If it compensates, they are undone again"
    )
    warning = {"type": "warning", "at": now, "about": "fork", "message": message}
    return [warning] if past.outdated else []


def _whole(view: View) -> list[int]:
    """Return the timer of the whole execution's limit, which starts anew in a fork."""
    root = view.root()["id"]
    timers = view.state["timers"].items()
    return [n for n, timer in timers if timer["why"] == "duration" and timer["ref"] == root]


def _checked_state(linked: LinkedFlow, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values to write into the state, checked.

    Raises:
        InputError: The flow does not declare the key, or the value does not match.
    """
    declared = linked.compiled.get("state", {})
    checked = {}
    for key, value in values.items():
        if key not in declared:
            known = ", ".join(declared) or "none"
            message, flow = f"there is no state '{key}'", linked.compiled["id"]
            hint = f"state: {known}"
            raise InputError(message, field=key, hint=hint, plain=message, flow=flow)
        checked[key] = validate(declared[key].get("schema", {}), value, f"state '{key}'")
    return checked
