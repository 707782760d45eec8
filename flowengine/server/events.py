"""The routes of events: of one execution, and of all that a user may see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from typing import Any

from flowengine.engines.infos import EventFilter, StoreEvent
from flowengine.errors import UsageError
from flowengine.kernel.notation.times import format_time
from flowengine.server.calls import ApiCall, labels_of, moment
from flowengine.server.executions import known_address
from flowengine.server.redaction import entry_without_content
from flowengine.server.rights import Right

_MOST_READ = 5000
"""Maximum number of events that one page is made from."""


def list_events(call: ApiCall) -> Any:
    """Return a part of an execution's journal. As `text/event-stream`: a stream of its events."""
    query = call.query
    if query.replies:
        raise UsageError("'replies' are in a stream only", hint="Accept: text/event-stream")
    step = None if query.step is None else known_address(call, query.step)
    since = None if query.since is None else moment(query.since)
    events = call.engine.executions.events(
        call.path["execution"], from_seq=query.from_seq, step=step, type=query.type, since=since
    )
    items = list(islice(events, query.limit))
    return {"items": items, "next": items[-1]["seq"] + 1 if items else None}


def list_all_events(call: ApiCall) -> Any:
    """Return events of all executions, in the order of commits. As `text/event-stream`: a stream.

    A page can be shorter than `limit`, even empty, before the newest event.
    """
    shown = shown_to(call)
    items: list[dict[str, Any]] = []
    after, last = call.query.after, None
    for event in islice(_new(call, after), _MOST_READ):
        last = event.number
        if (item := shown(event)) is not None:
            items.append(item)
        if len(items) == call.query.limit:
            break
    if last is None:
        last = call.engine.store.number_events() if after is None else after
    return {"items": items, "next": last}


def shown_to(call: ApiCall) -> Callable[[StoreEvent], dict[str, Any] | None]:
    """Return what shows an event to a user. None: it is hidden, or not one of those asked for."""
    query = call.query
    since = None if query.since is None else moment(query.since)
    wanted = EventFilter(query.flow, query.status, labels_of(query.label), since)
    may = cache(call.may)

    def show(event: StoreEvent) -> dict[str, Any] | None:
        if not may(Right.SEE, event.flow) or not wanted.fits(event):
            return None
        has_content = not query.brief and may(Right.CONTENT, event.flow)
        return view_of(event, event.entry if has_content else entry_without_content(event.entry))

    return show


def view_of(event: StoreEvent, entry: dict[str, Any]) -> dict[str, Any]:
    """Return an event with the visible part of its entry."""
    return {
        "number": event.number,
        "execution": event.execution,
        "flow": event.flow,
        "status": event.status,
        "labels": event.labels,
        "created_at": format_time(event.created_at),
        "entry": entry,
    }


def _new(call: ApiCall, after: int | None) -> Iterator[StoreEvent]:
    for event in call.engine.executions.feed_all(after):
        if event is None:
            return
        yield event
