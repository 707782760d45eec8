"""What executions send to others: on its way from their journals to the inboxes of those.

See docs/language.md: emit.

A message is in the store from the commit of the event that sends it; from there any process takes
it to whom it is for, as often as it takes: its id comes from the sender's journal, and an inbox
holds an id once. What nobody can take stays with its sender, with the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.engines.messages.signals import check_for, send_keyed
from flowengine.engines.results import Update
from flowengine.errors import Conflict, InputError, NotFound
from flowengine.journal.encoding import pack
from flowengine.journal.shapes import unpack_event

if TYPE_CHECKING:
    from flowengine.engines.host import Host
    from flowengine.journal.records import Outgoing


def deliver(host: Host) -> None:
    """Take all messages that are on their way to whom they are for.

    Who got one is noted in `host.woken`.
    """
    for outgoing in host.store.outbox():
        refused = None
        try:
            host.woken[_delivered(host, outgoing)] = True
        except (NotFound, Conflict, InputError) as error:
            refused = error.message
        host.store.settle(outgoing.number, refused)
        if refused is not None:
            host.tell(Update(outgoing.sender, "undelivered", view(outgoing._replace(why=refused))))


def _delivered(host: Host, outgoing: Outgoing) -> str:
    """Store a message where it belongs, and return for which execution."""
    event: dict[str, Any] = unpack_event(
        outgoing.event, f"a message of execution {outgoing.sender}"
    )
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
    """Return a message that could not be delivered, as users see it."""
    event = unpack_event(outgoing.event, f"a message of execution {outgoing.sender}")
    return {
        "signal": event["signal"],
        "to": outgoing.to,
        "key": event["key"],
        "id": event["id"],
        "why": outgoing.why,
    }
