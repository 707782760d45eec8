"""Delivery of messages between executions, from the sender's journal to the receiver's inbox.

See docs/language.md: emit.

A message is in the store from the commit of the event that sends it. From then on any process
delivers it, with at-least-once attempts: its id comes from the sender's journal, and an inbox
stores each id only once. An undeliverable message stays with its sender, with the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.engines.executions.notices import RECEIVER
from flowengine.engines.messages.signals import check_for, send_keyed
from flowengine.engines.results import Update
from flowengine.errors import Conflict, InputError, NotFound
from flowengine.journal.encoding import pack
from flowengine.journal.shapes import unpack_event, unpack_notice

if TYPE_CHECKING:
    from flowengine.engines.host import Host
    from flowengine.journal.records import Outgoing


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
        host.store.settle(outgoing.number, refused)
        if refused is not None:
            host.tell(Update(outgoing.sender, "undelivered", view(outgoing._replace(why=refused))))


def _is_moot(host: Host, outgoing: Outgoing) -> bool:
    if outgoing.to != RECEIVER:
        return False
    from flowengine.engines.messages.notifications import is_moot

    return is_moot(host, _event_of(outgoing))


def _event_of(outgoing: Outgoing) -> dict[str, Any]:
    unpack = unpack_notice if outgoing.to == RECEIVER else unpack_event
    event: dict[str, Any] = unpack(outgoing.event, f"a message of execution {outgoing.sender}")
    return event


def delivered(host: Host, outgoing: Outgoing) -> str:
    """Store a message for its receiver, and return the receiving execution.

    Raises:
        NotFound: There is no receiver.
        Conflict: The receiver has ended.
        InputError: The receiver does not accept the message.
    """
    event = _event_of(outgoing)
    if outgoing.to == RECEIVER:
        from flowengine.engines.messages.notifications import begin

        return begin(host, event)
    if outgoing.to == "all":
        execution: str = send_keyed(host, event).execution
        return execution
    if outgoing.to == "parent":
        raise NotFound("the sender has no parent")
    name = event["signal"]
    event["data"] = check_for(host, outgoing.to, name, event["data"])
    message_id = f"{name} {event['id']}"
    return host.store.send(outgoing.to, pack(event), event["at"], message_id).execution


def view(outgoing: Outgoing) -> dict[str, Any]:
    """Return an undeliverable message, as shown to users."""
    event = _event_of(outgoing)
    if outgoing.to == RECEIVER:
        event |= {"signal": event["flow"], "key": None, "id": event["approval"]["id"]}
    return {
        "signal": event["signal"],
        "to": outgoing.to,
        "key": event["key"],
        "id": event["id"],
        "why": outgoing.why,
    }
