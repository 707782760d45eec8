"""Starting executions: checking inputs, making the first event, creating the execution."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, NamedTuple

from flowengine.engines.attempts.environments import none_here
from flowengine.engines.attempts.runtime_resources import check_environments, check_names
from flowengine.engines.executions.execution import Execution
from flowengine.engines.executions.linked_flows import LinkedFlow
from flowengine.engines.executions.outer_attempts import OuterAttempt
from flowengine.engines.executions.parts import claim_of
from flowengine.engines.host import Host
from flowengine.engines.starting.inputs import check_inputs, recognized_by, with_defaults
from flowengine.errors import Conflict, Hint, InputError, NotFound, UsageError
from flowengine.journal.encoding import pack
from flowengine.journal.records import Beginning, NewExecution
from flowengine.journal.shapes import Sound, unpack_message
from flowengine.kernel import advance, new_state
from flowengine.kernel.commands import Claim as Kernel
from flowengine.kernel.expressions.names import inputs_of_message
from flowengine.kernel.graph.compiled import EvaluationError
from flowengine.kernel.graph.specs import CompiledFlow
from flowengine.kernel.notation.addresses import acting_user
from flowengine.kernel.notation.times import format_time, parse_time
from flowengine.kernel.notation.traces import LABEL, TRACEPARENT
from flowengine.sdk.texts.json_values import same
from flowengine.sdk.values.declared_forms import declared_form

_ID = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
LONGEST_SHOWN = 60
"""Maximum length of a value in a message."""


class Starting(NamedTuple):
    """The request to start an execution."""

    flow: CompiledFlow
    """The flow to run."""
    hash: str
    """The hash by which a store identifies it."""
    inputs: Mapping[str, Any]
    """The inputs, as passed by the caller."""
    id: str | None
    """Id of the execution. None: a new id."""
    labels: Mapping[str, str]
    """Labels to filter lists by."""
    user: str
    """The user who starts it."""
    environments: Sequence[Mapping[str, Any]] = ()
    """Specs of environments for this execution."""
    resources: Mapping[str, Any] = {}
    """Objects of the caller for this execution, by name."""
    files: Sequence[tuple[bytes, str]] = ()
    """Files that its inputs name by digest, with their names. They are stored before it begins."""
    outer: OuterAttempt | None = None
    """The attempt that starts and drives it, whose budgets and rules apply. None: none."""


def begin(host: Host, starting: Starting) -> Execution:
    """Return a new execution, held by this engine, which its first commit creates.

    Args:
        host: Provides the store.
        starting: The request.

    Returns:
        The execution, with `started` in its queue.
    """
    linked = host.flows.of(starting.flow, starting.hash)
    started = _started(host, linked, starting)
    data = started["execution"]
    host.bring(data["id"], starting.resources)
    execution = host.execution(data["id"], linked, 1, data["started_by"])
    host.keeper.reserve(data["id"])
    execution.begin(new_record(linked, data, started, host.keeper.owner.id))
    execution.queue.append(started)
    return execution


def record(host: Host, starting: Starting) -> str:
    """Create an execution without driving it. Its first event waits in its inbox.

    Args:
        host: Provides the store.
        starting: The request. If an execution with the id exists, nothing changes.

    Returns:
        Its id.

    Raises:
        Conflict: The execution with that id runs another flow, or has other inputs.
    """
    flow = starting.flow["id"]
    if starting.id is not None and exists(host, starting.id):
        check_same_start(host, starting.id, flow, starting.inputs)
    linked = host.flows.of(starting.flow, starting.hash)
    started = _started(host, linked, starting)
    id = create(host, linked, started, starting.files)
    if starting.id is not None:
        # Another process may have created it first.
        check_same_start(host, id, flow, starting.inputs)
    host.bring(id, starting.resources)
    return id


def create(
    host: Host, linked: LinkedFlow, started: Any, files: Sequence[tuple[bytes, str]] = ()
) -> str:
    """Create an execution with its first event, unless its id exists.

    Args:
        host: Provides the store.
        linked: Its flow.
        started: The event.
        files: Files that it keeps from the start, with names.

    Returns:
        Its id.
    """
    beginning = _beginning(linked, started)
    host.store.begin(beginning, files)
    return beginning.id


def begun_by(host: Host, linked: LinkedFlow, event: Mapping[str, Any]) -> Beginning:
    """Return the execution that a message starts, for the store to create.

    Args:
        host: Provides the store.
        linked: A flow with a `start` on the signal.
        event: The message.

    Returns:
        The execution, with the keys that its flow declares.

    Raises:
        InputError: An expression in `start.with` has no value, or its value does not match the
            inputs.
    """
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
        begins = f"'start' on signal '{event['signal']}'"
        raise InputError(
            f"{begins}: {error.message}",
            field="data",
            plain=f"{begins} has no inputs for this message",
            flow=linked.compiled["id"],
        ) from None
    checked = check_inputs(linked.graph, given or {}, data, now, host.workdir)
    started: Any = {"type": "started", "at": now, "inputs": checked, "execution": data}
    started["message"] = {name: message[name] for name in ("name", "key", "id", "data")}
    return _beginning(linked, started)


def _beginning(linked: LinkedFlow, started: Any) -> Beginning:
    """Return an execution that starts with an event, for the store to create.

    It has the keys by which it is found, and its claim to a slot (`concurrency`).
    """
    data, state = started["execution"], new_state()
    # Applied to a copy, only to obtain the commands. No reducer in Python is called for that.
    event: Any = {**copy(started), "reduced": []}
    claims = [
        claim_of(data["id"], command, started["at"])
        for command in advance(linked.graph, state, event)
        if isinstance(command, Kernel) and not command.unit
    ]
    new = new_record(linked, data, started, None)
    return Beginning(data["id"], new, list(state["keys"].items()), pack(started), claims)


def exists(host: Host, id: str) -> bool:
    """Return whether an execution with this full id exists."""
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
    """Return the variable `execution` of expressions, and what they cannot name.

    These are the working directory, and the random identity on which rights and keys depend.

    Args:
        host: Provides ids and the working directory.
        compiled: The flow of the execution.
        now: When it starts (ms).
        id: Its id. None: a new id.
        labels: Labels, as passed by the caller.
        user: The user who starts it.

    Returns:
        The value of `execution`.

    Raises:
        UsageError: The id is not valid.
    """
    given: Any = id
    if given is not None and (type(given) is not str or not re.fullmatch(_ID, given)):
        raise UsageError(
            f"{id!r} is not a valid execution id",
            hint="up to 128 letters, digits and . _ -, starting with a letter or digit",
        )
    _check_trace(labels)
    return {
        "id": id or host.ids.execution(now),
        "flow": compiled["id"],
        "version": compiled["version"],
        "started_at": format_time(now),
        "scheduled_at": None,
        "started_by": user,
        "parent": None,
        "labels": dict(labels),
        "workdir": host.workdir,
        # Its rights and keys depend on this: the caller may choose the id, and a later execution
        # may have the same one.
        "identity": host.ids.message(),
    }


def _check_trace(labels: Mapping[str, str]) -> None:
    """Log a warning if the label that continues a trace is not a W3C header.

    A trace must not stop an execution: the header may come from any client.
    """
    if LABEL in labels and not TRACEPARENT.fullmatch(labels[LABEL]):
        import logging

        logging.getLogger("flowengine.telemetry").warning(
            "the label %s is not a W3C header such as 00-TRACE-PARENT-01, with 32 and 16 "
            "hexadecimal digits, so the execution begins a new trace: %.80r",
            LABEL,
            labels[LABEL],
        )


def new_record(
    linked: LinkedFlow,
    data: dict[str, Any],
    started: Mapping[str, Any],
    owner: str | None,
    forked_from: str | None = None,
    files_of: str | None = None,
) -> NewExecution:
    """Return the store's record of a new execution.

    Args:
        linked: Its flow.
        data: See `execution_data`.
        started: Its first event. That of a fork happened before.
        owner: The first holder. None: no holder.
        forked_from: The execution it was forked from, for display.
        files_of: The execution whose kept files it shares.

    Returns:
        The record.
    """
    now = parse_time(data["started_at"])
    title, key_inputs = recognized_by(linked.graph, started["inputs"], data, now)
    return NewExecution(
        data["flow"],
        data["version"],
        linked.hash,
        now,
        data["labels"],
        acting_user(data),
        forked_from=forked_from,
        owner=owner,
        files_of=files_of,
        title=title,
        key_inputs=key_inputs,
    )


def _started(host: Host, linked: LinkedFlow, starting: Starting) -> Any:
    """Return the first event."""
    _, _, inputs, id, labels, user, environments, resources, _, outer = starting
    now = host.clock.now()
    every = {**host.resources, **resources}
    if every:
        check_names(linked.compiled, every)
    execution = execution_data(host, linked.compiled, now, id, labels, user)
    if environments:
        if host.environments is None:
            raise none_here()
        execution["environments"] = check_environments(
            linked.compiled, every, environments, host.environments.named
        )
    if resources:
        execution["resources"] = sorted(resources)
    if outer is not None:
        execution["outer"] = outer.execution
    checked = check_inputs(linked.graph, inputs, execution, now, host.workdir)
    started = {"type": "started", "at": now, "inputs": checked, "execution": execution}
    if outer is not None and (left := outer.left()) is not None:
        started["budget"] = left
    return started


# Executions whose ids are derived from their cause, so that each is started once.
#
# Another execution starts them and does not wait for them: detached flows and notifications. Those
# of schedules have such ids, too. Clients of a server cannot choose ids of these forms.


def begin_separate(
    host: Host,
    linked: LinkedFlow,
    number: int,
    id: str,
    parent: Mapping[str, Any],
    inputs: Mapping[str, Any],
    background: Mapping[str, Any] | None = None,
) -> str:
    """Create an execution of one of the flows of a compiled flow, unless that was done before.

    It is driven next by this process, unless another one holds it by then.

    Args:
        host: Provides the store.
        linked: The flow of the execution that starts it.
        number: Number of the flow to run.
        id: The id that is derived from its cause.
        parent: `id`, `labels`, `started_by`, `forked_by` and `workdir` of the execution that starts
            it. A fork changes no user's part in what the fork starts, either.
        inputs: Its inputs.
        background: If it belongs to a running flow of the other execution: its record there, and
            the `tool` that started it.

    Returns:
        Its id.

    Raises:
        InputError: They are not valid.
    """
    now = host.clock.now()
    separate = host.flows.part(linked, number)
    labels, user, workdir = parent["labels"], parent["started_by"], parent["workdir"]
    data = execution_data(host, separate.compiled, now, id, labels, user)
    data |= {"parent": parent["id"], "workdir": workdir}
    if "forked_by" in parent:
        data["forked_by"] = parent["forked_by"]
    if background is not None:
        kept = {key: background[key] for key in ("step", "tool", "shared") if key in background}
        data |= {"background": kept, "room": background["room"]}
    checked = check_inputs(separate.graph, inputs, data, now, workdir)
    started = {"type": "started", "at": now, "inputs": checked, "execution": data}
    if background is not None and "part" in background:
        started["budget"] = background["part"]
    create(host, separate, started)
    host.woken[id] = True
    return id


# Repeated starts with an existing id: the same start is idempotent, another one is a conflict.


def check_same_start(host: Host, id: str, flow: str, inputs: Mapping[str, Any]) -> None:
    """Check that the execution with an id matches a request to start it.

    A changed version of the same flow is not a conflict: the execution keeps the version it started
    with.

    Args:
        host: Provides the store.
        id: Full id of the execution.
        flow: Id of the flow to run.
        inputs: The inputs as passed. Defaults apply to those left out.

    Raises:
        Conflict: It runs another flow, or has other inputs.
    """
    hint = Hint(
        f"use another id, or look at the existing one: flowengine show {id}",
        http=f"use another id, or look at the existing one: GET /v1/executions/{id}",
    )
    stored = host.stored(id, 0)
    runs = stored.linked.compiled["id"]
    if runs != flow:
        raise Conflict(
            f"there is already an execution {id}, of the flow '{runs}' and not '{flow}'",
            hint=hint,
            plain=f"the id {id} is taken",
            flow=runs,
        )
    execution, had = stored.state["execution"], stored.state["inputs"]
    if not execution:  # it was only recorded
        waiting = (unpack_message(message) for message in host.store.inbox(id))
        started = next((event for event in waiting if event["type"] == "started"), None)
        if started is None:
            return  # another process is recording it right now
        execution, had = started["execution"], started["inputs"]
    with Sound(f"the stored data of execution {id}"):
        began = parse_time(execution["started_at"])
    given = with_defaults(stored.linked.graph, inputs, execution, began)
    for name, schema in stored.linked.graph.flow.get("inputs", {}).items():
        if name in given and (convert := declared_form(schema)) is not None:
            given[name] = convert(given[name])
    if differences := differing(had, given):
        raise Conflict(
            f"there is already an execution {id}, with other inputs: {', '.join(differences)}",
            hint=hint,
            plain=f"the id {id} is taken",
            flow=runs,
        )


def differing(had: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    """Return the differences between stored and given values, as text by name."""
    return [
        f"'{name}' is {_shown(had, name)} there and {_shown(given, name)} here"
        for name in {**had, **given}
        if name not in had or name not in given or not same(had[name], given[name])
    ]


def _shown(values: Mapping[str, Any], name: str) -> str:
    """Return a value as a message shows it."""
    if name not in values:
        return "missing"
    import json

    text = json.dumps(values[name], ensure_ascii=False, default=repr)
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 1]}…"
