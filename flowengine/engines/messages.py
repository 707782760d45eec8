"""Messages from outside and between executions: signals, deliveries and notifications."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from flowengine.engines.actors import Actor
from flowengine.engines.executions.linked_flows import LinkedFlow, read
from flowengine.engines.executions.parts import RECEIVER
from flowengine.engines.host import Host
from flowengine.engines.results import Sent, Update
from flowengine.engines.starting.beginning import begin_separate, begun_by, differing
from flowengine.errors import Conflict, Hint, InputError, NotFound, UsageError
from flowengine.journal.encoding import pack
from flowengine.journal.records import ENDED as ENDED_STATUSES
from flowengine.journal.records import Beginning, Outgoing, SignalStart
from flowengine.journal.records import SendResult as Stored
from flowengine.journal.shapes import unpack_event, unpack_notice
from flowengine.kernel.commands import CANCEL, ENDED
from flowengine.kernel.graph.linked import Graph
from flowengine.kernel.notation.addresses import separate_id
from flowengine.kernel.state.records import State
from flowengine.kernel.view import View
from flowengine.sdk.texts.near_words import did_you_mean
from flowengine.sdk.values.validation import validate

# Signals from outside: checked against their declaration, then stored for their receivers.
#
# A signal goes to an execution, or to the open one that has its key. If no open execution has the
# key, it starts an execution of a deployed flow that lists it in `start`. The store does this in
# one transaction: of two simultaneous first messages, one starts the execution and the other goes
# to it.


def send_signal(
    host: Host,
    name: str,
    data: Any,
    execution: str | None,
    key: str | None,
    id: str | None,
    who: Actor,
    flow: str | None = None,
    step: str | None = None,
) -> Sent:
    """Store a signal for an execution.

    Args:
        host: Provides the store.
        name: Name of a signal that the flow declares.
        data: Its data. Must match the declared schema.
        execution: Full id of the execution.
        key: The key of an open execution, or of the one to start, instead of `execution`.
        id: Id of the message. A second message with the same id and data is not stored.
        who: The sender.
        flow: Id of the flow to start, if several could be started.
        step: Address of the step whose subflow receives it in its state.

    Returns:
        The signal as stored, with its execution.

    Raises:
        UsageError: Exactly one of `execution` and `key` must be given.
        InputError: The flow does not declare the signal, the data does not match, or the started
            execution would not have the key.
        NotFound: No open execution has the key, and no flow starts one.
        Conflict: The execution has ended, several flows start on the signal, a message with this
            id was sent with other data, or not exactly one step receives it.
    """
    if (execution is None) == (key is None):
        raise UsageError("a signal needs an execution or a key to go to")
    at, id = host.clock.now(), id or host.ids.message()
    event: dict[str, Any] = {
        "type": "message", "at": at, "signal": name, "key": key, "data": data, "id": id,
        **who.fields(),
    }  # fmt: skip
    if execution is not None:
        linked = host.flows.by_hash(host.store.execution(execution).hash)
        event["data"] = check(linked, name, data)
        if step is not None or name in linked.graph.received:
            place = _place(host, execution, name, event["data"], step, id)
            event |= {} if place is None else {"step": place}
        sent = host.store.send(execution, pack(event), at, f"{name} {id}")
    else:
        sent = send_keyed(host, event, flow)
    if not sent.first:
        _check_same_message(host, event, sent)
    return Sent(sent.execution, id, None, sent.began, sent.first)


def _place(
    host: Host, execution: str, name: str, data: Any, step: str | None, id: str
) -> str | None:
    """Return the address of the step whose subflow receives a signal. None: any receiver.

    A message that is sent again goes where it went before, as that step may have ended since.

    Raises:
        Conflict: Several receive it in their state, or none does.
        InputError: The data does not fit that state.
    """
    stored = host.stored(execution, 0)
    graph = stored.linked.graph
    keys = graph.received.get(name, {})
    if stored.ended:
        return None
    places: dict[str | None, int] = dict(receivers(graph, stored.state, name).items())
    if step is None and 0 in keys:
        places = {None: 0}
    elif step is None and len(places) == 1:
        [step] = places
    if step in places:
        flow = graph.flows[places[step]]
        fault = graph.validate(*flow.received(keys[places[step]], data))
        if fault is not None:
            message = f"the signal {name!r} does not fit state.{keys[places[step]]}: {fault}"
            raise InputError(message, field="data", plain=message, flow=stored.context.flow)
        return step
    for before in read(host.store, execution):
        if before["type"] == "message" and before.get("id") == id:
            return before.get("step")
    those = ", ".join(str(place) for place in places) or "none"
    if step is None and places:
        message = f"{len(places)} steps of execution {execution} receive the signal {name!r}"
        raise Conflict(message, hint=Hint(f"choose with step=…: {those}", f"--step: {those}"))
    message = f"no running step{f' {step!r}' if step else ''} of execution {execution} receives"
    raise Conflict(f"{message} the signal {name!r}", hint=f"those that do: {those}")


def receivers(graph: Graph, state: State, signal: str) -> dict[str, int]:
    """Return the addresses of the running subflows whose state receives a signal.

    Returns:
        Address → number of the flow.
    """
    keys, frames = graph.received.get(signal, {}), state.get("frames", {})
    return {
        scope["path"].rstrip("/"): frames[scope["frame"]]["flow"]
        for scope in View(graph, state).subflows()
        if frames[scope["frame"]]["flow"] in keys
    }


def send_keyed(host: Host, event: dict[str, Any], flow: str | None = None) -> Stored:
    """Store a message for the open execution that has its key, or start one with it.

    Args:
        host: Provides the store.
        event: The event to journal, with its `key`.
        flow: See `send_signal`.

    Returns:
        The result of the store.

    Raises:
        NotFound: As `send_signal`, which may raise more.
    """
    name, key, at = event["signal"], str(event["key"]), event["at"]
    event["key"] = key
    try:
        event["data"] = check_for(host, host.store.find_key(name, key), name, event["data"])
        return host.store.send_keyed(name, key, pack(event), at, event["id"])
    except NotFound:
        try:
            begin = _beginning(host, event, flow)
        except NotFound:
            # The same message again, for an execution that has ended since.
            with suppress(NotFound):
                return host.store.send_keyed(name, key, pack(event), at, event["id"])
            raise
        return host.store.send_keyed(name, key, pack(event), at, event["id"], begin)


def _check_same_message(host: Host, event: dict[str, Any], sent: Stored) -> None:
    """Check that a message has the same data as the stored one with its id.

    Raises:
        Conflict: The data differ.
    """
    before = unpack_event(sent.event, f"a message to execution {sent.execution}")
    message = before["message"] if before["type"] == "started" else before
    if "data" not in message:
        return  # it started an execution before messages were stored with their data
    datas = message["data"], event["data"]
    if not all(isinstance(data, dict) for data in datas):
        datas = {"data": datas[0]}, {"data": datas[1]}
    if differences := differing(*datas):
        raise Conflict(
            f"message {event['id']!r} of signal '{event['signal']}' was sent before, with other "
            f"data: {', '.join(differences)}",
            hint=Hint(
                f"use another id, or look at: flowengine show {sent.execution}",
                http=f"use another id, or look at: GET /v1/executions/{sent.execution}",
            ),
            plain=f"a message {event['id']!r} of signal '{event['signal']}' was sent before",
            flow=host.store.execution(sent.execution).flow,
        )


def check(linked: LinkedFlow, name: str, data: Any) -> Any:
    """Check a signal against its declaration, and return its data in the declared form.

    Raises:
        InputError: The flow does not declare the signal, or the data does not match.
    """
    declared = _declared(linked)
    if name not in declared:
        hint = did_you_mean(name, declared) or f"signals: {', '.join(declared) or 'none'}"
        message = f"there is no signal '{name}'"
        flow = linked.compiled["id"]
        raise InputError(message, field=name, hint=hint, plain=message, flow=flow)
    return validate(declared[name].get("data", True), data, f"signal '{name}'")


def _declared(linked: LinkedFlow) -> dict[str, Any]:
    """Return the signals that a flow or one of its subflows declares."""
    declared: dict[str, Any] = {}
    for flow in (linked.compiled, *linked.compiled.get("flows", ())):
        declared = {**flow.get("signals", {}), **declared}
    return declared


def check_for(host: Host, execution: str, name: str, data: Any) -> Any:
    """Check a signal against the flow of an execution, and return its data."""
    return check(host.flows.by_hash(host.store.execution(execution).hash), name, data)


def _beginning(host: Host, event: dict[str, Any], flow: str | None) -> Beginning:
    """Return the execution that a message starts."""
    name, key = event["signal"], event["key"]
    start = _start(host, name, key, flow)
    linked = host.flows.by_hash(start.hash)
    event["data"] = check(linked, name, event["data"])
    begin = begun_by(host, linked, event)
    if (name, key) not in begin.keys:
        came = dict(begin.keys).get(name)
        raise InputError(
            f"the signal '{name}' has the key '{key}', but the execution of {start.flow} that it "
            f"would start has the key '{came}'",
            field="key",
            hint="`start.with` must give the inputs from which the declared key is computed",
            plain=f"the signal '{name}' with the key '{key}' starts no execution with this key",
            flow=start.flow,
        )
    return begin


def _start(host: Host, name: str, key: str, flow: str | None) -> SignalStart:
    starts = [start for start in host.store.starts(name) if flow in (None, start.flow)]
    if len(starts) == 1:
        return starts[0]
    if starts:
        names = ", ".join(start.flow for start in starts)
        raise Conflict(
            f"signal '{name}' starts executions of several flows: {names}",
            hint=Hint(
                "name the flow: flow=FILE",
                f"name the flow: flowengine signal --key KEY --file FILE {name}",
            ),
            plain=f"signal '{name}' starts executions of several flows",
        )
    raise NotFound(
        f"no open execution takes signal {name!r} with key {key!r}, and no flow starts one",
        hint=Hint(
            "it may have ended: flowengine list. Or name the flow that it starts: flow=FILE",
            "it may have ended: flowengine list. Or name the flow that it starts: --file FILE",
            "it may have ended: GET /v1/executions",
        ),
    )


# Delivery of messages between executions, from the sender's journal to the receiver's inbox.
#
# See docs/language.md: emit.
#
# A message is in the store from the commit of the event that sends it. From then on any process
# delivers it, with at-least-once attempts: its id comes from the sender's journal, and an inbox
# stores each id only once. An undeliverable message stays with its sender, with the reason.


def deliver(host: Host) -> None:
    """Deliver all pending messages to their receivers.

    The receivers are added to `host.woken`.
    """
    for outgoing in host.store.outbox():
        refused = None
        try:
            if not _is_moot(host, outgoing):
                host.woken[delivered(host, outgoing)] = True
        except (NotFound, Conflict, InputError) as error:
            refused = error.message
        host.store.acknowledge(outgoing.number, refused)
        if refused is not None:
            undelivered = view(outgoing._replace(why=refused))
            host.notify(Update(outgoing.sender, "undelivered", undelivered))


def _is_moot(host: Host, outgoing: Outgoing) -> bool:
    """Return whether a message is obsolete: its approval is closed, or its receiver has ended."""
    event = _event_of(outgoing)
    try:
        if outgoing.to == RECEIVER:
            return "approval" in event and not host.store.wait(event["approval"]["id"]).open
        if event["signal"] not in (ENDED, CANCEL):
            return False
        return host.store.execution(outgoing.to).status in ENDED_STATUSES
    except NotFound:
        return True


def _event_of(outgoing: Outgoing) -> dict[str, Any]:
    unpack = unpack_notice if outgoing.to == RECEIVER else unpack_event
    event: dict[str, Any] = unpack(outgoing.event, f"a message of execution {outgoing.sender}")
    return event


def delivered(host: Host, outgoing: Outgoing) -> str:
    """Store a message for its receiver, and return the receiving execution.

    Raises:
        NotFound: The receiver does not exist.
        Conflict: The receiver has ended.
        InputError: The receiver does not accept the message.
    """
    event = _event_of(outgoing)
    if outgoing.to == RECEIVER:
        return notify(host, event)
    if outgoing.to == "all":
        execution: str = send_keyed(host, event).execution
        return execution
    if outgoing.to == "parent":
        raise NotFound("the sender has no parent")
    name = event["signal"]
    if name == CANCEL:
        event |= {"type": "cancel", "reason": event["data"], "now": False}
        cancel = {key: event[key] for key in ("type", "at", "reason", "by", "now")}
        return host.store.send(outgoing.to, pack(cancel), event["at"], event["id"]).execution
    event["data"] = check_for(host, outgoing.to, name, event["data"])
    message_id = f"{name} {event['id']}"
    return host.store.send(outgoing.to, pack(event), event["at"], message_id).execution


def view(outgoing: Outgoing) -> dict[str, Any]:
    """Return an undeliverable message, as shown to users."""
    event = _event_of(outgoing)
    if outgoing.to == RECEIVER:
        about = event.get("approval") or event["execution"]
        event |= {"signal": event["flow"], "key": None, "id": about["id"]}
    return {
        "signal": event["signal"],
        "to": outgoing.to,
        "key": event["key"],
        "id": event["id"],
        "why": outgoing.why,
    }


# Sending notifications about approvals and ends: each is an execution that calls its tool.
#
# See docs/language/approvals.md: Notifications.
#
# An execution has attempts that are repeated after a crash, a retry, rules and a journal, and
# its failure affects no other. Its id follows from the notification, so it is started only once.


def notify(host: Host, event: Mapping[str, Any]) -> str:
    """Start the execution that sends a notification, unless that was done before.

    Args:
        host: Provides the store, and the address of the page.
        event: The notification, see `executions/parts.py`.

    Returns:
        The id of the execution.

    Raises:
        NotFound: Its flow is missing.
    """
    linked = host.flows.by_hash(event["hash"])
    sender = event["flow"]
    flows = [linked.compiled, *linked.compiled.get("flows", [])]
    number = next((n for n, flow in enumerate(flows) if flow["id"] == sender), None)
    if number is None:
        raise NotFound(f"the flow has no tool for {sender}")
    url, parent = host.settings.server_url, event["parent"]
    cause = parent["identity"]
    if "approval" in event:
        name, place = "approval", "approvals"
        id = separate_id(cause, event["wait"], event["number"], sender)
    else:
        name, place = "execution", "executions"
        id = separate_id(cause, event["number"], sender)
    about = event[name]
    link = None if url is None else f"{url}/{place}/{about['id']}"
    return begin_separate(host, linked, number, id, parent, {name: {**about, "link": link}})
