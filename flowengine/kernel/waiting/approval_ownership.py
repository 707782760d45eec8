"""Whose an approval is: claimed, given back, handed on (docs/language.md: approval).

The record of a wait says who may decide: `assignees` and `exclude` as they were asked, `claimed_by`
once somebody has taken it, and `handed`, the chain of all that people did with it. Whether somebody
may do so was checked before it became an event. Here is what it does to a record; a second claim of
what somebody else has, or a return by another, changes nothing.

The functions take a plain record, so that an engine can show what was recorded and is not journaled
yet as the kernel will see it.
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
"""Types of the events by which an approval changes hands."""


def hand(tx: Transition, event: Handed) -> None:
    """Claim, release or delegate an open approval; a closed one does not change.

    Args:
        event: What somebody did.
    """
    wait: Wait | None = tx.state["waits"].get(event["wait"])
    if wait is None or not change(wait["record"], event):
        return
    show(tx, wait)
    if event["type"] == "delegated":
        tx.commands.append(Notify(wait["id"], "delegated", [event["to"]]))


def change(record: dict[str, Plain], event: Handed) -> bool:
    """Write into a record what somebody did with the approval.

    Args:
        record: Of an open approval; changed in place.
        event: What somebody did.

    Returns:
        Whether it changed anything.
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
    """Give `to` the vote of `by`, and the claim if there is one; other assignees keep theirs."""
    if record.get("assignees"):
        others = [assignee for assignee in record["assignees"] if assignee not in (by, to)]
        record["assignees"] = [*others, to]
    if "claimed_by" in record:
        record["claimed_by"] = to


def escalated(record: dict[str, Plain], to: list[str], now: int) -> None:
    """Give back what nobody has answered in time: the claim, and the voice of whom it now asks.

    Args:
        record: Of an open approval; changed in place.
        to: Whom the escalation asks.
        now: When (ms).
    """
    if "handed" in record:
        record.pop("claimed_by", None)
        link = {"do": "escalated", "by": "system", "to": list(to), "at": format_time(now)}
        record["handed"] = [*record["handed"], link]


def gave_away(record: Any) -> list[str]:
    """Return the users who have handed an approval on and were not given it again.

    Args:
        record: Of the approval.
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
