"""How executions start: inputs are checked, the first event is made, the execution is created."""

from __future__ import annotations

import re
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine.engines.attempts.runtime_resources import check_environments, check_names
from flowengine.engines.executions.shared_locks import claim_of
from flowengine.engines.flows import as_loaded
from flowengine.engines.starting.inputs import check_inputs
from flowengine.errors import InputError, NotFound, UsageError
from flowengine.journal.encoding import pack
from flowengine.journal.records import Beginning, Claim, NewExecution
from flowengine.kernel import advance, new_state
from flowengine.kernel.commands import Claim as Kernel
from flowengine.kernel.notation.times import format_time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    from flowengine.engines.executions.execution import Execution
    from flowengine.engines.executions.linked_flows import LinkedFlow
    from flowengine.engines.executions.outer_attempts import OuterAttempt
    from flowengine.engines.flows import LoadedFlow
    from flowengine.engines.host import Host
    from flowengine.flow.building import Flow
    from flowengine.kernel.graph.specs import CompiledFlow

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")


class Starting(NamedTuple):
    """The request to start an execution."""

    flow: Flow | LoadedFlow | str | PathLike[str]
    """What to run."""
    inputs: Mapping[str, Any]
    """As given."""
    id: str | None
    """Of the execution; None makes one."""
    labels: Mapping[str, str]
    """For lists."""
    user: str
    """Who starts it."""
    environments: Sequence[Mapping[str, Any]] = ()
    """Specs of environments for this execution."""
    resources: Mapping[str, Any] = {}
    """Objects of the caller for this execution, by name."""
    files: Sequence[tuple[bytes, str]] = ()
    """Files that its inputs name by digest, with their names: kept before it begins."""
    outer: OuterAttempt | None = None
    """The attempt that begins and drives it; what is around that binds it. None: none does."""


def begin(host: Host, starting: Starting) -> Execution:
    """Return a new execution, held by this engine, whose first commit creates it.

    Args:
        starting: What to run, and how.

    Returns:
        The execution, with `started` in its queue.
    """
    flow = as_loaded(host.store, starting.flow)
    linked = host.flows.of(flow.compiled, flow.form)
    started = _started(host, linked, starting)
    data = started["execution"]
    host.bring(data["id"], starting.resources)
    execution = host.execution(data["id"], linked, 1)
    host.keeper.reserve(data["id"])
    execution.begin(new_record(linked, data, started["at"], host.keeper.owner.id))
    execution.queue.append(started)
    return execution


def record(host: Host, starting: Starting) -> str:
    """Create an execution that nobody drives yet; its first event waits in its inbox.

    Args:
        starting: What to run, and how. If there is an execution of the id, nothing changes.

    Returns:
        Its id.

    Raises:
        Conflict: The execution of that id runs another flow, or has other inputs.
    """
    from flowengine.engines.starting.same_start import check_same_start

    flow = as_loaded(host.store, starting.flow)
    if starting.id is not None and exists(host, starting.id):
        check_same_start(host, starting.id, flow, starting.inputs)
    linked = host.flows.of(flow.compiled, flow.form)
    started = _started(host, linked, starting)
    id = create(host, linked, started, starting.files)
    if starting.id is not None:
        check_same_start(host, id, flow, starting.inputs)  # somebody else may have been first
    host.bring(id, starting.resources)
    return id


def create(
    host: Host, linked: LinkedFlow, started: Any, files: Sequence[tuple[bytes, str]] = ()
) -> str:
    """Create an execution by its first event, unless there is one of its id.

    Args:
        linked: Its flow.
        started: The event.
        files: What it keeps from the start, with names.

    Returns:
        Its id.
    """
    data = started["execution"]
    new = new_record(linked, data, started["at"], None)
    keys, claims = declared_by(linked, started)
    host.store.begin(Beginning(data["id"], new, keys, pack(started), claims), files)
    return str(data["id"])


def begun_by(host: Host, linked: LinkedFlow, event: Mapping[str, Any]) -> Beginning:
    """Return the execution that a message starts, for the store to create.

    Args:
        linked: A flow with a `start` on the signal.
        event: The message.

    Returns:
        The execution, with the keys that its flow declares.

    Raises:
        InputError: What `start.with` gives has no value, or does not fit the inputs.
    """
    from flowengine.kernel.expressions.defaults import inputs_of_message
    from flowengine.kernel.graph.compiled import EvaluationError

    now = host.clock.now()
    message = {name: event[name] for name in ("key", "data", "id")}
    message |= {
        "name": event["signal"],
        "sent_at": format_time(event["at"]),
        "sent_by": event["by"],
    }
    data = execution_data(host, linked.compiled, now, None, {}, event["by"])
    try:
        given = inputs_of_message(linked.graph, message, data, now)
    except EvaluationError as error:
        name = event["signal"]
        raise InputError(f"'start' on signal '{name}': {error.message}", field="data") from None
    checked = check_inputs(linked.graph, given or {}, data, now, host.workdir)
    started: Any = {"type": "started", "at": now, "inputs": checked, "execution": data}
    started["message"] = {name: message[name] for name in ("name", "key", "id", "data")}
    new = new_record(linked, data, now, None)
    keys, claims = declared_by(linked, started)
    return Beginning(data["id"], new, keys, pack(started), claims)


def declared_by(linked: LinkedFlow, started: Any) -> tuple[list[tuple[str, str]], list[Claim]]:
    """Return the store's record of an execution that starts with an event.

    Returns:
        The keys by which it is found, and its claim to be one of so many (`concurrency`).
    """
    state = new_state()
    commands = advance(linked.graph, state, copy(started))  # only to see what follows
    id, now = started["execution"]["id"], started["at"]
    claims = [
        claim_of(id, command, now)
        for command in commands
        if isinstance(command, Kernel) and not command.unit
    ]
    return list(state["keys"].items()), claims


def exists(host: Host, id: str) -> bool:
    """Return whether there is an execution of this full id."""
    try:
        host.store.execution(id)
    except NotFound:
        return False
    return True


def execution_data(
    host: Host,
    compiled: CompiledFlow,
    now: int,
    id: str | None,
    labels: Mapping[str, str],
    user: str,
) -> dict[str, Any]:
    """Return what expressions see of a new execution, and its working folder, which they do not.

    Args:
        compiled: Its flow.
        now: When it starts (ms).
        id: Its id; None makes one.
        labels: As given.
        user: Who starts it.

    Returns:
        The value of `execution`.

    Raises:
        UsageError: The id cannot be one.
    """
    if id is not None and not _ID.match(id):
        raise UsageError(
            f"{id!r} is not a valid execution id",
            hint="up to 128 letters, digits and . _ -, starting with a letter or digit",
        )
    if "traceparent" in labels:
        from flowengine.telemetry.spans import check_label

        check_label(labels)
    return {
        "id": id or host.ids.execution(now),
        "flow": compiled["id"],
        "version": compiled.get("version", ""),
        "started_at": format_time(now),
        "scheduled_at": None,
        "started_by": user,
        "parent": None,
        "labels": dict(labels),
        "workdir": host.workdir,
    }


def new_record(
    linked: LinkedFlow,
    data: Mapping[str, Any],
    now: int,
    owner: str | None,
    forked_from: str | None = None,
    files_of: str | None = None,
) -> NewExecution:
    """Return the store's record of a new execution.

    Args:
        linked: Its flow.
        data: See `execution_data`.
        now: When it starts (ms).
        owner: The first holder; None: nobody.
        forked_from: Where it comes from, for people.
        files_of: The execution whose kept files it has, too.

    Returns:
        The record.
    """
    return NewExecution(
        data["flow"],
        data["version"],
        linked.hash,
        now,
        data["labels"],
        data["started_by"],
        forked_from=forked_from,
        owner=owner,
        files_of=files_of,
    )


def _started(host: Host, linked: LinkedFlow, starting: Starting) -> Any:
    """Return the first event."""
    _, inputs, id, labels, user, environments, resources, _, outer = starting
    now = host.clock.now()
    every = {**host.resources, **resources}
    check_names(linked.compiled, every)
    execution = execution_data(host, linked.compiled, now, id, labels, user)
    if environments:
        execution["environments"] = check_environments(linked.compiled, every, environments)
    if resources:
        execution["resources"] = sorted(resources)
    if outer is not None:
        execution["outer"] = outer.execution
    checked = check_inputs(linked.graph, inputs, execution, now, host.workdir)
    started = {"type": "started", "at": now, "inputs": checked, "execution": execution}
    if outer is not None and (left := outer.left()) is not None:
        started["budget"] = left
    return started
