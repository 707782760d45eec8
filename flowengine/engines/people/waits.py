"""Waits as the API returns them: the question, its assignees and its decision."""

from __future__ import annotations

from typing import Any

from flowengine.engines.actors import is_assignee
from flowengine.engines.executions.views import timers_of, wait_view
from flowengine.engines.host import Host
from flowengine.engines.infos import WaitInfo
from flowengine.engines.people.approval_ownership import standing
from flowengine.engines.people.grants import view as image_view
from flowengine.engines.results import WaitPage
from flowengine.journal.records import ListedWait, WaitFilter
from flowengine.journal.shapes import WAITS, unpack_event
from flowengine.kernel.notation.times import format_time
from flowengine.kernel.state.records import State
from flowengine.kernel.view import counting
from flowengine.settings import Settings


def page_of_waits(
    host: Host, limit: int, after: str | None, assignee: str | None, **wanted: Any
) -> WaitPage:
    """Return a page of waits.

    Args:
        host: Provides the store.
        limit: Size of the page.
        after: `next` of the page before.
        assignee: Only waits that this user may answer.
        **wanted: Other fields of `WaitFilter`. `execution` may be a prefix of its id.

    Returns:
        The page. It is shorter than `limit` if the user is excluded from some waits, has delegated
        or approved some, or other users have claimed some. Messages of conversations are only among
        the waits of their execution, since a conversation is not an approval.
    """
    settings = host.settings
    if wanted["execution"] is not None:
        wanted["execution"] = host.store.find_execution(wanted["execution"])
    elif not wanted["kinds"]:
        wanted["kinds"] = sorted(WAITS - {"session"})
    if assignee is not None:
        wanted["assignees"] = [assignee, *settings.groups_of(assignee)]
    page = host.store.waits(WaitFilter(**wanted), after, limit)
    return WaitPage(
        [
            stored_wait_view(wait)
            for wait in page.items
            if (assignee is None or _is_mine(wait, assignee, settings))
            and not (wanted["execution"] is None and _is_message(wait))
        ],
        page.next,
    )


def wait_of(host: Host, wait: str) -> WaitInfo:
    """Return one wait, open or closed, by any unambiguous prefix of its id."""
    current = standing(host.store, host.store.find_wait(wait))
    return stored_wait_view(
        current, host.stored(current.execution, 0).state if current.open else None
    )


def _is_mine(wait: ListedWait, user: str, settings: Settings) -> bool:
    """Return whether a user may decide on a wait, perhaps after claiming it, and has not yet."""
    if not is_assignee(wait.record, user, settings):
        return False
    is_free = wait.record.get("claimed_by") in (None, user) and user not in wait.journaled
    return not wait.open or is_free


def _is_message(wait: ListedWait) -> bool:
    """Return whether a wait is for the next message of a conversation (`chat`)."""
    return bool(wait.record.get("chat")) and wait.record["kind"] == "ask"


def stored_wait_view(wait: ListedWait, state: State | None = None) -> WaitInfo:
    """Return a stored wait with its decision, and with its timers if a state is given."""
    how = wait.how or ("decided" if wait.decision is not None else None)
    view = wait_view(wait.execution, wait.flow, _with_votes(wait), how)
    if state is not None and wait.open and (timers := timers_of(state, wait.record["id"])):
        view["timers"] = timers
    if wait.decision is not None:
        view["decision"] = decision_view(
            unpack_event(wait.decision, f"the decision of wait {wait.id}")
        )
    elif wait.how == "expired" and wait.closed_at is not None:
        view["decision"] = {
            "choice": wait.record.get("on_expire"),
            "by": "system",
            "at": format_time(wait.closed_at),
            "via": "expiry",
        }
    return view


def _with_votes(wait: ListedWait) -> dict[str, Any]:
    """Return the record of a wait with its votes that are not journaled yet, in order."""
    recorded = [
        {"by": event["by"], "at": format_time(event["at"])}
        for event in (unpack_event(vote, f"a vote on wait {wait.id}") for vote in wait.votes)
        if event["by"] not in wait.journaled and counting(wait.record, event["choice"]) == "approve"
    ]
    votes = [*(wait.record.get("votes") or ()), *recorded]
    return {**wait.record, "votes": votes} if recorded else wait.record


def decision_view(event: dict[str, Any]) -> dict[str, Any]:
    """Return the decision of a `decided` event: choice, user, time and channel."""
    view = {key: value for key, value in event.items() if value not in (None, [])}
    for key in ("type", "wait", "sent"):
        view.pop(key, None)
    view["at"] = format_time(event.get("sent", event["at"]))
    if "images" in view:
        view["images"] = [image_view(image) for image in view["images"]]
    return view
