"""Lists of executions and waits, read from Temporal's index of workflows without a worker.

The index lags behind by some milliseconds, or by seconds in a large cluster. It is used for lists
and to find ids, never for a decision.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import (
    AddSearchAttributesRequest,
    ListSearchAttributesRequest,
)
from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError, RPCStatusCode

from flowengine.engines.memory.records import created_record
from flowengine.engines.temporal.connection import PATIENCE, TemporalConnection
from flowengine.engines.temporal.requests import MOVED, SHARED, WORKFLOW
from flowengine.engines.temporal.support import unsupported
from flowengine.errors import NotFound, StoreError, UsageError
from flowengine.journal.encoding import pack
from flowengine.journal.filters import fits_execution, fits_wait, page_end, read_page_end, turn_of
from flowengine.journal.records import (
    ENDED,
    ExecutionFilter,
    ExecutionRecord,
    ExecutionRecordPage,
    ListedWait,
    NewExecution,
    StoredWaitPage,
    WaitFilter,
)
from flowengine.journal.records import OPEN as OPEN_STATUSES
from flowengine.kernel.notation.addresses import wait_id
from flowengine.sdk.texts.sizes import size_text

STATUS = SearchAttributeKey.for_keyword("FlowengineStatus")
"""The status of an execution. Absent until it first stops running."""
WAITS = SearchAttributeKey.for_keyword_list("FlowengineWaits")
"""The ids of the newest waits of an execution, their prefixes, and the kinds of its open waits."""
FLOW = SearchAttributeKey.for_keyword("FlowengineFlow")
"""The id of the flow."""
LABELS = SearchAttributeKey.for_keyword_list("FlowengineLabels")
"""Digests of its labels, and of the execution that it was forked from."""
CREATED = SearchAttributeKey.for_datetime("FlowengineCreated")
"""When it was created. Workflows that are continued in another run have another time of start."""
SHORT_WAIT = 8
"""Digits of a wait's id by which it is found."""
WAITS_KEPT = 60
"""Number of waits of an execution that are found by their ids. A search attribute is limited to
2,048 bytes."""
OPEN = "open"
"""Part of `WAITS` of an execution with open waits. `open:KIND` means a wait of a kind."""
OLDER = "older"
"""Part of `WAITS` of an execution that has had other waits, whose ids only it knows."""

NEW = "new"
"""Memo: the entry of the new execution, see `NewExecution`."""
HEAD = "head"
"""Memo: status, time of its last change, when the next timer is due, and the failure."""
HELD = "held"
"""Memo: whether the execution is not driven yet, because it is being moved here."""
OPEN_WAITS = "waits"
"""Memo: records of the open waits. Absent if they are too large: the execution is then asked."""
MOST_MEMO_BYTES = 38_000
"""Maximum bytes of a memo. A server may refuse more than 40 KiB, and Temporal Cloud does."""

MOST_LABELS = 100
"""Labels of an execution, whose digests are a search attribute."""

_KINDS: dict[SearchAttributeKey[Any], Any] = {
    STATUS: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    WAITS: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST,
    CREATED: IndexedValueType.INDEXED_VALUE_TYPE_DATETIME,
    FLOW: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    LABELS: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST,
}


def wait_values(ids: Sequence[str], kinds: Iterable[str]) -> list[str]:
    """Return the value of `WAITS`.

    Args:
        ids: Ids of waits, open or closed, the newest last.
        kinds: Kinds of the open waits.
    """
    values = [part for id in ids[-WAITS_KEPT:] for part in (id, id[:SHORT_WAIT])]
    values += [OLDER] * (len(ids) > WAITS_KEPT)
    listed = sorted(set(kinds))
    return values + [OPEN] * bool(listed) + [f"{OPEN}:{kind}" for kind in listed]


Place = tuple[int, str]
"""The position of a wait in a list of several executions: its age or turn, then its id."""


def placed(
    waits: Iterable[ListedWait], filter: WaitFilter, after: Place
) -> list[tuple[Place, ListedWait]]:
    """Return the waits that match a filter and follow a place, in order, with their places."""
    rows = [
        ((turn_of(wait.record) if filter.in_turn else wait.record["since"], wait.id), wait)
        for wait in waits
        if fits_wait(wait, filter)
    ]
    return sorted((row for row in rows if row[0] > after), key=lambda row: row[0])


def label_digests(labels: Mapping[str, str], forked_from: str | None) -> list[str]:
    """Return the value of `LABELS`: labels can contain personal data, so only their digests."""
    digests = [label_digest(name, value) for name, value in labels.items()]
    return digests if forked_from is None else [*digests, fork_digest(forked_from)]


def check_listed(new: NewExecution) -> None:
    """Check that an execution fits into the index of workflows.

    Raises:
        UsageError: Its labels do not.
    """
    count, size = len(new.labels), len(pack([*new]))
    if count > MOST_LABELS or size > MOST_MEMO_BYTES:
        raise UsageError(
            f"the execution has {count} labels, and its entry in lists {size_text(size)}; at most "
            f"{MOST_LABELS} and {size_text(MOST_MEMO_BYTES)} are possible in Temporal"
        )


def label_digest(name: str, value: str) -> str:
    return sha256(f"{name}={value}".encode()).hexdigest()[:16]


def fork_digest(forked_from: str) -> str:
    """Return the digest of the execution that another was forked from.

    Args:
        forked_from: Its id, followed by a blank and more text or not.
    """
    return sha256(f"fork {forked_from.partition(' ')[0]}".encode()).hexdigest()[:16]


async def is_unused(client: Client, error: RPCError) -> bool:
    """Return whether a namespace has refused a query because no worker has ever run in it.

    Nothing is in its index then. If only some attributes are missing, it is not up to date.

    Args:
        client: Of the namespace.
        error: Its refusal.
    """
    if error.status != RPCStatusCode.INVALID_ARGUMENT or "search attribute" not in error.message:
        return False
    there = await client.operator_service.list_search_attributes(
        ListSearchAttributesRequest(namespace=client.namespace)
    )
    return not any(key.name in there.custom_attributes for key in _KINDS)


async def register(client: Client) -> None:
    """Add the missing search attributes to the namespace.

    Raises:
        StoreError: The user is not permitted to do so.
    """
    operator, namespace = client.operator_service, client.namespace
    try:
        there = await operator.list_search_attributes(
            ListSearchAttributesRequest(namespace=namespace)
        )
        new = {
            key.name: kind
            for key, kind in _KINDS.items()
            if key.name not in there.custom_attributes
        }
        if new:
            request = AddSearchAttributesRequest(namespace=namespace, search_attributes=new)
            await operator.add_search_attributes(request)
    except RPCError as error:
        names = " ".join(f"--name {key.name} --type {_type(kind)}" for key, kind in _KINDS.items())
        raise StoreError(
            f"search attributes cannot be added to namespace {namespace}: {error.message}",
            hint="have its operator add them: temporal operator search-attribute create "
            f"--namespace {namespace} {names}",
        ) from error


def _type(kind: Any) -> str:
    name = IndexedValueType.Name(kind).removeprefix("INDEXED_VALUE_TYPE_")
    return name.title().replace("_", "")


_SOME = 20
"""Number of ids to read when looking up a prefix."""
_IDS = 100
"""Number of ids in one query."""
_OPEN = (None, None, None)
"""The last fields of an open wait: how and when it was closed, and its result."""
_RUNNING = f"WorkflowType = '{WORKFLOW}' AND ExecutionStatus = 'Running'"
_MOST = 500
"""Executions to read at once for a page of a list."""
_FIRST_SPAN = timedelta(hours=1)
_SHORTEST_SPAN = timedelta(seconds=1)
_LONGEST_SPAN = timedelta(days=40 * 365)
_EARLIEST = datetime(2015, 1, 1, tzinfo=UTC)
_LOOKS = 4
_LOOK_SECONDS = 0.1
"""How often, and after which delay, the index is read again for an id that it does not contain."""
_ID_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")


class Listing:
    """Reads the index of one namespace.

    Args:
        connection: The connection to it.
        ask: Calls a read-only method of an execution's store, by its id, name and arguments.
    """

    def __init__(
        self,
        connection: TemporalConnection,
        ask: Callable[[str, str, Sequence[Any]], Awaitable[Any]],
    ) -> None:
        self._connection = connection
        self._ask = ask

    # -- executions

    async def executions(
        self, filter: ExecutionFilter, after: str | None, limit: int
    ) -> ExecutionRecordPage:
        """Return a page of executions, newest first.

        The index is not sorted by time of creation, so it is read in spans of time, from the end. A
        span that contains few executions is followed by a longer one.
        """
        if filter.due is not None:
            return ExecutionRecordPage([], None)  # workers fire timers, without being resumed
        place = None if after is None else read_page_end(after)
        end = datetime.now(UTC) + timedelta(hours=1) if place is None else _time(-place[0])
        condition, span = _condition(filter), _FIRST_SPAN
        left = await self._count(f"{condition} AND {CREATED.name} <= '{_text(end)}'")
        records: list[tuple[tuple[int, int], ExecutionRecord]] = []
        while left > 0 and len(records) <= limit:
            start = end - (span if left > _MOST else _LONGEST_SPAN)
            query = f"{condition} AND {CREATED.name} > '{_text(start)}'"
            query += f" AND {CREATED.name} <= '{_text(end)}'"
            if left > _MOST and span > _SHORTEST_SPAN and await self._count(query) > _MOST:
                span /= 8
                continue
            rows = [row async for row in self._rows(query)]
            newest = {row.id: row for row in sorted(rows, key=lambda row: row.start_time)}
            several = await self._with_several_runs([*newest.values()])
            placed = [
                (_place(row), record)
                for row in newest.values()
                if (record := await self._newest(row, several))
            ]
            fitting = [pair for pair in placed if fits_execution(pair[1], filter)]
            fitting = [pair for pair in fitting if place is None or pair[0] > place]
            records += sorted(fitting, key=lambda pair: pair[0])
            left, end, span = left - len(rows), start, span * 8
            if end < _EARLIEST:
                break
        page = records[:limit]
        more = page_end(page[-1][0]) if page and len(records) > limit else None
        return ExecutionRecordPage([record for _, record in page], more)

    async def counts(self, flows: Sequence[str] | None) -> dict[str, int]:
        """Return how many executions have each status, of all flows or some."""
        counts = {}
        for status in (*OPEN_STATUSES, *ENDED):
            condition = _condition(ExecutionFilter(status=status))
            if status in OPEN_STATUSES:
                condition += " AND ExecutionStatus = 'Running'"
            if flows is not None:
                condition += f" AND {FLOW.name} IN ({', '.join(map(_quoted, flows))})"
            counts[status] = 0 if flows == [] else await self._count(condition)
        return counts

    async def ids(self, beginning: str) -> list[str]:
        """Return some ids of executions with a prefix."""
        if not beginning or set(beginning) - _ID_CHARACTERS:
            return []
        condition = f"WorkflowType = '{WORKFLOW}' AND WorkflowId STARTS_WITH '{beginning}'"
        return sorted({row.id async for row in self._rows(condition, _SOME) if not is_moved(row)})

    async def shared(self, prefix: str) -> list[str]:
        """Return the ids of workflows of what executions share, by a prefix."""
        condition = f"WorkflowType = '{SHARED}' AND WorkflowId STARTS_WITH '{prefix}'"
        return sorted(
            [row.id async for row in self._rows(f"{condition} AND ExecutionStatus = 'Running'")]
        )

    async def ended(self, before: int, statuses: Sequence[str]) -> list[str]:
        """Return the ids of executions that ended with one of some statuses, by a time (ms)."""
        condition = f"WorkflowType = '{WORKFLOW}' AND CloseTime <= '{_text(_time(before))}'"
        condition += " AND ExecutionStatus NOT IN ('Running', 'ContinuedAsNew')"
        ids, rows = [], [row async for row in self._rows(condition)]
        several = await self._with_several_runs(rows)
        for row in rows:
            record = await self._newest(row, several)
            if record is None or record.status not in statuses or record.ended_at is None:
                continue
            if record.ended_at <= before:
                ids.append(row.id)
        return ids

    async def held(self, source: str) -> list[str]:
        """Return the ids of executions that are being moved here from a store."""
        condition = f"WorkflowType = '{WORKFLOW}' AND ExecutionStatus = 'Running'"
        rows = self._rows(f"{condition} AND {STATUS.name} IS NULL")
        return [row.id async for row in rows if (await row.memo()).get(HELD) == source]

    async def runs(self, id: str) -> list[str]:
        """Return the ids of the runs of a workflow, oldest first."""
        rows = [row async for row in self._rows(f"WorkflowId = {_quoted(id)}")]
        return [row.run_id for row in sorted(rows, key=lambda row: row.start_time)]

    # -- waits

    async def waits(self, filter: WaitFilter, after: str | None, limit: int) -> StoredWaitPage:
        """Return a page of the open waits of all executions, oldest first.

        The cost grows with the number of executions with such waits.
        """
        if filter.state != "pending":
            raise unsupported("lists of closed waits of several executions")
        kinds = filter.kinds or [""]
        listed = ", ".join(f"'{OPEN}{kind and ':'}{kind}'" for kind in kinds)
        condition = f"{_RUNNING} AND {WAITS.name} IN ({listed})"
        if filter.flow is not None:
            condition += f" AND {FLOW.name} = {_quoted(filter.flow)}"
        place = (0, "") if after is None else _read_wait_end(after)
        rows: list[tuple[Place, ListedWait]] = []
        async for row in self._rows(condition):
            rows += await self._open_waits(row, filter, place, limit + 1)
        rows.sort(key=lambda pair: pair[0])
        page = rows[:limit]
        more = f"{page[-1][0][0]}.{page[-1][0][1]}" if page and len(rows) > limit else None
        return StoredWaitPage([wait for _, wait in page], more)

    async def found_waits(self, beginning: str) -> list[tuple[str, str]]:
        """Return the waits whose ids have a prefix, each with its execution.

        Waits of open executions, and the newest of those that have ended.

        Raises:
            UsageError: The prefix is too short.
        """
        if len(beginning) < SHORT_WAIT:
            raise UsageError(
                f"{beginning!r} is too short to find a wait in {self._connection.location}",
                hint=f"use at least {SHORT_WAIT} digits",
            )
        if set(beginning) - set("0123456789abcdef"):
            return []
        for look in range(_LOOKS):
            if look:
                await asyncio.sleep(_LOOK_SECONDS)  # the index may lag behind
            values = await self.newest_waits(beginning) or (
                not look and await self._older(beginning)
            )
            if values:
                return sorted(values)
        return []

    async def newest_waits(self, beginning: str) -> set[tuple[str, str]]:
        """Return the waits with a prefix whose ids are in the index, each with its execution."""
        condition = f"WorkflowType = '{WORKFLOW}' AND {WAITS.name} = '{beginning[:SHORT_WAIT]}'"
        return {
            (id, row.id)
            async for row in self._rows(condition, _SOME)
            for id in row.typed_search_attributes.get(WAITS, [])
            if len(id) > SHORT_WAIT and id.startswith(beginning)
        }

    async def _older(self, beginning: str) -> set[tuple[str, str]]:
        """Return the wait with a prefix of an execution with more waits than are in the index."""
        async for row in self._rows(f"{_RUNNING} AND {WAITS.name} = '{OLDER}'"):
            with suppress(NotFound):
                return {(await self._ask(row.id, "find_wait", [beginning]), row.id)}
        return set()

    # -- internals

    async def _with_several_runs(self, rows: Sequence[WorkflowExecution]) -> set[str]:
        """Return the ids of the workflows that have succeeded and have other runs.

        *Reset* of Temporal has made these.
        """
        found: Counter[str] = Counter()
        ids = sorted({row.id for row in rows if row.status == WorkflowExecutionStatus.COMPLETED})
        for at in range(0, len(ids), _IDS):
            part = ids[at : at + _IDS]
            query = f"WorkflowId IN ({', '.join(map(_quoted, part))})"
            query += " AND ExecutionStatus != 'ContinuedAsNew'"
            if await self._count(query) > len(part):
                found.update([row.id async for row in self._rows(query)])
        return {id for id, runs in found.items() if runs > 1}

    async def _newest(self, row: WorkflowExecution, several: Set[str]) -> ExecutionRecord | None:
        """Return the entry of a workflow in lists. None: it has a newer run, or is gone.

        One that has failed may have been retried, and *Reset* of Temporal terminates the run before
        if it is open.

        Args:
            row: The workflow.
            several: See `_with_several_runs`.
        """
        closed = (WorkflowExecutionStatus.FAILED, WorkflowExecutionStatus.TERMINATED)
        if row.status in closed or row.id in several:
            handle = await self._connection.handle(row.id)
            try:
                newest = await handle.describe(rpc_timeout=PATIENCE)
            except RPCError as error:
                if error.status != RPCStatusCode.NOT_FOUND:
                    raise
                return None  # pruned
            if newest.run_id != row.run_id:
                return None
        try:
            return await record_of(row)
        except StoreError:
            return None if is_moved(row) else _unreadable(row)

    async def _open_waits(
        self, row: WorkflowExecution, filter: WaitFilter, place: Place, most: int
    ) -> list[tuple[Place, ListedWait]]:
        """Return the first open waits of an execution after a place, from its memo or from itself.

        Raises:
            StoreError: They are not part of the memo, and no worker answers.
        """
        try:
            memo = await row.memo()
        except StoreError:  # it is in the list of executions, and the others' waits must be listed
            return []
        if NEW not in memo:
            return []
        if OPEN_WAITS in memo:
            flow = memo[NEW].flow
            waits = [
                ListedWait(wait_id(row.id, number), row.id, flow, number, record, None, [], *_OPEN)
                for record in memo[OPEN_WAITS]
                for number in [record["id"]]
            ]
            return placed(waits, filter, place)
        found: list[tuple[Place, ListedWait]] = []
        with suppress(NotFound):  # it was moved or deleted meanwhile
            while len(found) < most:
                waits = await self._ask(row.id, "open_waits", [filter, place, most - len(found)])
                if not waits:
                    break
                found += placed(waits, filter, place)
                place = found[-1][0]
        return found

    async def _count(self, query: str) -> int:
        client = await self._connection.client()
        try:
            return (await client.count_workflows(query, rpc_timeout=PATIENCE)).count
        except RPCError as error:
            if not await is_unused(client, error):
                raise
            return 0

    async def _rows(self, query: str, limit: int | None = None) -> AsyncIterator[WorkflowExecution]:
        client = await self._connection.client()
        try:
            async for row in client.list_workflows(query, limit=limit, rpc_timeout=PATIENCE):
                yield row
        except RPCError as error:
            if not await is_unused(client, error):
                raise


def is_moved(row: WorkflowExecution) -> bool:
    """Return whether the execution of a workflow was moved to another store."""
    return row.typed_search_attributes.get(STATUS) == MOVED


async def record_of(row: WorkflowExecution) -> ExecutionRecord | None:
    """Return the entry of a workflow in lists, from its memo. `outputs` and `error` are None.

    None: the workflow was not started by this project, or moved to another store.
    """
    memo = await row.memo()
    if NEW not in memo or is_moved(row):
        return None
    new = memo[NEW]
    status, changed, due, failure = memo.get(HEAD, ["running", new.created_at, None, None])
    if row.status != WorkflowExecutionStatus.RUNNING and status not in ENDED:
        status, due = "failed", None  # ended in Temporal
        changed = _milliseconds(row.close_time or row.start_time)
    ended = changed if status in ENDED else None
    return created_record(row.id, new, status, changed, due, ended, failure)


def _unreadable(row: WorkflowExecution) -> ExecutionRecord:
    """Return the entry of a workflow whose data this process cannot read, by its attributes.

    The key of its payloads may be gone, or its object. It must not hide the other executions.
    """
    attributes = row.typed_search_attributes
    status = attributes.get(STATUS, "running")
    closed = None if row.close_time is None else _milliseconds(row.close_time)
    if closed is not None and status not in ENDED:
        status = "failed"  # ended in Temporal
    created = _milliseconds(attributes.get(CREATED, row.start_time))
    changed = created if closed is None else closed
    new = NewExecution(attributes.get(FLOW, ""), None, "", created)
    return created_record(row.id, new, status, changed, None, closed)


def _condition(filter: ExecutionFilter) -> str:
    """Return the query for the executions that a filter matches, and perhaps others."""
    return " AND ".join(_conditions(filter))


def _conditions(filter: ExecutionFilter) -> Iterator[str]:
    yield f"WorkflowType = '{WORKFLOW}' AND ExecutionStatus != 'ContinuedAsNew'"
    if filter.flow is not None:
        yield f"{FLOW.name} = {_quoted(filter.flow)}"
    if filter.status == "running":
        yield "ExecutionStatus = 'Running'"
        yield f"({STATUS.name} IS NULL OR {STATUS.name} = 'running')"
    elif filter.status == "failed":
        yield "ExecutionStatus IN ('Failed', 'Terminated', 'TimedOut', 'Canceled')"
    elif filter.status is not None:
        yield f"{STATUS.name} = {_quoted(filter.status)}"
    if filter.since is not None:
        yield f"{CREATED.name} >= '{_text(_time(filter.since - 1))}'"
    for name, value in filter.labels.items():
        yield f"{LABELS.name} = '{label_digest(name, value)}'"
    if filter.forked_from is not None:
        yield f"{LABELS.name} = '{fork_digest(filter.forked_from)}'"


def _quoted(text: str) -> str:
    """Return text as a constant of a query. Names of flows and statuses need no escaping."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _place(row: WorkflowExecution) -> tuple[int, int]:
    """Return the position of a workflow in a list, newest first."""
    created = row.typed_search_attributes.get(CREATED, row.start_time)
    return -_milliseconds(created), int.from_bytes(row.id.encode()[-6:], "big")


def _read_wait_end(after: str) -> tuple[int, str]:
    since, _, id = after.partition(".")
    if not since.isdigit():
        read_page_end("")  # raises the error
    return int(since), id


def _milliseconds(time: datetime) -> int:
    return int(time.timestamp() * 1000)


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp((milliseconds + 1) / 1000, UTC)


def _text(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
