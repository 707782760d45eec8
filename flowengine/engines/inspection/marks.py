"""The events that an execution is remembered by: failures, decisions, interventions."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice

from flowengine.engines.executions.step_rows import notes_of
from flowengine.engines.inspection.steps import Steps
from flowengine.engines.step_queries import noted
from flowengine.journal.encoding import unpack
from flowengine.kernel.notation.times import format_time

_TYPES = frozenset({"failed", "lost", "decided", "message", "cancel", "retry", "upgraded", "state"})
_AT_ONCE = 200


def marks(shown: Steps, waits: Collection[tuple[str, str]]) -> Iterator[tuple[int, str, str]]:
    """Yield number, type and address of events, in order.

    Args:
        shown: The execution.
        waits: Address and beginning of waits, whose first events are yielded, too.
    """
    waiting, failed, about = {*waits}, dict[int | None, str](), dict[int, str]()
    asking = {address for address, _ in waits}
    for row in noted(shown.table, [*asking]):
        log = row.ended_by if row.began is not None else None
        about |= dict.fromkeys({*notes_of(row)} - {log}, row.address)
        events = (row.since, row.began_by, row.ended_by) if row.address in asking else ()
        error = None if row.error is None else unpack(row.error)
        if (
            error is not None
            and error.get("step", row.address) == row.address  # not of one inside it
            and row.status not in ("cancelled", "skipped")
        ):
            failed.setdefault(row.ended_by, row.address)
            events = (*events, row.ended_by)
        for number in events:
            if number is not None:
                about.setdefault(number, row.address)
    numbers = iter(sorted(about))
    while some := [*islice(numbers, _AT_ONCE)]:
        shown.read(some)
        for number in some:
            event, address = shown.events[number], about[number]
            asked = address, format_time(event["at"])
            if event["type"] in _TYPES:
                yield number, event["type"], address
            elif number in failed:
                yield number, "failed", failed[number]
            elif asked in waiting:
                waiting.remove(asked)
                yield number, "waiting", address
