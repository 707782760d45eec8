"""Executions that are not driven or cannot continue: abandoned, interrupted, or in a lock cycle."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Literal

from flowengine.engines.host import Host
from flowengine.engines.infos import ExecutionInfo, ExecutionPage, execution_view
from flowengine.errors import Conflict, NotFound
from flowengine.journal.encoding import pack
from flowengine.journal.filters import fits_execution
from flowengine.journal.lease_holders import steady_now
from flowengine.journal.records import (
    ENDED,
    Claimed,
    Due,
    ExecutionFilter,
    ExecutionRecord,
    InboxMessage,
    ListedWait,
    WaitFilter,
)
from flowengine.journal.shapes import unpack_message
from flowengine.journal.store import every_execution, every_item
from flowengine.kernel.view import View, is_shared

# Executions with work to do that no process is driving: abandoned, interrupted or never begun.
#
# An execution whose processes die again and again is quarantined: only `resume` with its id
# continues it, so that it does not end every process that takes it.
#
# The store alone cannot detect them. The last status it recorded is `running`, which remains when
# the process is gone. A recorded decision takes effect when a process drives the execution again.

_LEFT = ("interrupted", "recorded", "quarantined")
QUIET = frozenset({"warning", "wanted"})
"""Types of messages with which an execution cannot continue."""
PATIENCE = 10_000
"""Milliseconds for which a step waits for a worker while another process drives its execution."""
_MOST_OFFERED = 200
"""How many executions that wait for a worker are found at once."""
TRIES = 3
"""After how many deaths in a row of its processes an execution is quarantined."""


def left(
    host: Host, record: ExecutionRecord, inbox: list[InboxMessage] | None = None
) -> Literal["interrupted", "recorded", "quarantined"] | None:
    """Return the status of an execution that `resume` can continue. None: nothing to do.

    Args:
        host: Provides the store.
        record: The execution.
        inbox: Its pending messages. None: they are looked up.

    Returns:
        `quarantined` if its processes died several times in a row, `recorded` if no step of it has
        begun, otherwise `interrupted`.
    """
    if record.status in ENDED:
        return None
    can_go_on = True
    if record.status != "running":
        sent = host.store.inbox(record.id) if inbox is None else inbox
        if all(unpack_message(message)["type"] in QUIET for message in sent):
            can_go_on = False
    is_due = record.due is not None and record.due <= host.clock.now()
    if not (can_go_on or is_due) or host.holder(record.id) is not None:
        return None
    try:
        if host.store.execution(record.id) != record:
            return None  # it was held when the record was read
    except NotFound:
        return None
    if host.deaths(record.id) >= TRIES:
        return "quarantined"
    if not can_go_on:
        return None
    has_begun = record.status != "running" or bool(host.store.events(record.id, limit=1))
    return "interrupted" if has_begun else "recorded"


def standing_view(
    host: Host, record: ExecutionRecord, inbox: list[InboxMessage] | None = None
) -> ExecutionInfo:
    """Return an execution with its current status."""
    view = execution_view(record)
    status = left(host, record, inbox)
    if status is not None:
        view["status"] = status
        view["command"] = f"flowengine resume {host.store.short_execution(record.id)}"
    return view


def listed_view(
    host: Host, record: ExecutionRecord, inbox: list[InboxMessage] | None = None
) -> ExecutionInfo:
    """Return an execution as shown in lists, with its current status and why it failed."""
    view = standing_view(host, record, inbox)
    if record.failure is not None:
        view["failure"] = record.failure
    return view


def page(host: Host, wanted: ExecutionFilter, after: str | None, limit: int) -> ExecutionPage:
    """Return a page of executions, newest first, each with its current status.

    Args:
        host: Provides the store.
        wanted: The filter. `status` may be one of those of executions that no process drives.
        after: `next` of the page before.
        limit: Size of the page.
    """
    inboxes: dict[str, list[InboxMessage]] = {}
    for message in host.store.arrived(0):
        inboxes.setdefault(message.execution, []).append(message)
    if wanted.status in _LEFT:
        return _page_of_left(host, wanted, inboxes, after, limit)
    items: list[ExecutionInfo] = []
    while True:
        found = host.store.executions(wanted, after, limit - len(items))
        views = [listed_view(host, item, inboxes.get(item.id, [])) for item in found.items]
        items += [view for view in views if wanted.status in (None, view["status"])]
        if len(items) == limit or found.next is None:
            return ExecutionPage(items, found.next)
        after = found.next


def _page_of_left(
    host: Host,
    wanted: ExecutionFilter,
    inboxes: dict[str, list[InboxMessage]],
    after: str | None,
    limit: int,
) -> ExecutionPage:
    """Return executions that no process drives: running without one, or with pending messages."""
    if wanted.status == "quarantined":
        records = [host.store.execution(entry.execution) for entry in quarantined(host)]
        records = [
            record for record in records if fits_execution(record, wanted._replace(status=None))
        ]
    else:
        records = [*every_execution(host.store, wanted._replace(status="running"))]
    for status in ("waiting", "stalled") if inboxes and wanted.status == "interrupted" else ():
        there = every_execution(host.store, wanted._replace(status=status))
        records += [record for record in there if record.id in inboxes]
    records.sort(key=lambda record: (record.created_at, record.id), reverse=True)
    views = [listed_view(host, record, inboxes.get(record.id, [])) for record in records]
    views = [view for view in views if view["status"] == wanted.status]
    ids = [view["execution"] for view in views]
    start = ids.index(after) + 1 if after in ids else 0
    rest = views[start:]
    more = len(rest) > limit
    return ExecutionPage(rest[:limit], rest[limit - 1]["execution"] if more else None)


def due(host: Host, execution: str | None = None) -> list[Due]:
    """Return the executions that can progress and that no living process holds.

    Their timer is due, a message or decision has arrived that is not journaled yet, or the process
    that ran them has died. Quarantined executions are left out.

    Args:
        host: Provides the store.
        execution: Only this one, by its full id.

    Returns:
        Those that have been able to progress for longest first.
    """
    found = host.store.due(host.clock.now(), steady_now(), execution)
    if host.offers:
        known = {entry.execution for entry in found}
        more = [entry for entry in _offered(host, execution) if entry.execution not in known]
        found = sorted([*found, *more], key=lambda entry: entry.since)
    return [entry for entry in found if entry.deaths < TRIES]


def _offered(host: Host, execution: str | None) -> Iterator[Due]:
    """Yield the executions that wait for what this process offers, and that no process holds."""
    seen: set[str] = set()
    for wait in _waiting_for(host, execution):
        if wait.execution in seen or host.holder(wait.execution) is not None:
            continue
        seen.add(wait.execution)
        deaths = host.deaths(wait.execution)
        yield Due(wait.execution, wait.flow, wait.record["since"], "needs", deaths)
        if len(seen) == _MOST_OFFERED:
            return


def _waiting_for(host: Host, execution: str | None = None) -> Iterator[ListedWait]:
    """Yield the open waits for a worker that offers what this process does, oldest first."""
    wanted = WaitFilter(kinds=("worker",), execution=execution)
    for wait in every_item(lambda after: host.store.waits(wanted, after, 500)):
        if host.offers.issuperset(wait.record["needs"]):
            yield wait


def want(host: Host) -> None:
    """Ask other workers to leave executions to this one, whose offers the executions need.

    They do so when the attempts that run have ended. They are asked once in a while.
    """
    now, me = host.clock.now(), host.keeper.owner.id
    for wait in _waiting_for(host) if host.offers else ():
        if now - wait.record["since"] < PATIENCE:
            continue
        holder = host.holder(wait.execution)
        if holder is not None and holder.id != me:
            with suppress(Conflict):  # it has ended
                event = pack({"type": "wanted", "at": now, "by": me})
                host.store.send(wait.execution, event, now, f"{wait.id} {me} {now // PATIENCE}")


def quarantined(host: Host) -> list[Due]:
    """Return the quarantined executions, as `due`."""
    found = host.store.due(host.clock.now(), steady_now())
    return [entry for entry in found if entry.deaths >= TRIES]


# Lock cycles across executions that wait for each other's locks.
#
# Within an execution the kernel detects a cycle before it closes (`LockCycle`). Across executions
# each only has its own state, so a cycle is detected when a user asks why an execution makes no
# progress.


def circle(host: Host, execution: str, unit: int, lock: str) -> list[str]:
    """Return the executions that prevent a lock from ever becoming free for a waiting unit.

    Args:
        host: Provides the store.
        execution: Id of the waiting execution.
        unit: The waiting unit.
        lock: Name of the lock.

    Returns:
        Ids of the other executions, nearest first. Empty: the lock may become free.
    """
    found = _Circle(host, execution, unit)
    return list(found.others) if found.closes(lock) else []


class _Circle:
    def __init__(self, host: Host, execution: str, unit: int) -> None:
        self._host = host
        self._execution = execution
        self._views: dict[str, View] = {}
        self._mine = self._outer(execution, unit)
        self._seen: set[str] = set()
        self.others: dict[str, bool] = {}

    def closes(self, lock: str) -> bool:
        """Return whether all holders of a lock wait, directly or not, for the first unit."""
        if lock in self._seen or not self._mine:
            return False
        self._seen.add(lock)
        holders = [claim for claim in self._host.store.claims(lock) if claim.held]
        return bool(holders) and all(map(self._waits_for_mine, holders))

    def _waits_for_mine(self, holder: Claimed) -> bool:
        if holder.execution == self._execution and holder.unit in self._mine:
            return True
        if holder.execution != self._execution:
            self.others[holder.execution] = True
        waiting = self._view(holder.execution).state.get("claims", {})
        return any(
            holder.unit in self._outer(holder.execution, unit) and self.closes(lock)
            for unit, lock in waiting.items()
            if unit
        )

    def _outer(self, execution: str, unit: int) -> set[int]:
        """Return the enclosing units that hold locks shared between executions."""
        view = self._view(execution)
        act = view.act_of(view.state["units"][unit])
        return {
            outer["id"]
            for outer in view.enclosing(act)
            if outer.get("has_lock") and is_shared(outer["lock"])
        }

    def _view(self, execution: str) -> View:
        if execution not in self._views:
            stored = self._host.stored(execution, 0)
            self._views[execution] = View(stored.linked.graph, stored.state)
        return self._views[execution]
