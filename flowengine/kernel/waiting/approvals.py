"""Approvals: waits for a human decision (docs/language.md: approval).

The approver's permission, the form and the edits are checked before a decision becomes an event.
This module applies decisions, which count as votes and can close the approval, and time limits:
reminders, escalation, expiry. Events about a closed approval have no effect.
"""

from __future__ import annotations

from typing import Any

from flowengine.kernel.commands import Notify
from flowengine.kernel.events import Decided, Handed
from flowengine.kernel.expressions.names import Names, evaluate
from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.notation.addresses import wait_id
from flowengine.kernel.notation.times import format_time
from flowengine.kernel.state.records import Unit, Wait
from flowengine.kernel.transition import Transition
from flowengine.kernel.view import counting, edited
from flowengine.kernel.waiting.waits import duration_of, end_wait, new_wait, show

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


SHOWN = ("title", "body", "subject", "edit", "edit_schema", "form", "choices", "assignees",
         "exclude", "need", "batch", "attachments", "on_expire", "claim", "delegate")  # fmt: skip


def open_approval(tx: Transition, unit: Unit) -> None:
    """Open the approval of a step.

    Args:
        unit: The waiting unit.

    Raises:
        StepFailure: A duration is not valid.
        EvaluationError: An expression has no value.
    """
    act = tx.act_of(unit)
    node = tx.node(act)
    assert node.input is not None
    asked = evaluate(Names(tx, act, unit), node.input)
    wait = new_wait(tx, unit, node.kind)
    if node.chat:
        wait["record"]["chat"] = True
        user = str(tx.state["execution"].get("started_by"))
        if user.startswith("user:"):  # whose conversation it is
            asked["assignees"] = [user]
    fill_in(tx, wait, asked, node.id)
    notify(tx, wait, "opened")


def fill_in(tx: Transition, wait: Wait, asked: dict[str, Plain], batch: str) -> None:
    """Fill in the record of a new approval, set its timers, and open it. `notify` comes next.

    Args:
        wait: The approval.
        asked: The evaluated keys from docs/language.md: approval.
        batch: Its batch, if it does not name one.

    Raises:
        StepFailure: A duration is not valid.
    """
    record = wait["record"]
    record.update({key: asked[key] for key in SHOWN if asked.get(key) is not None})
    record.setdefault("batch", batch)
    execution: Any = tx.state["execution"]
    if execution.get("started_by") in record.get("exclude", ()):  # and who took up their part
        record["exclude"] = [*dict.fromkeys([*record["exclude"], *execution.get("forked_by", ())])]
    record["votes"] = []
    if asked.get("expires") is not None:
        record["due"] = tx.now + duration_of(asked["expires"], "expires")
        wait["timers"].append(tx.set_timer_at(record["due"], "expire", wait["id"]))
    if asked.get("remind"):
        _set_reminder(tx, wait, duration_of(asked["remind"]["every"], "remind"))
    for index, step in enumerate(asked.get("escalate") or ()):
        delay = duration_of(step["after"], "after")
        wait["timers"].append(tx.set_timer(delay, "escalate", wait["id"], index))
    wait["escalate"] = asked.get("escalate") or []
    wait["field"] = asked.get("field")
    if asked.get("notify"):
        wait["notify"], wait["notified"] = asked["notify"], 0
    show(tx, wait)


def _set_reminder(tx: Transition, wait: Wait, every: int) -> None:
    wait["remind"] = every
    wait["timers"].append(tx.set_timer(max(every, 1000), "remind", wait["id"]))


def notify(tx: Transition, wait: Wait, why: str) -> None:
    """Notify the assignees of an open approval.

    Args:
        wait: The approval.
        why: `opened`, `reminded` or `escalated`.
    """
    flows, number = wait.get("notify", []), 0
    if flows:
        number = wait["notified"] = wait["notified"] + 1
    to = list(wait["record"].get("assignees") or ())
    tx.commands.append(Notify(wait["id"], why, to, flows, number))


def remind(tx: Transition, wait: Wait) -> None:
    """Remind the assignees and set the next reminder."""
    notify(tx, wait, "reminded")
    _set_reminder(tx, wait, wait["remind"])


def escalate(tx: Transition, wait: Wait, index: int) -> None:
    """Add or replace assignees of an unanswered approval, and end its claim."""
    step = wait["escalate"][index]
    record = wait["record"]
    before = [] if step.get("replace") else list(record.get("assignees") or ())
    record["assignees"] = list(dict.fromkeys([*before, *step["to"]]))
    escalated(record, step["to"], tx.now)
    show(tx, wait)
    notify(tx, wait, "escalated")


def settle(tx: Transition, wait: Wait, how: str, decision: dict[str, Any]) -> None:
    """Close the approval of a step, which continues with the choice, or with `expired`."""
    if wait["kind"] in ("ask", "session"):
        form: Plain = decision.get("form")
        field = wait["field"]
        end_wait(tx, wait, how, form if field is None else form[field], "ok")
        return
    output = answer(tx.state["execution"]["id"], wait["record"], decision, tx.now)
    end_wait(tx, wait, how, output, decision["choice"] or "expired")


def voted(tx: Transition, wait: Wait, event: Decided) -> dict[str, Any] | None:
    """Count a decision, and return it if it closes the question. None: more votes are needed."""
    decision: dict[str, Any] = {k: v for k, v in event.items() if k not in ("type", "wait")}
    decision["at"] = format_time(event.get("sent", event["at"]))
    if wait["owner"] != "budget" and counting(wait["record"], event["choice"]) == "approve":
        wait["record"]["votes"].append({"by": event.get("by"), "at": decision["at"]})
        show(tx, wait)
        if len(wait["record"]["votes"]) < (wait["record"].get("need") or 1):
            return None
    return decision


def expired(wait: Wait) -> dict[str, Any]:
    """Return the decision that applies at expiry."""
    return {"choice": wait["record"].get("on_expire"), "by": "system", "via": "expiry"}


def answer(
    execution: str, record: dict[str, Plain], decision: dict[str, Plain], now: int
) -> dict[str, Any]:
    """Return the output of an approval.

    Args:
        execution: Id of the execution.
        record: Record of the approval.
        decision: The decision, with its user and channel.
        now: The current time (ms).

    Returns:
        The mapping from docs/language.md: approval.
    """
    choice = decision.get("choice")
    counts_as = counting(record, choice) if choice else None
    original = record.get("subject")
    edits = decision.get("edits") or {}
    entered = {"entered_by": decision["entered_by"]} if "entered_by" in decision else {}
    return {
        "id": wait_id(execution, record["id"]),
        "choice": choice,
        "counts_as": counts_as,
        "approved": counts_as == "approve",
        "subject": edited(original, edits),
        "original": original,
        "edited": bool(edits),
        "form": decision.get("form"),
        "comment": decision.get("comment"),
        "attachments": decision.get("attachments") or [],
        "by": decision.get("by"),
        "at": decision.get("at") or format_time(now),
        "via": decision.get("via"),
        **entered,
        "votes": record.get("votes") or [],
    }
