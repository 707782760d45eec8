"""Which executions can move now: what is due, what has arrived, what a dead process left behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from flowengine.journal.records import ENDED, ExecutionFilter

if TYPE_CHECKING:
    from flowengine.engines.host import Host

_PAGE = 200


def due(host: Host) -> list[str]:
    """Return the full ids of the executions that can move and that no living process holds.

    A timer of theirs is due, a message or a decision has arrived that is not journaled yet, or the
    process that ran them died.

    Returns:
        The ids, of each of these three the oldest execution first.
    """
    store = host.store
    found = dict.fromkeys(_found(host, ExecutionFilter(due=host.clock.now())))
    for message in store.arrived(0):
        if store.execution(message.execution).status not in ENDED:
            found[message.execution] = None
    found |= dict.fromkeys(_found(host, ExecutionFilter(status="running")))
    return [id for id in found if host.holder(id) is None]


def _found(host: Host, wanted: ExecutionFilter) -> Iterator[str]:
    """Yield the executions that a filter finds, oldest first."""
    ids: list[str] = []
    after = None
    while True:
        page = host.store.executions(wanted, after, _PAGE)
        ids += [record.id for record in page.items]
        after = page.next
        if after is None:
            return (yield from reversed(ids))
