"""Executions with work to do that no process is driving: abandoned, interrupted or never begun.

The store alone cannot detect them. The last status it recorded is `running`, which remains when the
process is gone. A recorded decision takes effect when a process drives the execution again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from flowengine.engines.executions.views import execution_view
from flowengine.engines.results import ExecutionPage
from flowengine.journal.ports.directory import every_execution
from flowengine.journal.records import ENDED, ExecutionFilter
from flowengine.journal.shapes import unpack_message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flowengine.engines.host import Host
    from flowengine.engines.infos import ExecutionInfo
    from flowengine.journal.records import ExecutionRecord, Message

_PAGE = 200
_LEFT = ("interrupted", "recorded")


def left(
    host: Host, record: ExecutionRecord, inbox: list[Message] | None = None
) -> Literal["interrupted", "recorded"] | None:
    """Return the status of an execution that `resume` can continue. None: nothing to do.

    Args:
        host: Provides the store.
        record: The execution.
        inbox: Its pending messages. None: they are looked up.

    Returns:
        `recorded` if no step of it has begun, otherwise `interrupted`.
    """
    if record.status in ENDED:
        return None
    has_begun = True
    if record.status == "running":
        has_begun = bool(host.store.events(record.id, limit=1))
    else:
        sent = host.store.inbox(record.id) if inbox is None else inbox
        if all(unpack_message(message)["type"] == "warning" for message in sent):
            return None
    if host.holder(record.id) is not None:
        return None
    return "interrupted" if has_begun else "recorded"


def standing_view(
    host: Host, record: ExecutionRecord, inbox: list[Message] | None = None
) -> ExecutionInfo:
    """Return an execution as shown in lists, with its current status."""
    view = execution_view(record)
    status = left(host, record, inbox)
    if status is not None:
        view["status"] = status
        view["command"] = f"flowengine resume {host.store.short_execution(record.id)}"
    return view


def page(host: Host, wanted: ExecutionFilter, after: str | None, limit: int) -> ExecutionPage:
    """Return a page of executions, newest first, each with its current status.

    Args:
        host: Provides the store.
        wanted: The filter. `status` may be one of those of executions that no process drives.
        after: `next` of the page before.
        limit: Size of the page.
    """
    inboxes: dict[str, list[Message]] = {}
    for message in host.store.arrived(0):
        inboxes.setdefault(message.execution, []).append(message)
    if wanted.status in _LEFT:
        return _page_of_left(host, wanted, inboxes, after, limit)
    items: list[ExecutionInfo] = []
    while True:
        found = host.store.executions(wanted, after, limit - len(items))
        views = [standing_view(host, item, inboxes.get(item.id, [])) for item in found.items]
        items += [view for view in views if wanted.status in (None, view["status"])]
        if len(items) == limit or found.next is None:
            return ExecutionPage(items, found.next)
        after = found.next


def _page_of_left(
    host: Host,
    wanted: ExecutionFilter,
    inboxes: dict[str, list[Message]],
    after: str | None,
    limit: int,
) -> ExecutionPage:
    """Return executions that no process drives: running without one, or with pending messages."""
    found = [*_all(host, wanted._replace(status="running"))]
    for status in ("waiting", "stalled") if inboxes and wanted.status == "interrupted" else ():
        there = _all(host, wanted._replace(status=status))
        found += [record for record in there if record.id in inboxes]
    found.sort(key=lambda record: (record.created_at, record.id), reverse=True)
    views = [standing_view(host, record, inboxes.get(record.id, [])) for record in found]
    views = [view for view in views if view["status"] == wanted.status]
    ids = [view["execution"] for view in views]
    start = ids.index(after) + 1 if after in ids else 0
    rest = views[start:]
    more = len(rest) > limit
    return ExecutionPage(rest[:limit], rest[limit - 1]["execution"] if more else None)


def _all(host: Host, wanted: ExecutionFilter) -> Iterator[ExecutionRecord]:
    after: str | None = None
    while True:
        found = host.store.executions(wanted, after, _PAGE)
        yield from found.items
        if found.next is None:
            return
        after = found.next


def due(host: Host) -> list[str]:
    """Return the full ids of the executions that can progress and that no living process holds.

    Their timer is due, a message or decision has arrived that is not journaled yet, or the process
    that ran them has died.

    Returns:
        The ids, in this order of reasons, each oldest first.
    """
    store = host.store
    found = dict.fromkeys(_oldest_first(host, ExecutionFilter(due=host.clock.now())))
    for message in store.arrived(0):
        if store.execution(message.execution).status not in ENDED:
            found[message.execution] = None
    found |= dict.fromkeys(_oldest_first(host, ExecutionFilter(status="running")))
    return [id for id in found if host.holder(id) is None]


def _oldest_first(host: Host, wanted: ExecutionFilter) -> Iterator[str]:
    """Return the ids of the executions that a filter matches, oldest first."""
    return reversed([record.id for record in every_execution(host.store, wanted)])
