"""Waits as the API returns them: the question, its assignees and its decision."""

from __future__ import annotations

from typing import Any

from flowengine.engines.executions.views import timers_of, wait_view
from flowengine.engines.host import Host
from flowengine.engines.people.approval_ownership import standing
from flowengine.engines.people.grants import view as image_view
from flowengine.engines.results import WaitInfo
from flowengine.journal.records import ListedWait
from flowengine.journal.shapes import unpack_event
from flowengine.kernel.notation.times import format_time
from flowengine.kernel.state.records import State
from flowengine.kernel.view import counting


def wait_of(host: Host, wait: str) -> WaitInfo:
    """Return one wait, open or closed, by any unambiguous prefix of its id."""
    current = standing(host.store, host.store.find_wait(wait))
    return stored_wait_view(
        current, host.stored(current.execution, 0).state if current.open else None
    )


def stored_wait_view(wait: ListedWait, state: State | None = None) -> WaitInfo:
    """Return a stored wait with its decision, and with its timers if a state is given."""
    how = wait.how or ("decided" if wait.decision is not None else None)
    recorded = [  # votes that are not journaled yet, in order
        {"by": event["by"], "at": format_time(event["at"])}
        for event in (unpack_event(vote, f"a vote on wait {wait.id}") for vote in wait.votes)
        if event["by"] not in wait.journaled and counting(wait.record, event["choice"]) == "approve"
    ]
    votes = {"votes": [*(wait.record.get("votes") or ()), *recorded]} if recorded else {}
    view = wait_view(wait.execution, wait.flow, {**wait.record, **votes}, how)
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


def decision_view(event: dict[str, Any]) -> dict[str, Any]:
    """Return the decision of a `decided` event: choice, user, time and channel."""
    view = {key: value for key, value in event.items() if value not in (None, [])}
    for key in ("type", "wait", "sent"):
        view.pop(key, None)
    view["at"] = format_time(event.get("sent", event["at"]))
    if "images" in view:
        view["images"] = [image_view(image) for image in view["images"]]
    return view
