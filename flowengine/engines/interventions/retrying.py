"""Retries of failed executions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from os import PathLike
from shlex import quote
from typing import Any

from flowengine.engines.actors import Actor
from flowengine.engines.attempts.failures import (
    is_over_call_limit,
)
from flowengine.engines.executions.execution import Execution
from flowengine.engines.executions.linked_flows import LinkedFlow, read, unpacked
from flowengine.engines.flows import LoadedFlow, as_loaded
from flowengine.engines.host import Host
from flowengine.engines.infos import Again
from flowengine.engines.interventions.fork_points import (
    failed_compensations,
    last_point,
    undoing,
    undone_in,
)
from flowengine.engines.interventions.obstacles import Obstacle
from flowengine.engines.interventions.repeated_calls import begun_anew, past_calls
from flowengine.engines.interventions.retracing import (
    Held,
    Line,
    event_of,
    look_back,
    past_of_all,
    retrace,
)
from flowengine.engines.interventions.upgrading import (
    move_obstacles,
    of_flow,
    steps_that_ran,
    upgraded,
)
from flowengine.engines.running.driving import Driving
from flowengine.engines.snapshots import read_snapshot
from flowengine.engines.step_queries import first_failure
from flowengine.errors import Conflict, Hint, NotFound
from flowengine.flow.building.flow import Flow
from flowengine.journal.records import ExecutionRecord
from flowengine.journal.shapes import unpack_error
from flowengine.kernel.events import ErrorData
from flowengine.kernel.notation.addresses import COMPENSATION


def retried(
    host: Host,
    driving: Driving,
    execution: str,
    steps: Sequence[str],
    flow: Flow | LoadedFlow | str | PathLike[str] | None,
    who: Actor,
    resources: Mapping[str, Any] | None = None,
    *,
    repeat_once: bool = False,
) -> Execution:
    """Return a failed execution that is about to start again, with its lease.

    See `Engine.executions.retry`.
    """
    linked = None if flow is None else _form(host, execution, flow)
    driven = driving.loaded(execution, resources)
    try:
        retry(host, driven, steps, linked, who, repeat_once=repeat_once)
    except BaseException:
        host.keeper.release(driven.leases)
        raise
    return driven


def _form(host: Host, execution: str, flow: Flow | LoadedFlow | str | PathLike[str]) -> LinkedFlow:
    """Return the fixed version of a flow to continue with."""
    form = as_loaded(flow)
    of_flow(host, form, [host.store.find_execution(execution)])
    return host.flows.of(form.compiled, form.form)


def retry(
    host: Host,
    execution: Execution,
    steps: Sequence[str],
    linked: LinkedFlow | None,
    who: Actor,
    *,
    repeat_once: bool = False,
) -> None:
    """Take a failed execution back to where it failed, and restart the failed steps.

    Args:
        host: Provides the store.
        execution: Loaded, with its lease. The request is added to its queue.
        steps: Addresses of the steps to restart. Empty: everything that failed.
        linked: A fixed version of the flow to continue with. None: the one that failed.
        who: The actor.
        repeat_once: Whether calls with effect `once` may be repeated. See `begun_anew`.

    Raises:
        Conflict: It has not failed, it cannot be restarted in place, or it would repeat calls.
        NotFound: No step exists at the address.
    """
    held = held_failures(
        host, execution.id, execution.state["status"], execution.linked.hash, steps
    )
    if not repeat_once:
        _check_nothing_repeated(host, execution, held, " --file FILE" if linked else "")
    now = host.clock.now()
    event = event_of(held, now, execution.state["last"], who.user)
    queue = [event]
    if linked is not None and linked.hash != execution.linked.hash:
        begins: Any = {key: value for key, value in event.items() if key not in ("back", "kept")}
        queue = [{**event, "stays": True}, _moved(host, execution, linked, held, who), begins]
    execution.put_back(held.state)
    queue += [{**late, "at": now} for late in held.late]
    execution.queue[:0] = queue


def held_failures(host: Host, execution: str, status: str, hash: str, steps: Sequence[str]) -> Held:
    """Return the state of an execution without the failures to retry.

    Args:
        host: Provides the store.
        execution: Full id.
        status: Of the execution.
        hash: Of the flow that it runs.
        steps: Addresses of the steps to restart. Empty: everything that failed.

    Raises:
        Conflict: It has not failed, or it cannot be restarted in place.
        NotFound: No step exists at the address.
    """
    short = host.store.short_execution(execution)
    if status != "failed":
        standing = f"has {status}" if status == "succeeded" else f"is {status}"
        raise Conflict(
            f"execution {execution} {standing}: only a failed execution can be retried",
            hint=Hint(f"flowengine show {short}"),
        )
    journal = read(host.store, execution)
    try:
        return retrace(past_of_all(host.flows, hash, journal), steps)
    except Conflict as refused:
        message = f"execution {execution} cannot be retried: {refused.message}"
        how = again(host, host.store.execution(execution))
        command = how.get("command") if how.keys() & _UNDOING else fork_at(short, refused.hint)
        hint = Hint(f"flowengine show {short}")
        if command is not None:
            hint = Hint(f"start a new execution from there: {command}")
        raise Conflict(message, hint=hint) from None
    except NotFound as refused:
        hint = Hint(f"see its steps: flowengine show {short}")
        raise NotFound(f"{refused.message} in execution {execution}", hint=hint) from None


def _check_nothing_repeated(host: Host, execution: Execution, held: Held, file: str) -> None:
    if not (anew := begun_anew(held)):
        return
    journal = read(host.store, execution.id)
    calls = past_calls(host, execution.linked.hash, journal).within(anew)
    once = [address for address, effect in calls.succeeded.items() if effect == "once"]
    if not once:
        return
    short = host.store.short_execution(execution.id)
    hint = f"repeat them: flowengine retry {short} --repeat-once{file}"
    if calls.refused:
        at = f"{fork_at(short, calls.refused[-1])} --file FILE"
        hint = f"continue with the refused call in a new execution: {at}. Or {hint}"
    more = f" and {len(once) - _NAMED} more" if len(once) > _NAMED else ""
    raise Conflict(
        f"a retry of execution {execution.id} begins {', '.join(held.addresses)} anew and repeats "
        f"calls with effect 'once' that have succeeded: {', '.join(once[:_NAMED])}{more}",
        hint=Hint(hint),
    )


def _moved(host: Host, execution: Execution, linked: LinkedFlow, held: Held, who: Actor) -> Any:
    """Return the event that continues an execution with a fixed flow, checked like an upgrade.

    Raises:
        Conflict: Part of its state has no counterpart in the flow.
    """
    record = host.store.execution(execution.id)
    ran = steps_that_ran(host, record)
    blocking = move_obstacles(execution.linked.graph, linked.graph, held.state, {}, ran)
    if blocking:
        why = "; ".join(_why(obstacle, held.addresses) for obstacle in blocking)
        hint = "change only what failed and what comes after it"
        journal = read(host.store, execution.id)
        at = last_point(host.flows, record.hash, journal, linked, held.addresses)
        if at is not None:
            command = fork_at(host.store.short_execution(execution.id), at)
            hint += f", or start a new execution: {command} --file FILE"
        raise Conflict(
            f"execution {execution.id} cannot continue with this version of its flow: {why}",
            hint=Hint(hint),
            plain=f"execution {execution.id} cannot continue with this version of its flow",
            flow=record.flow,
        )
    return upgraded(execution, linked, {}, who, host.clock.now())


def _why(obstacle: Obstacle, failed: Sequence[str]) -> str:
    """Return an obstacle as text. No step runs: it failed, or was stopped by the failure.

    Args:
        failed: Addresses of the steps that failed.
    """
    is_failed = obstacle.name.rpartition(":")[2] in {_step_in(address) for address in failed}
    stands = "it failed" if is_failed else "it has not ended"
    why = re.sub("(?<!of )it is running", stands, obstacle.why)
    return f"{obstacle.name}: {why}" if obstacle.name else why


# The command line


LASTING = frozenset(
    {
        *("AssertionError", "BudgetExceeded", "ExpressionError", "MaxTurns"),
        *("Damaged", "UnsupportedFormat", "UrlRefused"),
    }
)
"""Types of errors that recur after a retry: a used-up budget, values that do not change, or a
document or address that remains the same. The number of a tool's calls is also kept."""


_UNDOING = {"not_undone", "undone_by"}
_NAMED = 3
"""Maximum number of repeated calls that an error names."""


_MOST_POINTS = 1000
"""Failed executions whose fork points are kept in memory."""


def fork_point(host: Host, record: ExecutionRecord) -> str | None:
    """Return where a fork of a failed execution can start. None: it can be retried in its place."""
    key, points = (record.id, record.ended_at), host.fork_points
    if key not in points:
        near = _before_failure(host, record)
        past = None if near is None else look_back(near)
        if past is None or past.undone or not all(failed.address for failed in past.failures):
            past = past_of_all(host.flows, record.hash, read(host.store, record.id))
        while len(points) >= _MOST_POINTS:
            points.pop(next(iter(points)))
        try:
            retrace(past)
            points[key] = None
        except Conflict as refused:
            points[key] = refused.hint
    return points[key]


def _before_failure(host: Host, record: ExecutionRecord) -> Line | None:
    """Return a failed execution since the last snapshot before anything in it failed.

    None: the store has no rows that show that, or it was retried.
    """
    table = host.store.steps(record.id)
    if table is None:
        return None
    failed = first_failure(table)
    until = None if failed is None else failed + 1
    near = read_snapshot(host.store, host.flows, record.id, until)
    events = unpacked(record.id, host.store.events(record.id, near.number))
    if any("back" in event for event in events):
        return None
    return Line(host.flows, near.graph, near.state, events)


def again(host: Host, record: ExecutionRecord) -> Again:
    """Return how to try again what failed in an execution, and which steps were not undone.

    Args:
        host: Provides the store.
        record: Of a failed execution.
    """
    error = unpack_error(record.error, f"execution {record.id}")
    if not failed_compensations(error):
        # A fork that was to undo the rest has done so, although it ends with the first error.
        if undone := undone_in(host, record):
            return {"undone_by": dict.fromkeys(undone, record.id)}
        id, refused = host.store.short_execution(record.id), fork_point(host, record)
        if refused is not None:  # compensated: a fork starts at the first step that was undone
            return {"command": fork_at(id, refused)}
        fixed = " --file FILE" if _comes_again(host, record, error) else ""
        return {"command": f"flowengine retry {id}{fixed}"}
    undo = undoing(host, record)
    view: Again = {}
    if undo.by:
        view["undone_by"] = undo.by
    if undo.left:
        view["not_undone"] = undo.left
        id = host.store.short_execution(undo.last)
        view["command"] = fork_at(id, undo.left[0] + COMPENSATION)
    return view


def _comes_again(host: Host, record: ExecutionRecord, error: ErrorData | None) -> bool:
    """Return whether the same flow must fail with the same error again.

    A value given to a step that does not fit is the same again, which has a field. A result that
    does not fit has none. A budget that resets is free again.
    """
    origin = ""
    while error is not None:
        data = error.get("data")
        known = data if isinstance(data, dict) else {}
        if (
            (error["type"] in LASTING and known.get("resets") is None)
            or (error["type"] in ("ValidationError", "Refused") and known.get("field") is not None)
            or is_over_call_limit(error)
        ):
            return True
        origin = error.get("step", "")
        error = error.get("cause")  # Python's exceptions have none
    steps = host.flows.by_hash(record.hash).compiled["steps"]
    return any(step.get("action") == "fail" and step["id"] == _step_in(origin) for step in steps)


def _step_in(address: str) -> str:
    """Return the id of the step at an address."""
    step = address.rpartition("/")[2]
    return step.partition("@")[0].partition("#")[0].partition("[")[0]


def fork_at(id: str, where: str | None) -> str:
    """Return the command line of a fork."""
    return f"flowengine fork {id} --from-step {quote(where) if where else 'STEP'}"
