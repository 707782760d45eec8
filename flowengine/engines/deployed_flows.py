"""Deployed flows: their versions, and the schedules that start them."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from flowengine.engines.executions.linked_flows import LinkedFlow
from flowengine.engines.flows import LoadedFlow
from flowengine.engines.host import Host
from flowengine.engines.infos import DeployedInfo, ScheduledStart, StartInfo
from flowengine.engines.starting.beginning import create, execution_data
from flowengine.engines.starting.inputs import check_inputs
from flowengine.errors import (
    Conflict,
    FlowEngineError,
    InputError,
    NotFound,
    StoreError,
    UsageError,
)
from flowengine.flow.schedules import NoSchedule, Schedule, delay_of, execution_of, name_of
from flowengine.journal.encoding import pack
from flowengine.journal.records import Deployed, OfFlows, Scheduled
from flowengine.journal.store import Store
from flowengine.kernel.expressions.names import inputs_of_start
from flowengine.kernel.graph.compiled import EvaluationError
from flowengine.kernel.notation.times import format_time
from flowengine.sdk.python.imported_modules import check_importable

# Deployed flows: versions that the store keeps, to be started by name, signals and schedules.

SHORTEST_HASH = 8
"""Digits of a hash that are accepted as a name."""


def find(host: Host, name: str, flows: OfFlows | None = None) -> LoadedFlow:
    """Return a deployed flow. See `Engine.flows.find`."""
    hash = versions(host, name, flows)[0].hash
    return LoadedFlow(host.flows.by_hash(hash).compiled, hash)


def listed(host: Host, flow: str | None = None) -> list[DeployedInfo]:
    """Return the deployed versions. See `Engine.flows.versions`."""
    flows: list[DeployedInfo] = []
    current = None
    for deployed in host.store.deployed(flow):
        flows.append(
            {
                "flow": deployed.flow,
                "version": deployed.version,
                "hash": deployed.hash,
                "deployed_at": format_time(deployed.at),
                "current": deployed.flow != current,
            }
        )
        current = deployed.flow
    return flows


def versions(host: Host, name: str, flows: OfFlows | None = None) -> list[Deployed]:
    """Return the versions that a name stands for, the current one first.

    Args:
        host: Provides the store.
        name: `ID`, `ID@VERSION`, or the beginning of a hash.
        flows: Returns whether a flow, given by its id, may be found. None: any.

    Raises:
        NotFound: There is none.
        UsageError: The beginning of a hash fits several flows.
    """
    flow, at, version = name.partition("@")
    matches = [each for each in host.store.deployed(flow) if not at or each.version == version]
    if not matches and not at and len(name) >= SHORTEST_HASH:
        matches = [each for each in host.store.deployed() if each.hash.startswith(name)]
    matches = [each for each in matches if flows is None or flows(each.flow)]
    if flow not in {each.flow for each in matches} and len({each.hash for each in matches}) > 1:
        raise UsageError(f"{name!r} fits several deployed flows", hint="use a longer prefix")
    if not matches:
        known = [
            f"{deployed.flow}@{deployed.version}"
            for deployed in host.store.deployed(flow if at else None)
        ]
        hint = f"deployed flows: {', '.join(known)}" if known else "flowengine deploy FILE"
        raise NotFound(f"no flow '{name}' is deployed", hint=hint)
    return matches


# Starting executions by schedule.
#
# Several processes may do so with the same store. The id of an execution follows from the flow,
# the schedule and the time, so each time starts one execution, and the store moves a schedule to
# its next time for one of them only.

LATE = 60_000
"""A time at which nothing has started for longer than this (ms) was missed."""
STARTED_BY = "schedule"


def first_times(host: Host, flow: LoadedFlow) -> list[tuple[str, int, int | None]]:
    """Return the name of each schedule of a flow, its next time, and when that is due."""
    now, starts = host.clock.now(), []
    is_paused = any(scheduled.due is None for scheduled in _kept(host, flow.id))
    for start in _of(flow.compiled):
        name = _name(start)
        time = _schedule(start).after(now)
        starts.append((name, time, None if is_paused else _due(flow.id, start, time)))
    return starts


def started_by(host: Host, flow: str | None) -> list[StartInfo]:
    """Return what starts executions of deployed flows. See `Engine.flows.starts`."""
    current = {deployed.flow: deployed.hash for deployed in reversed(host.store.deployed(flow))}
    times = {(schedule.flow, schedule.schedule): schedule for schedule in host.store.schedules()}
    starts: list[StartInfo] = []
    for id, hash in sorted(current.items()):
        for start in host.flows.by_hash(hash).compiled.get("start", ()):
            if "signal" in start:
                starts.append({"flow": id, "signal": start["signal"]})
                continue
            info: StartInfo = {"flow": id}
            info["schedule"], info["timezone"] = start["schedule"], start["timezone"]
            info["missed"], info["jitter"] = start["missed"], start["jitter"] / 1000
            kept = times.get((id, _name(start)))
            if kept is not None and kept.due is not None:
                info["next"], info["due"] = format_time(kept.time), format_time(kept.due)
            starts.append(info)
    return starts


def start_due(host: Host, leave: Collection[tuple[str, str]] = ()) -> list[ScheduledStart]:
    """Record an execution for each schedule that is due. See `Engine.flows.start_due`."""
    done = []
    for scheduled in host.store.schedules(host.clock.now()):
        if (scheduled.flow, scheduled.schedule) in leave:
            continue
        try:
            started = _start(host, scheduled)
        except StoreError:
            raise
        except (FlowEngineError, NoSchedule) as error:  # such as a zone missing on this host
            flow, _, name, time, _ = scheduled
            started = ScheduledStart(flow, name, time, None, error)
        if started is not None:
            done.append(started)
    return done


def _start(host: Host, scheduled: Scheduled) -> ScheduledStart | None:
    """Start the execution of a time that is due, and move the schedule to its next time.

    The execution comes first. If this process dies in between, the next one finds it there.

    Returns:
        The execution, or None if there was nothing to start.
    """
    flow, _, name, time, _ = scheduled
    now = host.clock.now()
    compiled = host.flows.by_hash(scheduled.hash).compiled
    start = next(start for start in _of(compiled) if _name(start) == name)
    schedule, due = _schedule(start), _due(flow, start, time)
    if now - due > LATE:
        time = schedule.latest(time, now)
        due = _due(flow, start, time)
    if due > now:
        host.store.move_schedule(scheduled, time, due)
        return None
    result = None
    if now - due <= LATE or start["missed"] == "once":
        result = start_at(host, flow, scheduled.hash, start, time)
    following = schedule.after(time)
    moved = host.store.move_schedule(scheduled, following, _due(flow, start, following))
    return result if moved else None


def pause(host: Host, flow: str) -> None:
    """Pause the schedules of a flow. See `Engine.flows.pause`."""
    _entries(host, flow, None)
    while open_ := [scheduled for scheduled in _kept(host, flow) if scheduled.due is not None]:
        for scheduled in open_:
            host.store.move_schedule(scheduled, scheduled.time, None)


def resume(host: Host, flow: str) -> None:
    """Resume the paused schedules of a flow. See `Engine.flows.resume`."""
    entries = {_name(start): start for _, start in _entries(host, flow, None)}
    now = host.clock.now()
    for scheduled in _kept(host, flow):
        start = entries.get(scheduled.schedule)
        if scheduled.due is None and start is not None:
            time = _schedule(start).after(now)
            host.store.move_schedule(scheduled, time, _due(flow, start, time))


def trigger(host: Host, flow: str, schedule: str | None, user: str) -> str:
    """Record an execution now. See `Engine.flows.trigger`."""
    entries = _entries(host, flow, schedule)
    if len(entries) > 1:
        names = ", ".join(f"'{_name(start)}'" for _, start in entries)
        raise UsageError(f"flow '{flow}' has several schedules: {names}", hint="name one of them")
    [(hash, start)] = entries
    return _begin(host, hash, start, host.clock.now(), None, user)


def times_between(
    host: Host, flow: str, schedule: str | None, since: datetime, until: datetime, most: int
) -> list[tuple[str, Any, int]]:
    """Return the times of a flow's schedules in a range, earliest first.

    Args:
        host: Provides the store.
        flow: Its id.
        schedule: Only those of this schedule.
        since: The first moment of the range, with a time zone.
        until: Its last moment. Later times than now are left out.
        most: How many times it may contain.

    Returns:
        The hash of the flow, the entry of `start` and the time of each.

    Raises:
        InputError: There are more.
    """
    starts: list[tuple[str, Any, int]] = []
    first, last = (int(moment.timestamp() * 1000) for moment in (since, until))
    last = min(last, host.clock.now())
    for hash, start in _entries(host, flow, schedule):
        times, time = _schedule(start), first - 1
        while (time := times.after(time)) <= last:
            starts.append((hash, start, time))
            if len(starts) > most:
                raise InputError(
                    f"the range contains more than {most} times", hint="choose a shorter range"
                )
    return sorted(starts, key=lambda time: time[2])


def start_at(host: Host, flow: str, hash: str, start: Any, time: int) -> ScheduledStart:
    """Record the execution of a time, unless it exists.

    Returns:
        The execution, or why this time is passed over: its inputs are refused, or too many
        executions are open (`concurrency`). The next time may have others.
    """
    name = _name(start)
    try:
        id = id_of_cause(host.store, execution_of(flow, name, time), flow, STARTED_BY)
        id = _begin(host, hash, start, time, id, STARTED_BY)
    except InputError as error:
        return ScheduledStart(flow, name, time, None, error)
    except Conflict as error:
        bound = host.flows.by_hash(hash).compiled.get("concurrency", {})
        is_skipped = bound.get("then") == "skip"
        return ScheduledStart(flow, name, time, None, None if is_skipped else error)
    return ScheduledStart(flow, name, time, id)


def _begin(host: Host, hash: str, start: Any, time: int, id: str | None, user: str) -> str:
    """Record an execution with the inputs of an entry of `start`, and return its id.

    Raises:
        InputError: The inputs are refused.
    """
    linked, now = host.flows.by_hash(hash), host.clock.now()
    data = execution_data(host, linked.compiled, now, id, {}, user)
    data["scheduled_at"] = format_time(time)
    try:
        given = inputs_of_start(linked.graph, start, data, now, {})
    except EvaluationError as error:
        raise _refused(linked, start, error.message, "with") from None
    try:
        checked = check_inputs(linked.graph, given, data, now, host.workdir)
    except InputError as error:
        raise _refused(linked, start, error.message, error.field) from None
    started = {"type": "started", "at": now, "inputs": checked, "execution": data}
    return create(host, linked, started)


def _refused(linked: LinkedFlow, start: Any, why: str, field: str) -> InputError:
    """Return the error about the inputs that the file gives to a schedule."""
    begins, flow = f"'start' on schedule '{_name(start)}'", linked.compiled["id"]
    plain = f"{begins}: its inputs are refused"
    return InputError(f"{begins}: {why}", field=field, plain=plain, flow=flow)


def _entries(host: Host, flow: str, schedule: str | None) -> list[tuple[str, Any]]:
    """Return the hash of a deployed flow with each of its schedules.

    Args:
        host: Provides the store.
        flow: Its id.
        schedule: Only the schedules with this expression, with or without the time zone.

    Raises:
        NotFound: The flow is not deployed, or has no such schedule.
    """
    loaded = find(host, flow)
    every = _of(loaded.compiled)
    matching = [entry for entry in every if schedule in (None, entry["schedule"], _name(entry))]
    if not matching:
        which = "" if schedule is None else f" '{schedule}'"
        names = ", ".join(f"'{_name(entry)}'" for entry in every) or "none"
        raise NotFound(f"flow '{flow}' has no schedule{which}", hint=f"its schedules: {names}")
    return [(loaded.form, entry) for entry in matching]


def _kept(host: Host, flow: str) -> list[Scheduled]:
    return [schedule for schedule in host.store.schedules() if schedule.flow == flow]


def _of(compiled: Any) -> list[Any]:
    """Return the schedules in `start` of a compiled flow."""
    return [start for start in compiled.get("start", ()) if "schedule" in start]


def _name(start: Any) -> str:
    return name_of(start["schedule"], start["timezone"])


def _schedule(start: Any) -> Schedule:
    return Schedule(start["schedule"], start["timezone"])


def _due(flow: str, start: Any, time: int) -> int:
    return time + delay_of(flow, _name(start), time, start["jitter"])


# Deploying flows and removing them.

UNVERSIONED = "0"
"""The version of flows that declare none. It may be deployed again with other contents."""


def deploy(host: Host, flow: LoadedFlow) -> DeployedInfo:
    """Deploy a flow. See `Engine.flows.deploy`."""
    check_importable(flow.functions)
    starts = flow.compiled.get("start", ())
    signals = [start["signal"] for start in starts if "signal" in start]
    schedules = first_times(host, flow) if len(signals) < len(starts) else []
    for other in host.store.deployed(flow.id):
        if other.version == flow.version != UNVERSIONED and other.hash != flow.form:
            before = LoadedFlow(host.flows.by_hash(other.hash).compiled, other.hash)
            if before.hash != flow.hash:
                raise Conflict(
                    f"{flow.id}@{flow.version} was deployed at {format_time(other.at)} with other "
                    "contents",
                    hint="change 'version' in the file",
                )
    deployed = Deployed(flow.id, flow.version, flow.form, host.clock.now())
    host.store.put_flow(flow.form, pack(flow.compiled))
    host.store.deploy(deployed, signals, schedules)
    return listed(host, flow.id)[0]


def undeploy(host: Host, name: str) -> list[Deployed]:
    """Remove deployed versions. See `Engine.flows.undeploy`."""
    removed = versions(host, name)
    if "@" not in name:
        if removed[0].flow != name:
            raise UsageError(f"{name!r} is a hash", hint="give ID, or ID@VERSION")
        host.store.undeploy(name)
        return removed
    flow, _, version = name.partition("@")
    every = host.store.deployed(flow)
    if every[0].version == version and len(every) > 1:
        raise Conflict(
            f"{name} is the current version of '{flow}', which has others",
            hint=f"deploy another version first, or remove all: flowengine deploy --remove {flow}",
        )
    host.store.undeploy(flow, version if len(every) > 1 else None)
    return removed


def id_of_cause(store: Store, id: str, flow: str, started_by: str) -> str:
    """Return the id of the execution that has a cause, whether it exists or not.

    Another execution has the derived id if a program with access to the store chose it. The cause
    then has the next id that is free or its own.

    Args:
        store: The store.
        id: The id that is derived from the cause.
        flow: Id of the flow that the cause starts.
        started_by: Who starts it.
    """
    number, given = 1, id
    while True:
        try:
            there = store.execution(given)
        except NotFound:
            return given
        if (there.flow, there.started_by) == (flow, started_by):
            return given
        import logging

        logging.getLogger("flowengine.engines").warning(
            "the id %s of an execution of '%s' that %s starts is taken by one of '%s' by %s",
            *(given, flow, started_by, there.flow, there.started_by),
        )
        number += 1
        given = f"{id}.{number}"
