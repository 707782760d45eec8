"""Claiming, releasing and delegating approvals, all through a single function.

Each action is sent to the execution as a message whose id is the next number in the sequence. If
two users act at the same time, the store accepts one message, and the other is checked again. The
kernel writes the action into the record of the wait when it is journaled. Until then `standing`
adds it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flowengine.engines.actors import excluded, is_assignee
from flowengine.errors import Conflict, Hint, NotAllowed, UsageError
from flowengine.journal.encoding import pack
from flowengine.journal.records import ListedWait
from flowengine.journal.shapes import unpack_event, unpack_message
from flowengine.journal.store import Store
from flowengine.kernel.waiting.approvals import EVENTS, change, gave_away
from flowengine.settings import Settings, settings_file

HANDED = ("approval", "ask", "session")
"""Kinds of waits that have assignees."""


def standing(store: Store, id: str) -> ListedWait:
    """Return a wait, including actions that are not journaled yet.

    Args:
        store: Contains the wait.
        id: Full id of the wait.
    """
    wait = store.wait(id)
    if not wait.open or wait.record["kind"] not in HANDED:
        return wait
    # In this order, an action that is journaled in between is applied twice, which has no effect.
    messages = store.inbox(wait.execution)
    wait = store.wait(id)
    for message in messages:
        event = unpack_message(message)
        if event["type"] in EVENTS and event["wait"] == wait.number:
            change(wait.record, event)
    return wait


def hand(
    store: Store,
    settings: Settings,
    id: str,
    event: dict[str, Any],
) -> ListedWait:
    """Record that an approval changes hands, if permitted.

    Args:
        store: Contains the wait.
        settings: Settings with the groups.
        id: Full id of the wait.
        event: A `kernel.events.Handed` without `wait`.

    Returns:
        The wait afterwards.
    """
    number = 0
    while True:
        wait = standing(store, id)
        if not _changes(wait, event, settings):
            return wait
        event["wait"] = wait.number
        number = max(number, len(wait.record.get("handed") or ()))
        place = f"wait {wait.number} hand {number}"
        if store.send(wait.execution, pack(event), event["at"], place).first:
            change(wait.record, event)  # type: ignore[arg-type]
            return wait
        number += 1


def check_claim(wait: Mapping[str, Any], id: str, user: str) -> None:
    """Check that no other user has claimed an approval, and that it is claimed if required.

    Args:
        wait: The record.
        id: Id of the wait, for messages.
        user: The user who decides.

    Raises:
        Conflict: Another user has claimed it, or it must be claimed first.
    """
    _check_holder(wait, id, user)
    if wait.get("claim") and "claimed_by" not in wait:
        raise Conflict(
            f"{id} has to be claimed before it can be decided",
            hint=Hint(
                f"claim it: flowengine approvals assign {id} --to me",
                http=f"claim it: POST /v1/approvals/{id}/claim",
            ),
        )


def check_assignee(
    wait: Mapping[str, Any], users: Sequence[str], settings: Settings, what: str
) -> None:
    """Check that a user is an assignee, and that the user and the actor are not excluded.

    Args:
        wait: The record.
        users: The user on whose behalf it is done, then the actual user if different.
        settings: Settings with the groups.
        what: The requested action, for messages: `decide on`.

    Raises:
        NotAllowed: The user is not permitted to do it.
    """
    user = users[0]
    barred = excluded(wait, users, settings)
    if barred is None and is_assignee(wait, user, settings):
        return
    about, hint = f"{what} '{wait.get('title') or wait['address']}'", None
    if barred is not None:
        reason = str(barred)
        if barred.user != user:
            about += f" on behalf of {user}"
            hint = "'exclude' also applies to the user who enters the decision of another one"
        user = barred.user
    elif user in gave_away(wait):
        reason = f"{user} has delegated it"
    else:
        reason = f"assignees are {', '.join(wait['assignees'])}"
        hint = _who_may(wait["assignees"], user, settings)
    raise NotAllowed(
        f"{user} may not {about}: {reason}",
        hint=hint,
        plain=f"{user} may not {what} '{wait['address']}': {reason}",
    )


def _who_may(assignees: Sequence[str], user: str, settings: Settings) -> str | None:
    """Return why a user is in none of the groups that are assigned, and who else may decide.

    A client of a server learns nothing about the host's files, and acts in person.
    """
    empty = settings.without_members(assignees)
    parts = list(empty.values())
    others = [name for name in assignees if name not in empty]
    groups = ", ".join(name for name in others if name.startswith("group:"))
    if groups:
        parts.append(f"{user} is not in {groups}, see {settings_file()}")
    python, cli = list(parts), list(parts)
    if others and settings.act_for_others:
        python.append("by='user:NAME' acts on behalf of another user")
        cli.append("--as USER acts on behalf of another user")
    return Hint("; ".join(python), "; ".join(cli), http="") if cli else None


def _changes(wait: ListedWait, event: Mapping[str, Any], settings: Settings) -> bool:
    """Check that a user is permitted to perform the action of an event.

    Args:
        wait: The wait.
        event: The action.
        settings: Settings with the groups.

    Returns:
        Whether it changes anything. Claiming again does not.

    Raises:
        Conflict: It is closed, or cannot be claimed.
        NotAllowed: Only other users are permitted to do it.
    """
    record, by, what = wait.record, event["by"], event["type"]
    users = [by, *([event["entered_by"]] if "entered_by" in event else ())]
    holder = record.get("claimed_by")
    if record["kind"] not in HANDED:
        raise Conflict(f"{wait.id} waits for a {record['kind']}, which has no assignees")
    if not wait.open:
        raise Conflict(
            f"{wait.id} is closed",
            hint=Hint(f"flowengine show {wait.id}", http=f"GET /v1/approvals/{wait.id}"),
            standing=wait,
        )
    if what == "released":
        if holder is None:
            raise Conflict(f"{wait.id} is not claimed")
        if holder != by:
            raise NotAllowed(f"{wait.id} is claimed by {holder}, who alone can release it")
        return True
    check_assignee(record, users, settings, "claim" if what == "claimed" else "delegate")
    _check_holder(record, wait.id, by)
    if what == "delegated":
        _check_delegation(wait, by, event["to"], settings)
    elif not record.get("claim"):
        raise Conflict(
            f"{wait.id} does not have to be claimed: its assignees can decide directly",
            hint="approvals are claimed only where the flow has 'claim: true'",
        )
    return what == "delegated" or holder is None


def _check_delegation(wait: ListedWait, by: str, to: str, settings: Settings) -> None:
    """Check that an approval may be delegated, and to whom.

    Raises:
        UsageError: `to` is not another user.
        NotAllowed: The flow does not allow it, or `to` is excluded.
        Conflict: One of them has voted already.
    """
    record = wait.record
    if not to.startswith("user:") or not to[5:] or to.startswith("user:group:") or to == by:
        raise UsageError(f"an approval is delegated to another user, not to {to!r}")
    if record.get("delegate") is False:
        raise NotAllowed(f"{wait.id} cannot be delegated: the flow has 'delegate: false'")
    if (barred := excluded(record, [to], settings)) is not None:
        raise NotAllowed(f"{to} may not decide on {wait.id}: {barred}")
    cast = {unpack_event(vote, f"a vote on wait {wait.id}")["by"] for vote in wait.votes}
    voters = cast | wait.journaled.keys()
    for user in (by, to):
        if user in voters:
            raise Conflict(f"{user} already voted on {wait.id}")


def _check_holder(record: Mapping[str, Any], id: str, user: str) -> None:
    """Check that no other user has claimed an approval.

    Raises:
        Conflict: Another user has claimed it.
    """
    holder = record.get("claimed_by")
    if holder in (None, user):
        return
    since = next(link["at"] for link in reversed(record["handed"]) if link["do"] != "escalated")
    raise Conflict(
        f"{id} is claimed by {holder} since {since}",
        standing={"claimed_by": holder, "at": since},
        hint=Hint(
            f"{holder} may release it: flowengine approvals assign {id} --to anyone",
            http=f"{holder} may release it: POST /v1/approvals/{id}/release",
        ),
    )
