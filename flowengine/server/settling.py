"""Waiting until an execution has ended or needs a person, for protocols with one answer a call."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from flowengine.engines.results import ENDED
from flowengine.kernel.view import DECIDABLE
from flowengine.server.routes import find_route

if TYPE_CHECKING:
    from flowengine.server.application import Application
    from flowengine.server.calls import ApiCall
    from flowengine.server.rights import Principal

EXECUTION = "/v1/executions/{execution}"
_HELD = ("stalled", "quarantined")
_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 0.5
"""Seconds between two looks at an execution, while others change the store all the time."""

Tell = Callable[[str], Awaitable[None]]
"""Reports the status of the execution: when it has changed, and every `TELL_SECONDS`."""
TELL_SECONDS = 10.0


async def settled(
    application: Application,
    principal: Principal,
    execution: str,
    until: float,
    tell: Tell,
    decided: Collection[str] = (),
) -> Mapping[str, Any]:
    """Return an execution once it has ended or waits for a person, or as it is at a time.

    Args:
        application: The server.
        principal: The user, who may see the execution.
        execution: Its full id.
        until: The time, by the monotonic clock, in seconds.
        tell: Reports progress.
        decided: Ids of waits that were just decided, which another process has yet to notice.

    Returns:
        As `GET /v1/executions/{execution}?brief=true`.
    """
    status_of, changes = find_route("GET", EXECUTION), application.changes
    ids = {"execution": execution}
    pause, reported, reported_at = _FIRST_PAUSE, "", 0.0
    while True:
        number = changes.number
        status = await application.view(status_of, principal, ids, _status)
        now = time.monotonic()
        if status != reported or now - reported_at >= TELL_SECONDS:
            reported, reported_at = status, now
            await tell(status)
        is_last = now >= until or status in ENDED or status in _HELD or application.is_closing
        if is_last or status == "waiting":
            view: Mapping[str, Any] = await application.ask(
                principal, "GET", EXECUTION, ids=ids, query={"brief": True}
            )
            if is_last or open_questions(view, decided):
                return view
        await changes.after(number, min(until, now + TELL_SECONDS))
        await asyncio.sleep(min(pause, max(0.0, until - time.monotonic())))
        pause = min(2 * pause, _LONGEST_PAUSE)


def open_questions(view: Mapping[str, Any], decided: Collection[str] = ()) -> list[Any]:
    """Return the open waits of an execution that a person decides."""
    waits = view.get("waits") or ()
    return [wait for wait in waits if wait["kind"] in DECIDABLE and wait["id"] not in decided]


def _status(call: ApiCall) -> str:
    return call.engine.summary(call.path["execution"])["status"]
