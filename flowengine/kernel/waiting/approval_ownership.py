"""Ownership of approvals: claim, release, delegate (docs/language.md: approval).

The record of a wait contains the permitted approvers: `assignees` and `exclude` as requested,
`claimed_by` after a claim, and `handed`, the history of claims, releases and delegations.
Permission was checked before the action became an event. This module applies it to a record. A
second claim by another user, or a release by a user without the claim, has no effect.

The functions accept a plain record, so that an engine can also show actions that are recorded but
not journaled yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.kernel.commands import Notify
from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.notation.times import format_time
from flowengine.kernel.waiting.waits import show

if TYPE_CHECKING:
    from flowengine.kernel.events import Handed
    from flowengine.kernel.state.records import Wait
    from flowengine.kernel.transition import Transition

EVENTS = ("claimed", "released", "delegated")
"""Types of the events that change the ownership of an approval."""


def hand(tx: Transition, event: Handed) -> None:
    """Claim, release or delegate an open approval. A closed one does not change.

    Args:
        event: The action.
    """
    wait: Wait | None = tx.state["waits"].get(event["wait"])
    if wait is None or not change(wait["record"], event):
        return
    show(tx, wait)
    if event["type"] == "delegated":
        tx.commands.append(Notify(wait["id"], "delegated", [event["to"]], [], 0))


def change(record: dict[str, Plain], event: Handed) -> bool:
    """Apply an ownership event to the record of an approval.

    Args:
        record: Record of an open approval. It is changed in place.
        event: The action.

    Returns:
        Whether the record has changed.
    """
    what, by, holder = event["type"], event["by"], record.get("claimed_by")
    if what == "claimed":
        if holder is not None:
            return False
        record["claimed_by"] = by
    elif what == "released":
        if holder != by:
            return False
        del record["claimed_by"]
    else:
        if holder not in (None, by):
            return False
        _hand_on(record, by, event["to"])
    at = format_time(event.get("sent", event["at"]))
    link = {"do": what, "by": by, "to": event.get("to"), "at": at, "via": event["via"],
            "entered_by": event.get("entered_by"), "comment": event.get("comment")}  # fmt: skip
    link = {key: value for key, value in link.items() if value is not None}
    record["handed"] = [*record.get("handed", ()), link]
    return True


def _hand_on(record: dict[str, Plain], by: str, to: str) -> None:
    """Transfer the vote and the claim of `by` to `to`. Other assignees keep their votes."""
    if record.get("assignees"):
        others = [assignee for assignee in record["assignees"] if assignee not in (by, to)]
        record["assignees"] = [*others, to]
    if "claimed_by" in record:
        record["claimed_by"] = to


def escalated(record: dict[str, Plain], to: list[str], now: int) -> None:
    """Release the claim of an escalated approval, and restore the votes of the new assignees.

    Args:
        record: Record of an open approval. It is changed in place.
        to: The assignees of the escalation.
        now: The current time (ms).
    """
    if "handed" in record:
        record.pop("claimed_by", None)
        link = {"do": "escalated", "by": "system", "to": list(to), "at": format_time(now)}
        record["handed"] = [*record["handed"], link]


def gave_away(record: Any) -> list[str]:
    """Return the users who delegated an approval and did not receive it again.

    Args:
        record: Record of the approval.
    """
    gave: dict[str, bool] = {}
    for link in record.get("handed") or ():
        if link["do"] == "delegated":
            gave[link["by"]] = True
            gave.pop(link["to"], None)
        elif link["do"] == "escalated":
            for user in link["to"]:
                gave.pop(user, None)
    return list(gave)
