"""The store in Temporal, which forwards operations on an execution to its workflow.

Queries of open executions, and updates, need a worker. Starting an execution, sending it a signal,
lists, and reading an execution that has ended do not.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import (
    WithStartWorkflowOperation,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import (
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from flowengine.engines.executions.parts import claims_in
from flowengine.engines.executions.step_rows import REWRITES
from flowengine.engines.temporal.connection import PATIENCE, Address, TemporalConnection
from flowengine.engines.temporal.heartbeat import configured_heartbeat, task_time
from flowengine.engines.temporal.keys import keys
from flowengine.engines.temporal.listing import (
    CREATED,
    FLOW,
    HEAD,
    HELD,
    LABELS,
    NEW,
    SHORT_WAIT,
    STATUS,
    Listing,
    check_listed,
    is_moved,
    label_digests,
    record_of,
    register,
)
from flowengine.engines.temporal.objects import (
    VARIABLE,
    LocalCopies,
    Objects,
    ObjectWorkspaces,
    objects,
)
from flowengine.engines.temporal.past import (
    Histories,
    first_input,
    newest_task_failure,
    replayed,
)
from flowengine.engines.temporal.payloads import ByReference, Codec, PayloadPage, packed
from flowengine.engines.temporal.requests import (
    MOST_BYTES,
    MOST_BYTES_BY_REFERENCE,
    QUEUE,
    REFUSED,
    RESTING,
    SHARED,
    WORKFLOW,
)
from flowengine.engines.temporal.room import LARGEST_START
from flowengine.engines.temporal.shared import (
    BUDGETS,
    GRANTS,
    STARTS,
    form_workflow,
    forwarded_id,
    key_workflow,
    lock_workflow,
)
from flowengine.engines.temporal.support import (
    check_started,
    check_supported,
    unsupported,
)
from flowengine.engines.temporal.workflow import WorkflowDriver, answered
from flowengine.errors import Conflict, Hint, NotFound, NoWorker, StoreError, UsageError
from flowengine.journal.artifacts import not_referred
from flowengine.journal.encoding import pack, unpack
from flowengine.journal.records import (
    ENDED,
    Append,
    Artifact,
    Beginning,
    Claimed,
    Deployed,
    Due,
    ExecutionFilter,
    ExecutionHead,
    ExecutionRecord,
    ExecutionRecordPage,
    FlowGrant,
    InboxMessage,
    JournalEntry,
    ListedWait,
    Loaded,
    LockOperation,
    OfFlows,
    Outgoing,
    Owner,
    Pruned,
    Scheduled,
    SendResult,
    SignalStart,
    StoredWaitPage,
    UsedBudget,
    Vote,
    WaitFilter,
    new_of,
)
from flowengine.journal.refusals import (
    check_movable,
    check_statuses,
    ended,
    no_execution,
    no_wait,
    not_free,
)
from flowengine.journal.short_ids import EXECUTION, SHORT_EXECUTION, WAIT, shortest, the_one
from flowengine.journal.store import Durability, ExecutionCopy, MovedWorkspace
from flowengine.kernel.graph.specs import CompiledFlow
from flowengine.kernel.waiting.approvals import EVENTS as HANDS
from flowengine.sdk.texts.sizes import size_text
from flowengine.sdk.texts.visible_text import one_line

_SOON = timedelta(seconds=2)
"""How long to wait for the answer whether a signal was sent before."""
_LONGEST_MOVE = timedelta(hours=6)
"""Maximum time in which a worker packs files of environments."""
TRIES = 4
"""Tries of a workflow task before it counts as an error. The second try may follow the death of a
worker."""
_TIMED_OUT_TRIES = 10
"""The same for one that times out, as with a long history on a busy machine."""
_REGISTERED_SECONDS = 0.5
"""How long a new search attribute may take to be usable."""
_OF_NEW: dict[str, Any] = {"events": [0, [], False], "waits": [[], None]}
"""Answers for an execution that no worker has begun."""
_MOST_NOTED = 1000
"""Number of executions whose messages are noted."""
_STOPPED = (
    WorkflowExecutionStatus.CANCELED,
    WorkflowExecutionStatus.FAILED,
    WorkflowExecutionStatus.TERMINATED,
    WorkflowExecutionStatus.TIMED_OUT,
)
"""Ends of a workflow before that of its execution, or after a failure of that."""
_ALL_EXECUTIONS, _ALL_WAITS = ExecutionFilter(), WaitFilter()


class TemporalStore:
    """Executions in a namespace of Temporal. See `flowengine.journal.store`.

    Args:
        address: The address of the namespace. The connection is opened on first use.

    Operations that it does not support yet raise a `UsageError`.
    """

    def __init__(self, address: Address) -> None:
        self.objects = objects()
        self.heartbeat = configured_heartbeat()
        """Seconds without a heartbeat after which its workers count as lost."""
        self.sent_at: dict[str, int] = {}
        """Execution → the time of the first message that this store has sent it since it was
        driven here (ms)."""
        self._connection = TemporalConnection(address, self.objects)
        self._call = self._connection.call
        self._listing = Listing(self._connection, self._read_async)
        self._past = Histories()
        self._ends: dict[str, asyncio.Task[Any]] = {}
        """Execution → waits for the end of its workflow."""
        self._flows: dict[str, bytes] = {}
        self._copies = LocalCopies()
        self._of_hash: dict[str, str] = {}
        """Hash of a flow → an execution that runs it."""

    @property
    def most_bytes(self) -> int:
        """Maximum bytes of one value."""
        return MOST_BYTES if self.objects is None else MOST_BYTES_BY_REFERENCE

    @property
    def durability(self) -> Durability:
        return "power"

    @property
    def location(self) -> str:
        return self._connection.location

    @property
    def folder(self) -> None:
        return None

    @cached_property
    def payloads(self) -> PayloadPage:
        """Decodes and encodes payloads of this namespace for pages."""
        return PayloadPage(Codec(self.objects, keys()), self._call)

    # -- flows

    def put_flow(self, hash: str, compiled: bytes) -> None:
        self._flows[hash] = compiled

    def get_flow(self, hash: str) -> bytes:
        if hash not in self._flows:
            flow = None
            if hash in self._of_hash:
                start = self._call(self._first_input(self._of_hash[hash]))
                form = {start["new"].hash: start["flow"], **start.get("flows", {})}.get(hash)
                flow = None if form is None else pack(form)
            flow = flow or self._shared(form_workflow(hash), "form", "")
            flow = flow or self._upgraded_flow(hash)
            if flow is None:
                raise NotFound(f"flow {hash} does not exist in {self.location}")
            self._flows[hash] = flow
        return self._flows[hash]

    def form_of(self, execution: str, hash: str) -> Any:
        """Return a form of an execution's flow."""
        return unpack(self._read(execution, "get_flow", hash))

    def _upgraded_flow(self, hash: str) -> bytes | None:
        """Return a form of the flow of an execution that was read here, or None."""
        for id in dict.fromkeys(reversed(self._of_hash.values())):
            with suppress(NotFound):
                packed: bytes = self._read(id, "get_flow", hash)
                return packed
        return None

    def remember_source(
        self, key: str, hash: str, sources: Sequence[tuple[str, str]], extra: bytes = b""
    ) -> None:
        """Do nothing. Avoiding a compilation is not worth a remote call."""

    def find_source(self, key: str) -> tuple[str, list[tuple[str, str]], bytes] | None:
        return None

    def deploy(
        self,
        deployed: Deployed,
        signals: Sequence[str] = (),
        schedules: Sequence[tuple[str, int, int | None]] = (),
    ) -> None:
        """Record the current version of a flow. Earlier versions are not kept."""
        most = LARGEST_START if self.objects is None else MOST_BYTES_BY_REFERENCE
        given = [deployed, [*signals], [*schedules], most]
        self._keep_form(deployed.hash)
        self._call(self._ask(STARTS, "deploy", given))
        self._keep_form(deployed.hash)  # another version may have taken its place meanwhile

    def _keep_form(self, hash: str) -> None:
        """Keep a compiled flow, for workers that start executions of it."""
        form = self._flows[hash]
        self._check_size(len(form), "the compiled flow has")
        request = {"do": "form", "form": form, "execution": os.urandom(16).hex(), "number": 0}
        self._call(self._change(form_workflow(hash), request))

    def undeploy(self, flow: str, version: str | None = None) -> None:
        self._call(self._ask(STARTS, "undeploy", [flow]))

    def deployed(self, flow: str | None = None) -> list[Deployed]:
        every: list[Deployed] = self._shared(STARTS, "deployed", "") or []
        return [deployed for deployed in every if flow in (None, deployed.flow)]

    def starts(self, signal: str) -> list[SignalStart]:
        found: list[SignalStart] = self._shared(STARTS, "starts", signal) or []
        return found

    def schedules(self, until: int | None = None) -> list[Scheduled]:
        about = "" if until is None else str(until)
        found: list[Scheduled] = self._shared(STARTS, "schedules", about) or []
        return found

    def move_schedule(self, scheduled: Scheduled, time: int, due: int | None) -> bool:
        return bool(self._call(self._ask(STARTS, "move_schedule", [scheduled, time, due])))

    # -- executions

    def execution(self, id: str) -> ExecutionRecord:
        record = self._call(self._record(id))
        self._of_hash[record.hash] = id
        return record

    def load(self, id: str, until: int | None = None) -> Loaded:
        """Return an execution, from the last snapshot that is at hand."""
        record = self.execution(id)
        if until is not None:
            return Loaded(record, None, self.events(id, 0, max(until, 0)))
        loaded = Loaded(record, None, [])
        if record.status in ENDED:
            loaded = self._call(self._ended(id)).store.load(id)._replace(record=record)
        elif (start := self._call(self._start_with_snapshot(id))) is not None:
            loaded = Loaded(record, start, self.events(id, start[0]))
        rewrites = any(unpack(entry.payload)["type"] in REWRITES for entry in loaded.tail)
        if loaded.snapshot is None or rewrites:  # a retry begins with a snapshot from before it
            return Loaded(record, None, self.events(id))
        return loaded

    async def _start_with_snapshot(self, id: str) -> tuple[int, bytes] | None:
        """Return the snapshot with which the newest run of an execution has begun.

        None: it has none, or lists that refer to earlier events.
        """
        described = await self._described(id)
        info = described.raw_description.workflow_execution_info
        if info.first_run_id == described.run_id:
            return None
        past = (await self._first_input(id, described.run_id)).get("past", {})
        if not past.get("copy") or past["copy"]["journal"]["lists"]:
            return None
        number, packed = past["copy"]["journal"]["snapshot"]
        return number, packed

    def events(self, id: str, since: int = 0, limit: int | None = None) -> list[JournalEntry]:
        entries: list[JournalEntry] = []
        while limit is None or len(entries) < limit:
            left = None if limit is None else limit - len(entries)
            first, page, is_more = self._read(id, "events", id, since + len(entries), left)
            if since + len(entries) < first:
                page = self._call(self._earlier(id, since + len(entries), first, left))
                is_more = True
            entries += page
            if not (page and is_more):  # newer events are for the next reader
                break
        return entries

    def steps(self, id: str) -> None:
        return None

    def number_events(self) -> NoReturn:
        raise unsupported("the events of all executions in one order")

    def numbered(self, after: int, limit: int) -> NoReturn:
        self.number_events()

    async def _earlier(
        self, id: str, since: int, until: int, limit: int | None
    ) -> Sequence[JournalEntry]:
        """Return events from earlier runs."""
        end = until if limit is None else min(until, since + limit)
        run = (await self._described(id)).run_id
        return await self._past.events(await self._connection.client(), id, run, since, end)

    def holder(self, execution: str, now: int) -> Owner | None:
        """Return an owner while attempts are running. Workers take over from each other."""
        memo = self._call(self._memo(execution))
        is_held = HEAD in memo and memo[HEAD][0] == "running"
        return Owner("temporal", 0, 0, self.location, "") if is_held else None

    async def _memo(self, execution: str) -> Mapping[str, Any]:
        return await (await self._described(execution)).memo()

    def deaths(self, execution: str, now: int) -> int:
        return 0  # Temporal gives an execution to another worker

    def due(self, at: int, now: int, execution: str | None = None) -> list[Due]:
        return []  # its workers continue executions by themselves

    def next_due(self, after: int) -> int | None:
        return None

    def counts(self, flows: Sequence[str] | None = None) -> dict[str, int]:
        return self._call(self._listing.counts(flows))

    def executions(
        self, filter: ExecutionFilter = _ALL_EXECUTIONS, after: str | None = None, limit: int = 50
    ) -> ExecutionRecordPage:
        return self._call(self._listing.executions(filter, after, limit))

    def wait(self, id: str) -> ListedWait:
        found: ListedWait = self._read(self._execution_of(id), "wait", id)
        return found

    def waits(
        self, filter: WaitFilter = _ALL_WAITS, after: str | None = None, limit: int = 50
    ) -> StoredWaitPage:
        if filter.execution is None:
            return self._call(self._listing.waits(filter, after, limit))
        page = StoredWaitPage([], after)
        while True:  # an answer has the waits that fit into it
            left = limit - len(page.items)
            more = self._read(filter.execution, "waits", filter, page.next, left)
            page = StoredWaitPage([*page.items, *more.items], more.next)
            if page.next is None or len(page.items) == limit:
                return page

    def find_execution(self, beginning: str, flows: OfFlows | None = None) -> str:
        if beginning and self._call(self._exists(beginning)):
            ids = [beginning]
        else:
            ids = self._call(self._listing.ids(beginning))
        if flows is not None:
            ids = [id for id in ids if flows(self.execution(id).flow)]
        return the_one(beginning, ids, EXECUTION, self.location)

    def find_wait(self, beginning: str, flows: OfFlows | None = None) -> str:
        waits = [
            wait
            for wait, execution in self._call(self._listing.found_waits(beginning))
            if flows is None or flows(self.execution(execution).flow)
        ]
        return the_one(beginning, waits, WAIT, self.location)

    def short_execution(self, id: str) -> str:
        others = self._call(self._listing.ids(id[:SHORT_EXECUTION]))
        return shortest(id, [other for other in others if other != id], SHORT_EXECUTION)

    def short_wait(self, id: str) -> str:
        waits = self._call(self._listing.newest_waits(id[:SHORT_WAIT]))
        return shortest(id, [other for other, _ in waits if other != id], SHORT_WAIT)

    def around(self, id: str, unit: int) -> dict[str, Any]:
        """Return what rules and approvals of a unit's call refer to, as in the kernel's state.

        A query of its size, however long the execution is.
        """
        parts: dict[str, Any] = self._read(id, "around", unit)
        return parts

    # -- messages and decisions

    def begin(self, beginning: Beginning, files: Sequence[tuple[bytes, str]] = ()) -> None:
        for content, name in files:
            self.files.put(beginning.id, content, name)
        if not beginning.claims:
            self.begin_with(beginning, [])
        elif not self._call(self._exists(beginning.id)):
            # The workflow of the lock starts it, so that nothing happens between claim and start.
            given = [beginning, self.get_flow(beginning.new.hash)]
            rejected = self._call(
                self._ask(lock_workflow(beginning.claims[0].lock), "begin", given)
            )
            if rejected is not None:
                lock, holder = rejected
                raise not_free(lock, holder, self.execution(holder))

    def begin_with(self, beginning: Beginning, locks: Sequence[str]) -> None:
        """Start an execution unless its id exists.

        Args:
            beginning: The execution, without claims.
            locks: The locks on which it has claims already.
        """
        flow = unpack(self.get_flow(beginning.new.hash))
        check_supported(flow)
        check_started(unpack(beginning.event))
        start = {
            "flow": flow,
            "id": beginning.id,
            "most": self.most_bytes,
            "new": beginning.new,
            "event": beginning.event,
            "keys": [*beginning.keys],
            "locks": locks,
        }
        self._call(self._begun(start, {}, WorkflowIDReusePolicy.REJECT_DUPLICATE))

    def begin_again(self, id: str, append: Append, queue: Sequence[bytes]) -> None:
        """Start the workflow of an execution that has a past: a fork, or a retry.

        Args:
            id: Its id.
            append: The changes to its journal. A fork has a new one.
            queue: Packed events to apply then.

        Raises:
            Conflict: It is open, or exists, or a lock that it held is not free.
        """
        events = [unpack(event) for event in queue]
        forms = {*append.forms, *(event["after"] for event in events if "after" in event)}
        past: dict[str, Any] = {"append": append, "queue": [*queue]}
        reuse, replaced = WorkflowIDReusePolicy.REJECT_DUPLICATE, list[str]()
        if append.new is not None and append.new.files_of:
            if append.new.files_of == id:
                reuse = WorkflowIDReusePolicy.ALLOW_DUPLICATE
                replaced = self._call(self._runs(self._call(self._described(id))))
            if self.objects is None:
                past["texts"] = self._texts(append.new.files_of)
            else:
                self.objects.refer(id, self.objects.digests_of(append.new.files_of))
        if append.new is None:
            driver = self._call(self._ended(id))
            past |= {"copy": driver.store.copy(id), "outgoing": driver.outgoing.kept()}
            past |= {"texts": driver.texts, "resets": driver.resets}
            if driver.store.first(id):
                before = self._call(self._first_input(id))["past"]
                past |= {key: before[key] for key in ("before", "events") if key in before}
            new, reuse = driver.start["new"], WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY
            forms |= {*past["copy"]["journal"]["forms"], driver.execution.linked.hash}
        else:
            new = append.new
        start = {
            "flow": unpack(self.get_flow(new.hash)),
            "flows": {hash: unpack(self.get_flow(hash)) for hash in sorted(forms)},
            "id": id,
            "most": self.most_bytes,
            "new": new,
            "past": past,
            "claims": _repeated(append.claims),
        }
        head = ["running", append.at, None, None]
        locks = self._reserve(id, append.claims, append.at)
        if not self._call(self._begun(start, {HEAD: head}, reuse)):
            self._release(id, locks, append.at)
            raise Conflict(f"execution {id} exists, or is open", hint=Hint(f"flowengine show {id}"))
        self._call(self._remove_runs(id, replaced))

    def _reserve(self, id: str, claims: Sequence[LockOperation], at: int) -> list[str]:
        """Make the claims of an execution that is to be started, and return their locks.

        Raises:
            Conflict: A lock that it held is not free.
        """
        locks: list[str] = []
        for lock in sorted({claim.lock for claim in claims}):
            given = [id, [claim for claim in claims if claim.lock == lock], at]
            rejected = self._call(self._ask(lock_workflow(lock), "reserve", given))
            if rejected is not None:
                self._release(id, locks, at)
                _, holder = rejected
                raise not_free(lock, holder, self.execution(holder))
            locks.append(lock)
        return locks

    def _release(self, id: str, locks: Sequence[str], at: int) -> None:
        """Release the claims of an execution that was not started."""
        for lock in locks:
            self._call(self._ask(lock_workflow(lock), "release", [id, at]))

    def upgrade(self, id: str, event: Any, seq: int) -> bool:
        """Continue an execution with another form of its flow, and return whether it does.

        Args:
            id: Its id.
            event: The event that moves it.
            seq: Number of events for which the move was checked. With more, it is not made.
        """
        flow = unpack(self.get_flow(event["after"]))
        check_supported(flow)
        return bool(self._write(id, "upgrade", event, seq, flow=flow))

    async def _ended(self, id: str) -> WorkflowDriver:
        return await self._left_by(await self._described(id))

    async def _left_by(self, workflow: WorkflowExecutionDescription) -> WorkflowDriver:
        """Return an execution as its closed workflow has left it."""
        client = await self._connection.client()
        driver = await self._past.ended(client, workflow.id, workflow.run_id)
        if workflow.status in _STOPPED and not driver.over:
            closed = workflow.close_time or datetime.now(UTC)
            driver.halt(int(closed.timestamp() * 1000), "its workflow was ended in Temporal")
        return driver

    async def _begun(
        self, start: dict[str, Any], memo: dict[str, Any], reuse: WorkflowIDReusePolicy
    ) -> bool:
        """Start a workflow, and return whether it is new.

        If no worker has ever run, the search attributes are added first.
        """
        check_listed(start["new"])
        self._check_size(len(packed(start)), "flow, inputs and past of the execution have")
        try:
            return await self._start(start, memo, reuse)
        except RPCError as error:
            is_new = error.status == RPCStatusCode.INVALID_ARGUMENT
            if not is_new or "search attribute" not in error.message:
                raise
            await register(await self._connection.client())
            await asyncio.sleep(_REGISTERED_SECONDS)
            return await self._start(start, memo, reuse)

    def _check_size(self, size: int, what: str) -> None:
        """Check that something is not too large for one value.

        Raises:
            UsageError: It is.
        """
        if size > self.most_bytes:
            how = f"set ${VARIABLE} for all processes" if self.objects is None else None
            most = size_text(self.most_bytes)
            raise UsageError(f"{what} {size_text(size)}; at most {most} are possible", hint=how)

    async def _start(
        self, start: dict[str, Any], memo: dict[str, Any], reuse: WorkflowIDReusePolicy
    ) -> bool:
        new, client = start["new"], await self._connection.client()
        start = dict(start)
        flow = start.pop("flow")
        try:
            await client.start_workflow(
                WORKFLOW,
                args=[start, ByReference(flow)],
                id=start["id"],
                task_queue=QUEUE,
                task_timeout=task_time(self.heartbeat),
                id_reuse_policy=reuse,
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                static_summary=f"flow {new.flow}",
                memo={NEW: start["new"], **memo},
                search_attributes=TypedSearchAttributes(
                    [
                        SearchAttributePair(CREATED, _time(new.created_at)),
                        SearchAttributePair(FLOW, new.flow),
                        SearchAttributePair(LABELS, label_digests(new.labels, new.forked_from)),
                    ]
                ),
                rpc_timeout=PATIENCE,
            )
        except WorkflowAlreadyStartedError:
            return False
        return True

    def send(self, execution: str, event: bytes, at: int, message_id: str) -> SendResult:
        kind = unpack(event)["type"]
        self._note_sent(execution, at)
        if kind not in HANDS:
            return self._call(self._signal(execution, event, at, message_id, kind))
        sent: SendResult | None = self._write(execution, "send", execution, event, at, message_id)
        if sent is None:
            record = self.execution(execution)
            raise ended(record)
        return sent

    async def _signal(
        self, execution: str, event: bytes, at: int, message_id: str, kind: str
    ) -> SendResult:
        """Send a message as a signal, which needs no worker."""
        record = await self._record(execution)
        if record.status in ENDED:
            if kind == "message" and (before := await self._sent(record, message_id)):
                return before
            raise ended(record)
        handle = await self._connection.handle(execution)
        request = {"event": event, "at": at, "id": message_id}
        try:
            await handle.signal("message", request, rpc_timeout=PATIENCE)
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
            record = await self._record(execution)
            raise ended(record) from None
        before = await self._sent(record, message_id) if kind == "message" else None
        if before is None or before.event == event:
            return SendResult(0, execution, True, event=event)
        return before

    async def _sent(self, record: ExecutionRecord, message_id: str) -> SendResult | None:
        """Return a message as first sent. None: it was not sent, or no worker responds soon."""
        try:
            answer = await self._answer(record.id, "sent", [record.id, message_id], _SOON)
        except (RPCError, StoreError):
            return None
        sent: SendResult | None = answer
        return sent

    def decide(self, wait: str, vote: Vote) -> tuple[bool, ListedWait]:
        execution = self._execution_of(wait)
        self._note_sent(execution, vote.at)
        decided: tuple[bool, ListedWait] | None = self._write(execution, "decide", wait, vote)
        return (False, self.wait(wait)) if decided is None else decided

    def inbox(self, execution: str) -> list[InboxMessage]:
        """Return what starts an execution until a worker begins it. It takes the rest at once."""
        if HEAD in self._call(self._memo(execution)):
            return []
        start = self._call(self._first_input(execution))
        return [InboxMessage(1, execution, start["new"].created_at, start["event"])]

    def arrived(self, after: int) -> list[InboxMessage]:
        return []  # a workflow takes its messages at once

    def changes(self) -> int:
        raise unsupported("drivers in other processes than its workers")

    # -- shared between executions

    def outbox(self) -> list[Outgoing]:
        return []  # a worker delivers them

    def undelivered(self, execution: str) -> list[Outgoing]:
        messages: list[Outgoing] = self._read(execution, "undelivered", execution)
        return messages

    def grants(self, flow: str | None = None, tool: str | None = None) -> list[FlowGrant]:
        found: list[FlowGrant] = self._shared(GRANTS, "grants", flow or "") or []
        return [grant for grant in found if tool in (None, grant.tool)]

    def use_grant(self, grant: str, wait: str, at: int) -> bool:
        """Use a grant for the answer to a wait, and return whether it was usable.

        A request of the wait's execution must report afterwards whether the answer counts.
        """
        return bool(self._call(self._ask(GRANTS, "use", [grant, wait, at])))

    def claims(self, lock: str) -> list[Claimed]:
        found: list[Claimed] = self._shared(lock_workflow(lock), "claims", lock) or []
        return found

    def budgets(self) -> list[UsedBudget]:
        ids: list[str] = self._call(self._listing.shared(BUDGETS))
        return sorted(used for id in ids for used in self._shared(id, "budgets", "") or ())

    def send_keyed(
        self,
        signal: str,
        key: str,
        event: bytes,
        at: int,
        message_id: str,
        begin: Beginning | None = None,
    ) -> SendResult:
        name = f"{signal} {key}"
        request = {"event": event, "at": at, "id": message_id, "begin": begin, "name": name}
        try:
            sent: SendResult = self._call(self._ask(key_workflow(signal, key), "send", [request]))
        except NotFound:
            raise _no_key(signal, key) from None
        self._note_sent(sent.execution, at)
        return sent

    def _note_sent(self, execution: str, at: int) -> None:
        """Note the time of a message to an execution, for those executions that are driven next."""
        self.sent_at.setdefault(execution, at)
        if len(self.sent_at) > _MOST_NOTED:
            del self.sent_at[next(iter(self.sent_at))]

    def find_key(self, signal: str, key: str) -> str:
        holder: str | None = self._shared(key_workflow(signal, key), "holder", "")
        if holder is None:
            raise _no_key(signal, key)
        return holder

    def change_shared(self, request: Mapping[str, Any]) -> None:
        """Carry out a request of an execution to an object that it shares with others."""
        if "key" in request:
            id = key_workflow(*request["key"])
        else:
            id = lock_workflow(request["lock"]) if "lock" in request else GRANTS
        self._call(self._change(id, request))

    async def _change(self, id: str, request: Mapping[str, Any]) -> None:
        client = await self._connection.client()
        await client.start_workflow(
            SHARED,
            {},
            id=id,
            task_queue=QUEUE,
            task_timeout=task_time(self.heartbeat),
            start_signal="change",
            start_signal_args=[[dict(request)]],
            rpc_timeout=PATIENCE,
        )

    def acknowledge(self, number: int, refused: str | None) -> None:
        raise unsupported("messages between executions from outside a worker")

    def revoke(self, grant: str, by: str) -> FlowGrant:
        revoked: FlowGrant = self._call(self._ask(GRANTS, "revoke", [grant, by]))
        return revoked

    async def _ask(self, id: str, what: str, given: list[Any]) -> Any:
        """Request something of what executions share (see `ASKED`), and return the answer."""
        client, name = await self._connection.client(), os.urandom(16).hex()

        async def asked() -> Any:
            start: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
                SHARED,
                {},
                id=id,
                task_queue=QUEUE,
                task_timeout=task_time(self.heartbeat),
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            )
            start._workflow_handle.add_done_callback(lambda it: it.cancelled() or it.exception())
            return await client.execute_update_with_start_workflow(
                "ask",
                args=[what, given],
                start_workflow_operation=start,
                id=name,  # repeated, it counts once
                rpc_timeout=PATIENCE,
            )

        try:
            return _answer_of(await self._connection.answer(asked))
        except WorkflowUpdateRPCTimeoutOrCancelledError:
            raise self._connection.no_worker() from None
        except WorkflowUpdateFailedError as error:
            return _answer_of(_refusal(error))

    def _shared(self, id: str, what: str, about: str) -> Any:
        """Query what executions share. None: nothing."""

        async def read() -> Any:
            try:
                return await self._connection.read(id, what, about)
            except RPCError as error:
                if error.status == RPCStatusCode.NOT_FOUND:
                    return None
                raise

        return self._call(read())

    # -- artifacts

    @property
    def files(self) -> Objects:
        """The object store.

        Raises:
            UsageError: There is none.
        """
        if self.objects is None:
            raise UsageError(
                f"files of executions in {self.location} need an object store",
                hint=f"set {VARIABLE} to a directory, or to s3://BUCKET/PREFIX, for all processes",
            )
        return self.objects

    def put_artifact(self, execution: str, content: bytes | PathLike[str], name: str) -> Artifact:
        self._call(self._described(execution))
        return self.files.put(execution, content, name)

    def hold_artifact(self, content: bytes | PathLike[str], name: str) -> NoReturn:
        raise unsupported("files that no execution refers to yet")

    def open_artifact(self, sha256: str, execution: str | None = None) -> BinaryIO:
        return self.fetch_artifact(sha256, execution).open("rb")

    def fetch_artifact(self, sha256: str, execution: str | None = None) -> Path:
        if self.objects is not None or execution is None:
            return self.files.fetch(sha256, execution)
        text = self._texts(execution).get(sha256)
        if text is None:
            raise not_referred(sha256, execution)
        path = self._copies.path(sha256)
        self._copies.write(path, [text])
        return path

    def _texts(self, execution: str) -> dict[str, bytes]:
        """Return the texts of tools that an execution keeps, by digest."""
        texts: dict[str, bytes] = self._read(execution, "texts")
        return texts

    def refer(self, execution: str, files: Sequence[tuple[str, str | None]]) -> None:
        """Note that an execution refers to files that others refer to. See `Append.files`."""
        known = [digest for digest, other in files if self.files.has(other, digest)]
        self.files.refer(execution, known)

    # -- journals, which only workers write

    def commit(self, appends: Sequence[Append]) -> NoReturn:
        raise _only_workers()

    def calm(self, execution: str, epoch: int) -> NoReturn:
        raise _only_workers()

    def acquire(self, execution: str, owner: str, now: int) -> int:
        """Return an epoch for an execution in which no attempt is running."""
        holder = self.holder(execution, now)
        if holder is not None:
            raise Conflict(f"execution {execution} is running", standing=holder)
        return 0

    def renew(self, owner: Owner, until: int) -> None:
        """Do nothing: Temporal ensures that an execution has one writer."""

    def release(self, leases: Sequence[tuple[str, int]]) -> None:
        """Do nothing, as `renew`."""

    def retire(self, owner: str) -> None:
        """Do nothing, as `renew`."""

    # -- moving

    def copy_execution(self, id: str) -> ExecutionCopy:
        described = self._call(self._described(id))
        if described.status != WorkflowExecutionStatus.RUNNING:
            record = self.execution(id)
            raise ended(record)
        client = self._call(self._connection.client())
        driver = self._call(replayed(client, id, described.run_id))
        flow = driver.start["flow"]
        if driver.over or not driver.quiet or driver.execution.state["status"] not in RESTING:
            raise Conflict(f"execution {id} is running", hint="move it when it waits")
        data = _with_keyed_messages(driver.store.copy(id))
        data["claims"] = self._claims_of(driver)
        first, journal = driver.store.first(id), data["journal"]
        if first:
            earlier = [[*event] for event in self.events(id, 0, first)]
            journal |= {"first": 0, "entries": earlier + journal["entries"]}
        flows = {driver.start["new"].hash: flow, **driver.start.get("flows", {})}
        files = [*driver.texts] if self.objects is None else self.objects.digests_of(id)
        packed = {hash: pack(compiled) for hash, compiled in flows.items()}
        return ExecutionCopy(data, packed, files, driver.mark)

    def _claims_of(self, driver: WorkflowDriver) -> list[Any]:
        """Return the claims of an execution on shared locks. See `ExecutionCopy`."""
        execution = driver.execution
        claims = [*claims_in(execution.id, execution.linked.graph, execution.state)]
        for lock in sorted({claim.lock for claim in claims}):
            check_movable(execution.id, lock, self.claims(lock))
        return [
            [*claim._replace(then="queue" if claim.then == "queue" else "reject", cancel=b"")]
            for claim in claims
        ]

    def hold_copy(self, copy: ExecutionCopy) -> None:
        journal = copy.data["journal"]
        record = ExecutionRecord(*journal["record"])
        flows = {hash: unpack(flow) for hash, flow in copy.flows.items()}
        check_supported(flows[record.hash])
        if journal["entries"]:
            check_started(unpack(journal["entries"][0][2]))
        if copy.files or copy.workspaces:
            _ = self.files  # raises the error if there is none
        claims = [LockOperation(*claim) for claim in copy.data["claims"]]
        start = {
            "flow": flows.pop(record.hash),
            "flows": flows,
            "id": record.id,
            "most": self.most_bytes,
            "new": new_of(record),
            "claims": claims,
            "past": {
                "copy": _with_own_messages(copy.data),
                # More than those with which it was here before.
                "outgoing": [time.time_ns() // 1_000_000, []],
                "placing": [None, False, [], [*copy.workspaces]],
            },
            "held": True,
        }
        head = ExecutionHead(record.status, record.changed_at, record.due)
        reuse = WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY
        self._call(self._end_held(record.id))
        locks = self._reserve(record.id, claims, head.at)
        memo = {HEAD: [*head[:3], None], HELD: copy.source or True}
        if not self._call(self._begun(start, memo, reuse)):
            self._release(record.id, locks, head.at)
            raise Conflict(f"execution {record.id} exists in {self.location}")

    async def _is_waiting_to_be_driven(self, id: str) -> bool:
        try:
            described = await self._described(id)
        except NotFound:
            return False
        is_open = described.status == WorkflowExecutionStatus.RUNNING
        return is_open and bool((await described.memo()).get(HELD))

    async def _end_held(self, id: str) -> None:
        """End the workflow of an earlier copy that is not driven."""
        if await self._is_waiting_to_be_driven(id):
            handle = await self._connection.handle(id)
            await handle.terminate("replaced by a later copy", rpc_timeout=PATIENCE)

    @property
    def workspaces(self) -> ObjectWorkspaces:
        """The files of its environments, for moves."""
        return ObjectWorkspaces(lambda: self.files, self._packed)

    def _packed(self, id: str, mark: Sequence[int]) -> list[MovedWorkspace] | None:
        workspaces: list[MovedWorkspace] | None = self._write(
            id, "pack", *mark, patience=_LONGEST_MOVE
        )
        return workspaces

    def give_up(self, id: str, mark: Sequence[int]) -> bool:
        return bool(self._write(id, "leave", *mark))

    def drive_copy(self, id: str) -> bool:
        is_held = self._call(self._is_waiting_to_be_driven(id))
        if is_held:
            handle = self._call(self._connection.handle(id))
            self._call(handle.signal("drive", rpc_timeout=PATIENCE))
        return is_held

    def held_copies(self, source: str) -> list[str]:
        return self._call(self._listing.held(source))

    def drop_copy(self, id: str) -> None:
        """End the workflow of a copy, and release its locks, after all of its requests."""
        if not self._call(self._is_waiting_to_be_driven(id)):
            return
        start = self._call(self._first_input(id))
        self._call(self._end_held(id))
        now = time.time_ns() // 1_000_000
        for lock in sorted({claim.lock for claim in start["claims"]}):
            request = {"do": "end", "lock": lock, "at": now, "execution": id, "number": now}
            self.change_shared({**request, "used": {}})

    # -- maintenance

    def prune(
        self, before: int, statuses: Sequence[str] = ENDED, ids: Sequence[str] = ()
    ) -> Pruned:
        """Delete executions that have ended. Values and files in the object store remain."""
        check_statuses(statuses)
        return Pruned(self._call(self._prune(before, statuses, ids)), 0, 0)

    async def _prune(self, before: int, statuses: Sequence[str], ids: Sequence[str]) -> int:
        old = await self._listing.ended(before, statuses)
        return sum([await self._is_removed(id) for id in dict.fromkeys([*old, *ids])])

    async def _is_removed(self, id: str) -> bool:
        """Delete all runs of a workflow that has ended, and return whether it was there."""
        try:
            newest = await self._described(id)
        except NotFound:
            return False
        if newest.status == WorkflowExecutionStatus.RUNNING:
            return False  # retried just now
        await self._remove_runs(id, await self._runs(newest))
        return True

    async def _runs(self, newest: WorkflowExecutionDescription) -> list[str]:
        """Return the runs of a workflow.

        The newest is the last, because the ones before would be taken for the execution.
        """
        runs = await self._listing.runs(newest.id)
        return [*(run for run in runs if run != newest.run_id), newest.run_id]

    async def _remove_runs(self, id: str, runs: Sequence[str]) -> None:
        client = await self._connection.client()
        for run in runs:
            request = DeleteWorkflowExecutionRequest(
                namespace=client.namespace,
                workflow_execution=WorkflowExecution(workflow_id=id, run_id=run),
            )
            try:
                await client.workflow_service.delete_workflow_execution(request, timeout=PATIENCE)
            except RPCError as error:
                if error.status != RPCStatusCode.NOT_FOUND:
                    raise

    def close(self) -> None:
        self._connection.close()
        self._copies.close()
        if self.objects is not None:
            self.objects.close()

    # -- internals

    async def _described(self, execution: str) -> WorkflowExecutionDescription:
        """Return the newest run of a workflow, as the server knows it at this moment."""
        handle = await self._connection.handle(execution)
        try:
            described = await handle.describe(rpc_timeout=PATIENCE)
            if is_moved(described):
                raise no_execution(execution)
            return described
        except RPCError as error:
            if error.status in (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT):
                raise no_execution(execution) from None
            raise

    async def _record(self, id: str) -> ExecutionRecord:
        described = await self._described(id)
        record = await record_of(described)
        if record is None:
            raise no_execution(id)
        if record.status not in ENDED:
            return record
        return (await self._left_by(described)).store.execution(id)

    async def _first_input(self, id: str, run: str | None = None) -> Mapping[str, Any]:
        return await first_input(await self._connection.client(), id, run)

    def _read(self, execution: str, method: str, *arguments: Any) -> Any:
        """Call a read-only method of the store of an execution."""
        return self._call(self._read_async(execution, method, arguments))

    async def _read_async(self, execution: str, method: str, arguments: Sequence[Any]) -> Any:
        return await self._answer(execution, method, [*arguments], PATIENCE)

    async def _answer(
        self, execution: str, method: str, arguments: list[Any], patience: timedelta
    ) -> Any:
        """Return the answer of a workflow that is open, or of the history of one that is not."""
        request = {"method": method, "arguments": arguments}
        described = await self._described(execution)
        if described.status != WorkflowExecutionStatus.RUNNING:
            return _answer_of(answered(await self._left_by(described), request))
        if method in _OF_NEW and HEAD not in await described.memo():
            return _OF_NEW[method]
        try:
            answer = await self._connection.read(execution, request, patience=patience)
        except RPCError as error:
            await self._check_tries(execution, error.status)
            raise
        return _answer_of(answer)

    async def _check_tries(self, execution: str, why: RPCStatusCode | None = None) -> None:
        """Check that an execution that does not answer is not one that cannot continue.

        Args:
            execution: Its id.
            why: Why it does not. The server reports it if its workflow task fails.

        Raises:
            StoreError: It cannot.
        """
        tries = 1 if why == RPCStatusCode.FAILED_PRECONDITION else TRIES
        await self._check_task(await self._described(execution), tries)

    async def _check_task(self, described: WorkflowExecutionDescription, most: int) -> None:
        """Check that the workflow task of an execution does not fail again and again.

        Temporal tries it again forever, without reporting it.

        Args:
            described: The workflow.
            most: From this number of tries on, it is an error.

        Raises:
            StoreError: It does. The message contains the reason.
        """
        tries = described.raw_description.pending_workflow_task.attempt
        if tries < most:
            return
        client = await self._connection.client()
        reason = await newest_task_failure(client, described.id, described.run_id)
        if reason is None and tries < _TIMED_OUT_TRIES:
            return
        shown = one_line(reason or "no worker ends it in time")
        raise StoreError(
            f"execution {described.id} cannot continue now: its workflow task fails again and "
            f"again (attempt {tries}): {shown}",
            hint=Hint(
                "it continues by itself once that is fixed. For details: "
                f"temporal workflow show --workflow-id {described.id}"
            ),
        )

    def place_of(self, execution: str) -> str | None:
        """Return the task queue of the place of an execution. None: it has none now."""
        try:
            queue: str | None = self._read(execution, "place")
        except NotFound:
            return None
        return queue

    def _write(
        self,
        execution: str,
        method: str,
        *arguments: Any,
        flow: CompiledFlow | None = None,
        patience: timedelta | None = None,
    ) -> Any:
        """Send an update to a workflow. None: it has ended."""
        request = {"method": method, "arguments": [*arguments]}
        given = [request] if flow is None else [request, ByReference(flow)]
        return self._call(self._update(execution, given, patience))

    async def _update(self, execution: str, given: list[Any], patience: timedelta | None) -> Any:
        handle, name = await self._connection.handle(execution), os.urandom(16).hex()
        rpc_timeout = patience or PATIENCE
        while True:
            try:
                answer = await self._connection.answer(
                    lambda: handle.execute_update(
                        "write",
                        args=given,
                        id=name,  # repeated, it counts once
                        rpc_timeout=rpc_timeout,
                    ),
                    patience,
                )
            except WorkflowUpdateRPCTimeoutOrCancelledError:
                await self._check_tries(execution)
                raise self._connection.no_worker() from None
            except WorkflowUpdateFailedError as error:
                answer = _refusal(error)
            except RPCError as error:
                if error.status != RPCStatusCode.NOT_FOUND:
                    await self._check_tries(execution, error.status)
                    raise
                described = await self._described(execution)
                if described.status == WorkflowExecutionStatus.RUNNING:
                    continue  # the run that had it was continued in another one meanwhile
                return None
            return _answer_of(answer)

    def may_rest(self, execution: str) -> bool:
        """Return whether an execution has ended, waits or is stalled. No worker is needed."""
        described = self._call(self._described(execution))
        if described.status != WorkflowExecutionStatus.RUNNING:
            return True
        self._call(self._check_task(described, TRIES))
        return described.typed_search_attributes.get(STATUS) in RESTING

    def end_within(self, execution: str, seconds: float) -> Future[bool]:
        """Return, after at most some time, whether the current run of an execution has ended.

        The server reports it. Until `forget_end`, the same request is awaited again.
        """
        return self._connection.submit(self._end_within(execution, seconds))

    async def _end_within(self, execution: str, seconds: float) -> bool:
        end = self._ends.get(execution)
        if end is None or (end.done() and self.outputs(execution) is None):  # it was retried
            end = self._ends[execution] = asyncio.create_task(self._end(execution))
        done, _ = await asyncio.wait([end], timeout=seconds)
        return bool(done)

    async def _end(self, execution: str) -> Any:
        """Return the result of the workflow of an execution once it has succeeded, or None."""
        handle = await self._connection.handle(execution)
        with suppress(WorkflowFailureError, RPCError, StoreError):
            return await handle.result()
        return None

    def outputs(self, execution: str) -> dict[str, Any] | None:
        """Return the outputs of an execution that was seen to succeed, if they are small."""
        end = self._ends.get(execution)
        if end is None or not end.done() or end.cancelled() or end.exception() is not None:
            return None
        result = end.result()
        is_known = isinstance(result, dict) and result.get("status") == "succeeded"
        return result["outputs"] if is_known else None

    def forget_end(self, execution: str) -> None:
        """Wait for the end of an execution no longer."""
        end = self._ends.pop(execution, None)
        if end is not None and not end.done():
            self._connection.cancel(end)

    def check_worker(self, execution: str) -> None:
        """Check that a worker is available for an execution that should continue.

        Raises:
            NoWorker: No worker has polled for work for a while.
        """
        if not self._call(self._connection.has_worker()):
            error = NoWorker(
                f"execution {execution} is recorded, and {self.location} has no worker",
                hint=Hint(f"start one: flowengine worker --store {self.location}"),
            )
            error.recorded = execution
            raise error

    async def _exists(self, execution: str) -> bool:
        try:
            described = await self._described(execution)
        except NotFound:
            return False
        return described.workflow_type == WORKFLOW

    def _execution_of(self, wait: str) -> str:
        for id, execution in self._call(self._listing.found_waits(wait)):
            if id == wait:
                return execution
        raise no_wait(wait)


def _with_own_messages(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy in which messages with a key are as the workflows of keys forward them."""
    delivered, *others = data["messages"]
    execution = data["journal"]["record"][0]
    own = [
        [["id", execution], forwarded_id(" ".join(address[1:]), id), message]
        if address[0] == "key"
        else [address, id, message]
        for address, id, message in delivered
    ]
    return {**data, "messages": [own, *others]}


def _with_keyed_messages(data: Mapping[str, Any]) -> dict[str, Any]:
    """Undo `_with_own_messages`, as far as ids of messages contain no blanks."""
    delivered, *others = data["messages"]
    keyed = []
    for address, id, message in delivered:
        before, _, own = id.rpartition(" ")
        kind, _, name = before.partition(" ")
        is_keyed = address[0] == "id" and kind == "key" and " " in name
        keyed.append(
            [["key", *name.split(" ", 1)], own, message] if is_keyed else [address, id, message]
        )
    return {**data, "messages": [keyed, *others]}


def _repeated(claims: Sequence[LockOperation]) -> list[LockOperation]:
    """Return claims that were reserved, as their execution makes them again."""
    return [claim._replace(then="cancel" if claim.cancel else "queue") for claim in claims]


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _answer_of(answer: dict[str, Any]) -> Any:
    if "error" in answer:
        raise answer["error"]
    return answer["answer"]


def _refusal(error: WorkflowUpdateFailedError) -> Any:
    """Return the answer with which a workflow refused an update.

    Raises:
        StoreError: The update failed.
    """
    cause = error.cause
    if not isinstance(cause, ApplicationError) or cause.type != REFUSED:
        raise StoreError(f"a workflow does not answer: {cause}") from error
    [answer] = cause.details
    return answer


def _no_key(signal: str, key: str) -> NotFound:
    return NotFound(f"no open execution takes signal {signal!r} with key {key!r}")


def _only_workers() -> UsageError:
    return unsupported("writing a journal from outside its worker")
