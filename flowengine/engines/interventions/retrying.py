"""Retries of failed executions."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Any

from flowengine.engines.attempts.failures import failed_compensations, is_over_call_limit
from flowengine.engines.executions.replay import read
from flowengine.engines.interventions.retracing import Held, event_of, retrace
from flowengine.errors import Conflict, NotFound

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    from flowengine.engines.actors import Actor
    from flowengine.engines.executions.execution import Execution
    from flowengine.engines.executions.linked_flows import LinkedFlow
    from flowengine.engines.flows import LoadedFlow
    from flowengine.engines.host import Host
    from flowengine.engines.running.driving import Driving
    from flowengine.flow.building import Flow
    from flowengine.kernel.events import ErrorData, Event


def retried(
    host: Host,
    driving: Driving,
    execution: str,
    step: str | None,
    flow: Flow | LoadedFlow | str | PathLike[str] | None,
    who: Actor,
    resources: Mapping[str, Any] | None = None,
) -> Execution:
    """Return a failed execution that is about to start again, with its lease.

    See `Engine.retry`.
    """
    linked = None if flow is None else _form(host, execution, flow)
    found = driving.loaded(execution, resources)
    try:
        retry(host, found, step, linked, who)
    except BaseException:
        host.keeper.release(found.leases)
        raise
    return found


def _form(host: Host, execution: str, flow: Flow | LoadedFlow | str | PathLike[str]) -> LinkedFlow:
    """Return the fixed version of a flow to continue with."""
    from flowengine.engines.flows import as_loaded
    from flowengine.engines.interventions.upgrading import of_flow

    form = as_loaded(host.store, flow)
    of_flow(host, form, [host.store.find_execution(execution)])
    return host.flows.of(form.compiled, form.form)


def retry(
    host: Host,
    execution: Execution,
    step: str | None,
    linked: LinkedFlow | None,
    who: Actor,
) -> None:
    """Take a failed execution back to where it failed, and restart the failed steps.

    Args:
        host: Provides the store.
        execution: Loaded, with its lease. The request is added to its queue.
        step: Address of the step to restart. None: everything that failed.
        linked: A fixed version of the flow to continue with. None: the one that failed.
        who: The actor.

    Raises:
        Conflict: It has not failed, or it cannot be restarted in place.
        NotFound: No step exists at the address.
    """
    status = execution.state["status"]
    short = host.store.short_execution(execution.id)
    if status != "failed":
        standing = f"has {status}" if status == "succeeded" else f"is {status}"
        raise Conflict(
            f"execution {execution.id} {standing}; only a failed execution can be retried",
            hint=f"flowengine show {short}",
        )
    journal = read(host.store, execution.id)
    try:
        held = retrace(host.flows, execution.linked.hash, journal, step)
    except Conflict as refused:
        message = f"execution {execution.id} cannot be retried: {refused.message}"
        error = execution.state["error"]
        hint = f"start a new execution from there: {fork_command(short, refused.hint, error)}"
        raise Conflict(message, hint=hint) from None
    except NotFound as refused:
        hint = f"see its steps: flowengine show {short}"
        raise NotFound(f"{refused.message} in execution {execution.id}", hint=hint) from None
    now = host.clock.now()
    event = event_of(held, now, execution.state["last"], who.user)
    queue = [event]
    if linked is not None and linked.hash != execution.linked.hash:
        begins: Any = {key: value for key, value in event.items() if key not in ("back", "kept")}
        queue = [{**event, "stays": True}, _moved(host, execution, linked, held, who), begins]
    execution.put_back(held.state)
    queue += [{**late, "at": now} for late in held.late]
    execution.queue[:0] = queue


def _moved(host: Host, execution: Execution, linked: LinkedFlow, held: Held, who: Actor) -> Any:
    """Return the event that continues an execution with a fixed flow, checked like an upgrade.

    Raises:
        Conflict: Part of its state has no counterpart in the flow.
    """
    from flowengine.engines.interventions.upgrading import steps_that_ran, upgraded
    from flowengine.kernel.moving.obstacles import obstacles

    record = host.store.execution(execution.id)
    ran = steps_that_ran(host, record)
    found = obstacles(execution.linked.graph, linked.graph, held.state, {}, ran)
    if found:
        short = host.store.short_execution(execution.id)
        why = "; ".join(
            f"{obstacle.name}: {obstacle.why}" if obstacle.name else obstacle.why
            for obstacle in found
        )
        raise Conflict(
            f"execution {execution.id} cannot continue with this version of its flow: {why}",
            hint=f"change only what failed and what comes after it, or start over from a step: "
            f"flowengine fork {short} --at STEP --file FILE",
        )
    return upgraded(execution, linked, {}, who, host.clock.now())


# The command line


LASTING = frozenset({"BudgetExceeded", "ExpressionError"})
"""Types of errors that recur after a retry: a used-up budget, or values that do not change. The
number of a tool's calls is also kept."""


def retry_command(
    host: Host, execution: str, hash: str, journal: Sequence[Event], error: ErrorData | None
) -> str:
    """Return the command line that retries the failures of an execution.

    If compensations failed, a fork completes them. An execution that was compensated cannot be
    retried, so a fork starts at the first step that was undone. Anything else is retried, with a
    changed flow if the same one would fail again.

    Args:
        host: Provides the store.
        execution: Full id of a failed execution.
        hash: Hash of the flow that it runs.
        journal: All its events.
        error: Its error.
    """
    id = host.store.short_execution(execution)
    if failed_compensations(error):
        return fork_command(id, None, error)
    try:
        retrace(host.flows, hash, journal)
    except Conflict as refused:
        return fork_command(id, refused.hint, error)
    fixed = " --file FILE" if _comes_again(error) else ""
    return f"flowengine retry {id}{fixed}"


def _comes_again(error: ErrorData | None) -> bool:
    """Return whether the same flow must fail with the same error again."""
    while error is not None:
        if error["type"] in LASTING or is_over_call_limit(error):
            return True
        error = error.get("cause")  # Python's exceptions have none
    return False


def fork_command(id: str, where: str | None, error: ErrorData | None) -> str:
    """Return the command line that repeats a failed step in a fork, if it cannot be retried.

    Args:
        id: Id of the failed execution, shortened for display.
        where: The step to begin with, if known.
        error: The error of the execution. Failed compensations are completed first, because a fork
            at the step itself would repeat its side effect.
    """
    where = next(iter(failed_compensations(error)), where)
    return f"flowengine fork {id} --at {quote(where) if where else 'STEP'}"
