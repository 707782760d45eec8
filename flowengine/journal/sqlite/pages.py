"""Pages of executions and waits.

A page is read in order from indexes that start with the filtered columns, from the end of the last
page, so its cost does not depend on the length of the list. Other filters are checked row by row.
"""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from flowengine.journal.filters import Place, may_answer, page_end, read_page_end, turn_of
from flowengine.journal.records import (
    ExecutionFilter,
    ExecutionRecordPage,
    ListedWait,
    StoredWaitPage,
    WaitFilter,
)
from flowengine.journal.sqlite import queries, search
from flowengine.journal.sqlite.appends import ANYONE
from flowengine.journal.sqlite.rows import JournalTexts, read_execution, read_wait

_PENDING = "waits.how IS NULL AND waits.decision IS NULL"
"""The same text as in the partial indexes, as required for SQLite to use them."""
_MOST = 2**31
"""Maximum number of rows on a page. SQLite accepts no larger numbers."""
_FIRST_SHARE = 100
"""Rows of an index in the first part of a list. Each further part has four times as many."""
_ROW_BY_ROW = 5_000
"""Executions whose texts are looked at before the index of words is."""
_FEW = 5_000
"""Executions that are sorted if a search for text finds no more."""
_OLDEST = (-(2**63), 0)


class _Lead(NamedTuple):
    """The table and index along which a list is read."""

    table: str
    age: str
    """The column that orders the list first."""
    key: str
    """The column that orders rows of the same age."""
    conditions: tuple[tuple[str, Any], ...] = ()
    """The first columns of its index, and further conditions. Conditions with None are ignored."""
    rest: str = ""
    """How the listed rows are joined, if the table only has their order."""


# -- executions


def executions(
    connection: sqlite3.Connection, filter: ExecutionFilter, after: str | None, limit: int
) -> ExecutionRecordPage:
    """Return a page of executions, newest first.

    If several indexes have a filtered column first, each part of the list is read along the one
    that has the fewest executions there.

    Args:
        connection: The connection to read from.
        filter: The filter.
        after: `next` of the page before.
        limit: Maximum number on a page.

    Returns:
        The page.
    """
    limit = min(limit, _MOST)
    of = filter.forked_from  # `forked_from` is `ID at STEP`
    forks = None if of is None else (f"{of} ", f"{of}!")
    conditions: list[tuple[str, Any]] = [
        ("executions.flow = ?", filter.flow),
        ("executions.status = ?", filter.status),
        ("executions.due <= ?", filter.due),
        ("executions.forked_from BETWEEN ? AND ?", forks),
        *(
            (
                "EXISTS (SELECT 1 FROM labels AS more WHERE more.execution = executions.number "
                "AND (more.name, more.value) = (?, ?))",
                label,
            )
            for label in filter.labels.items()
        ),
    ]
    place, share = None if after is None else read_page_end(after), _FIRST_SHARE
    part = _Part(filter.since, place, limit + 1)
    leads = _leads_of_executions(filter)
    if filter.search is not None:
        # Common words are found among the next executions, without a list of all that have them.
        row_by_row = search.row_by_row(filter.search)
        with search.Fts5():
            ended = _read_part(connection, leads, [*conditions, row_by_row], part, _ROW_BY_ROW)
        if not ended:
            if search.find(connection, filter.search) <= _FEW:
                leads = [_FOUND]
            conditions.append(("executions.number IN temp.found", ()))
    else:
        ended = False
    while not ended:
        ended = _read_part(connection, leads, conditions, part, share if len(leads) > 1 else None)
        share *= 4
    page = part.rows[:limit]
    more = page_end((page[-1][4], page[-1][-1])) if page and len(part.rows) > limit else None
    return ExecutionRecordPage([read_execution(row[:-1]) for row in page], more)


def _leads_of_executions(filter: ExecutionFilter) -> list[_Lead]:
    """Return the indexes to choose from."""
    if filter.due is not None:
        return [_lead_of("executions_by_due")]  # few are due at a time, and these are sorted
    if filter.forked_from is not None:
        return [_lead_of("executions_by_fork")]  # few are forks of the same execution
    leads = [
        _Lead(
            "labels",
            "labels.created_at",
            "labels.execution",
            (("(labels.name, labels.value) = (?, ?)", label),),
            "CROSS JOIN executions ON executions.number = labels.execution",
        )
        for label in filter.labels.items()
    ]
    own = {"executions.flow = ?": filter.flow, "executions.status = ?": filter.status}
    given = tuple((text, value) for text, value in own.items() if value is not None)
    if len(given) == 2:
        leads.append(_lead_of("executions_by_flow_and_status", given))
    elif filter.flow is not None:
        leads.append(_lead_of("executions_by_flow", given))
    elif filter.status is not None:
        leads.append(_lead_of("executions_by_status", given))
    return leads or [_lead_of("executions_by_age")]


def _lead_of(index: str, conditions: tuple[tuple[str, Any], ...] = ()) -> _Lead:
    table = f"executions INDEXED BY {index}"
    return _Lead(table, "executions.created_at", "executions.number", conditions)


_FOUND = _Lead(
    "temp.found CROSS JOIN executions ON executions.number = found.number",
    "executions.created_at",
    "executions.number",
)
"""The sorted results of a search."""


class _Part:
    """The part of a list that was read.

    Args:
        since: The earliest time in the list, if it has one.
        place: Where the list begins. None: at its beginning.
        most: Maximum number of rows.
    """

    def __init__(self, since: int | None, place: Place | None, most: int) -> None:
        self.since = since
        self.place = place
        self.most = most
        self.rows: list[Any] = []

    def conditions(self, lead: _Lead, end: Place | None = None) -> list[tuple[str, Any]]:
        """Return the conditions for the rows of an index that follow, up to a position."""
        place = f"({lead.age}, {lead.key})"
        return [
            (f"{lead.age} >= ?", self.since),
            (f"{place} < (?, ?)", self.place),
            (f"{place} >= (?, ?)", end),
        ]


def _read_part(
    connection: sqlite3.Connection,
    leads: Sequence[_Lead],
    conditions: Sequence[tuple[str, Any]],
    part: _Part,
    share: int | None,
) -> bool:
    """Read the rows that follow along the index that has the fewest there.

    Args:
        connection: The connection to read from.
        leads: The indexes. Each contains all rows of the list.
        conditions: The filter.
        part: The rows read before, to which these are added.
        share: How many rows of the index to look at. None: all.

    Returns:
        Whether the list ends, or has as many rows as wanted.
    """
    lead, end = leads[0], None
    if share is not None:
        ends = [_end_of_share(connection, lead, part, share) for lead in leads]
        lead, end = min(zip(leads, ends, strict=True), key=lambda pair: pair[1] or _OLDEST)
    where, values = _where(*lead.conditions, *part.conditions(lead, end), *conditions)
    part.rows += connection.execute(
        f"SELECT {queries.EXECUTION_COLUMNS}, executions.number FROM {lead.table} {lead.rest} "
        f"WHERE {where} ORDER BY {lead.age} DESC, {lead.key} DESC LIMIT ?",
        (*values, part.most - len(part.rows)),
    ).fetchall()
    part.place = end
    return end is None or len(part.rows) == part.most


def _end_of_share(
    connection: sqlite3.Connection, lead: _Lead, part: _Part, share: int
) -> Place | None:
    """Return the position of the last of the next rows of an index. None: there are no more."""
    where, values = _where(*lead.conditions, *part.conditions(lead))
    row: Place | None = connection.execute(
        f"SELECT {lead.age}, {lead.key} FROM {lead.table} WHERE {where} "
        f"ORDER BY {lead.age} DESC, {lead.key} DESC LIMIT 1 OFFSET ?",
        (*values, share),
    ).fetchone()
    return row


# -- waits


def waits(
    connection: sqlite3.Connection, filter: WaitFilter, after: str | None, limit: int
) -> StoredWaitPage:
    """Return a page of waits, oldest first. Closed ones only: newest first.

    Args:
        connection: The connection to read from.
        filter: The filter.
        after: `next` of the page before.
        limit: Maximum number on a page.

    Returns:
        The page.
    """
    place = None if after is None else read_page_end(after)
    streams = [
        _read_along(connection, lead, filter, place) for lead in _leads_of_waits(connection, filter)
    ]
    limit = min(limit, _MOST)
    found = list(islice(_merged(streams, filter), limit + 1))
    page = found[:limit]
    end = page_end(page[-1][0]) if page and len(found) > limit else None
    return StoredWaitPage([wait for _, wait in page], end)


def _leads_of_waits(connection: sqlite3.Connection, filter: WaitFilter) -> list[_Lead]:
    """Return the indexes to read, which together contain every wait that matches the filter."""
    if filter.execution is not None:
        own = (
            ("waits.execution = (SELECT number FROM executions WHERE id = ?)", filter.execution),
        )
        return [_Lead("waits INDEXED BY waits_by_execution", "waits.since", "waits.number", own)]
    leads = []
    for kind in filter.kinds or _all_kinds(connection):
        if filter.state != "pending":
            leads.append(_lead_along("waits_closed", kind, f"NOT ({_PENDING})"))
        if filter.state == "closed":
            continue
        if filter.batch is not None:
            leads.append(_lead_along("waits_pending_by_batch", kind, _PENDING))
        elif filter.assignees is not None:
            leads += [_lead_to(assignee, kind) for assignee in {*filter.assignees, ANYONE}]
        elif filter.flow is not None:
            index = "waits_pending_by_flow_in_turn" if filter.in_turn else "waits_pending_by_flow"
            leads.append(_lead_along(index, kind, _PENDING))
        else:
            index = "waits_pending_in_turn" if filter.in_turn else "waits_pending"
            leads.append(_lead_along(index, kind, _PENDING))
    return leads


def _lead_along(index: str, kind: str, state: str) -> _Lead:
    """Return the index of the waits of one kind."""
    return _Lead(
        f"waits INDEXED BY {index}",
        "waits.since",
        "waits.number",
        ((f"{state} AND waits.kind = ?", kind),),
    )


def _lead_to(assignee: str, kind: str) -> _Lead:
    """Return the index of the pending waits that an assignee may answer."""
    return _Lead(
        "assignees CROSS JOIN waits ON waits.number = assignees.wait",
        "assignees.since",
        "assignees.wait",
        (("(assignees.assignee, assignees.kind) = (?, ?)", (assignee, kind)),),
    )


def _all_kinds(connection: sqlite3.Connection) -> list[str]:
    """Return the existing kinds of waits, with one index lookup for each."""
    kinds: set[str] = set()
    for index, state in (("waits_pending", _PENDING), ("waits_closed", f"NOT ({_PENDING})")):
        kind = ""
        query = f"SELECT min(kind) FROM waits INDEXED BY {index} WHERE {state} AND kind > ?"
        while kind := connection.execute(query, (kind,)).fetchone()[0]:
            kinds.add(kind)
    return sorted(kinds)


_Placed = tuple[Place, ListedWait]
"""A wait, preceded by its position in the list."""


def _read_along(
    connection: sqlite3.Connection, lead: _Lead, filter: WaitFilter, place: Place | None
) -> Iterator[_Placed]:
    """Yield the waits along one index, in order, reading lazily."""
    order = lead.age.replace("since", "turn") if filter.in_turn else lead.age
    follows, way = ("<", " DESC") if filter.state == "closed" else (">", "")
    where, values = _where(
        *lead.conditions,
        ("waits.flow = ?", filter.flow),
        ("waits.batch = ?", filter.batch),
        (f"{lead.age} >= ?", filter.since),
        (f"{lead.age} <= ?", filter.before),
        (f"({order}, {lead.key}) {follows} (?, ?)", place),
    )
    if filter.execution is not None:
        where += {
            "pending": f" AND {_PENDING}",
            "closed": f" AND NOT ({_PENDING})",
            "all": "",
        }[filter.state]
        if filter.kinds:
            where += f" AND waits.kind IN ({', '.join('?' * len(filter.kinds))})"
            values += filter.kinds
    rows = connection.execute(
        f"SELECT {queries.WAIT_COLUMNS} FROM {lead.table} "
        f"CROSS JOIN executions ON executions.number = waits.execution "
        f"WHERE {where} ORDER BY {order}{way}, {lead.key}{way}",
        values,
    )
    for row in rows:
        *columns, _, execution, number, since = row
        texts = JournalTexts(connection, execution, f"wait {row[0]}")
        wait = read_wait([*columns, None], [], texts.whole)
        yield (turn_of(wait.record) if filter.in_turn else since, number), wait


def _merged(streams: Sequence[Iterator[_Placed]], filter: WaitFilter) -> Iterator[_Placed]:
    """Yield the waits of all streams in order, each once, if an assignee may answer it."""
    last = None
    newest_first = filter.state == "closed"
    for place, wait in heapq.merge(*streams, key=lambda placed: placed[0], reverse=newest_first):
        if place != last and may_answer(wait, filter.assignees):
            yield place, wait
        last = place


# -- shared


def _where(*conditions: tuple[str, Any]) -> tuple[str, list[Any]]:
    """Return a WHERE clause and its values, without the conditions whose value is None."""
    texts = ["1"]
    values: list[Any] = []
    for text, value in conditions:
        if value is not None:
            texts.append(text)
            values += value if isinstance(value, tuple) else (value,)
    return " AND ".join(texts), values
