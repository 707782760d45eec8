"""The store in Temporal, which forwards operations on an execution to its workflow.

Queries and updates need a worker. Starting an execution does not.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn, TypeVar

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import SearchAttributeKey, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from flowengine.engines.temporal.address import Address
from flowengine.engines.temporal.payloads import CONVERTER
from flowengine.engines.temporal.requests import (
    ANSWERS,
    MOST_BYTES,
    QUEUE,
    SHORT_WAIT,
    STATUS,
    WAITS,
    WORKFLOW,
    plain,
    raise_error,
)
from flowengine.engines.temporal.support import check_started, check_supported, unsupported
from flowengine.errors import NotFound, StoreError, UsageError
from flowengine.journal.encoding import pack, unpack
from flowengine.journal.records import (
    ENDED,
    Append,
    Artifact,
    Beginning,
    Claimed,
    Due,
    Entry,
    ExecutionFilter,
    ExecutionPage,
    ExecutionRecord,
    FlowGrant,
    Loaded,
    Message,
    Outgoing,
    Owner,
    Pruned,
    Sent,
    Standing,
    Start,
    Vote,
    Wait,
    WaitFilter,
    WaitPage,
)
from flowengine.journal.refusals import ended
from flowengine.journal.short_ids import EXECUTION, SHORT_EXECUTION, WAIT, shortest, the_one
from flowengine.kernel.notation.ids import wait_id
from flowengine.store_folder import REMOTE

if TYPE_CHECKING:
    from os import PathLike
    from pathlib import Path

    from flowengine.journal.store import Durability

T = TypeVar("T")
PATIENCE = timedelta(seconds=30)
"""How long to wait for a response, as a busy worker may take a while."""
_SEEN = timedelta(seconds=75)
"""A live worker has polled for work within this time."""
TRIES = 4
"""Tries of a workflow task before it counts as an error. The second try may follow the death of a
worker."""
_RESTING = ("waiting", "stalled")
_ID_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
_STATUS = SearchAttributeKey.for_keyword(STATUS)
_ALL_EXECUTIONS, _ALL_WAITS = ExecutionFilter(), WaitFilter()
_SOME = 20
"""Number of ids to read when looking up a prefix."""


class TemporalStore:
    """Executions in a namespace of Temporal. See `flowengine.journal.store`.

    Args:
        address: The address of the namespace. The connection is opened on first use.

    Operations that it does not support yet raise a `UsageError`.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._flows: dict[str, bytes] = {}
        self._of_hash: dict[str, str] = {}
        """Hash of a flow → an execution that runs it."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._client: Client | None = None

    @property
    def durability(self) -> Durability:
        return "power"

    @property
    def location(self) -> str:
        return f"{REMOTE}{self._address.server}/{self._address.namespace}"

    # -- flows

    def put_flow(self, hash: str, compiled: bytes) -> None:
        self._flows[hash] = compiled

    def get_flow(self, hash: str) -> bytes:
        if hash not in self._flows:
            if hash not in self._of_hash:
                raise NotFound(f"there is no flow {hash} in {self.location}")
            self._flows[hash] = pack(self._read(self._of_hash[hash], "flow"))
        return self._flows[hash]

    def remember_source(
        self, key: str, hash: str, sources: Sequence[tuple[str, str]], extra: bytes = b""
    ) -> None:
        """Do nothing. Avoiding a compilation is not worth a remote call."""

    def find_source(self, key: str) -> tuple[str, list[tuple[str, str]], bytes] | None:
        return None

    def put_starts(self, flow: str, hash: str, signals: Sequence[str]) -> None:
        if signals:
            raise unsupported("flows that signals start")

    def starts(self, signal: str) -> list[Start]:
        return []

    # -- executions

    def execution(self, id: str) -> ExecutionRecord:
        record: ExecutionRecord = self._read(id, "execution")
        self._of_hash[record.hash] = id
        return record

    def load(self, id: str) -> Loaded:
        return Loaded(self.execution(id), None, self.events(id))

    def events(self, id: str, since: int = 0, limit: int | None = None) -> list[Entry]:
        found: list[Entry] = []
        while limit is None or len(found) < limit:
            left = None if limit is None else limit - len(found)
            page = self._read(id, "events", since + len(found), left)
            if not page:
                break
            found += page
        return found

    def holder(self, execution: str, now: int) -> Owner | None:
        """Return an owner while attempts are running. Workers take over from each other."""
        if self.execution(execution).status != "running":
            return None
        return Owner("temporal", 0, 0, self.location, "")

    def deaths(self, execution: str, now: int) -> int:
        return 0  # Temporal gives an execution to another worker

    def due(self, at: int, now: int, execution: str | None = None) -> list[Due]:
        raise unsupported("'resume --due': its workers do that")

    def next_due(self, after: int) -> int | None:
        return None

    def executions(
        self, filter: ExecutionFilter = _ALL_EXECUTIONS, after: str | None = None, limit: int = 50
    ) -> ExecutionPage:
        raise unsupported("lists of executions")

    def wait(self, id: str) -> Wait:
        found: Wait = self._read(self._execution_of(id), "wait", id)
        return found

    def waits(
        self, filter: WaitFilter = _ALL_WAITS, after: str | None = None, limit: int = 50
    ) -> WaitPage:
        if filter.execution is None:
            raise unsupported("lists of waits of several executions")
        page: WaitPage = self._read(filter.execution, "waits", filter, after, limit)
        return page

    def find_execution(self, beginning: str) -> str:
        if beginning and self._call(self._exists(beginning)):
            return beginning
        return the_one(beginning, self._ids(beginning), EXECUTION, self.location)

    def find_wait(self, beginning: str) -> str:
        found = [wait for wait, _ in self._found_waits(beginning)]
        return the_one(beginning, found, WAIT, self.location)

    def short_execution(self, id: str) -> str:
        others = [other for other in self._ids(id[:SHORT_EXECUTION]) if other != id]
        return shortest(id, others, SHORT_EXECUTION)

    def short_wait(self, id: str) -> str:
        others = [other for other, _ in self._found_waits(id[:SHORT_WAIT]) if other != id]
        return shortest(id, others, SHORT_WAIT)

    # -- messages and decisions

    def begin(self, beginning: Beginning, files: Sequence[tuple[bytes, str]] = ()) -> None:
        if files:
            raise unsupported("files that an execution is given")
        if beginning.keys or beginning.claims:
            raise unsupported("keys and bounds that executions share")
        flow = unpack(self.get_flow(beginning.new.hash))
        check_supported(flow)
        check_started(unpack(beginning.event))
        start = {
            "flow": flow,
            "id": beginning.id,
            "new": plain(beginning.new),
            "event": beginning.event,
        }
        if len(pack(start)) > MOST_BYTES:
            raise unsupported("flows and inputs of more than a megabyte")
        self._call(self._start(beginning, start))

    async def _start(self, beginning: Beginning, start: dict[str, Any]) -> None:
        try:
            await (await self._connected()).start_workflow(
                WORKFLOW,
                start,
                id=beginning.id,
                task_queue=QUEUE,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                static_summary=f"flow {beginning.new.flow}",
                rpc_timeout=PATIENCE,
            )
        except WorkflowAlreadyStartedError:
            return

    def send(self, execution: str, event: bytes, at: int, message_id: str) -> Sent:
        sent: Sent | None = self._write(execution, "send", execution, event, at, message_id)
        if sent is None:
            record = self.execution(execution)
            raise ended(execution, record.status, record)
        return sent

    def decide(self, wait: str, vote: Vote) -> Standing:
        if vote.gives is not None or vote.uses is not None:
            raise unsupported("grants for all executions of a flow")
        standing: Standing | None = self._write(self._execution_of(wait), "decide", wait, vote)
        if standing is None:
            closed = self.wait(wait)
            return Standing(False, not closed.open, closed.decision, closed)
        return standing

    def inbox(self, execution: str) -> list[Message]:
        found: list[Message] = self._read(execution, "inbox", execution)
        return found

    def arrived(self, after: int) -> list[Message]:
        return []  # a workflow takes its messages at once

    def changes(self) -> int:
        raise unsupported("drivers in other processes than its workers")

    # -- shared between executions

    def outbox(self) -> list[Outgoing]:
        return []

    def undelivered(self, execution: str) -> list[Outgoing]:
        return []

    def grants(self, flow: str | None = None, tool: str | None = None) -> list[FlowGrant]:
        return []

    def claims(self, lock: str) -> list[Claimed]:
        return []

    def send_keyed(
        self,
        signal: str,
        key: str,
        event: bytes,
        at: int,
        message_id: str,
        begin: Beginning | None = None,
    ) -> Sent:
        raise unsupported("signals by key")

    def find_key(self, signal: str, key: str) -> str:
        raise unsupported("signals by key")

    def settle(self, number: int, refused: str | None) -> None:
        raise unsupported("messages between executions")

    def revoke(self, grant: str, by: str) -> FlowGrant:
        raise unsupported("grants for all executions of a flow")

    # -- artifacts

    def put_artifact(self, execution: str, content: bytes | PathLike[str], name: str) -> Artifact:
        raise unsupported("files")

    def open_artifact(self, sha256: str, execution: str | None = None) -> BinaryIO:
        raise unsupported("files")

    def fetch_artifact(self, sha256: str, execution: str | None = None) -> Path:
        raise unsupported("files")

    # -- journals, which only workers write

    def commit(self, appends: Sequence[Append]) -> NoReturn:
        raise _only_workers()

    def calm(self, execution: str, epoch: int) -> NoReturn:
        raise _only_workers()

    def acquire(self, execution: str, owner: str, now: int) -> NoReturn:
        raise _only_workers()

    def renew(self, owner: Owner, until: int) -> None:
        raise _only_workers()

    def release(self, leases: Sequence[tuple[str, int]]) -> None:
        raise _only_workers()

    def retire(self, owner: str) -> None:
        raise _only_workers()

    # -- maintenance

    def prune(self, before: int, statuses: Sequence[str] = ENDED) -> Pruned:
        raise unsupported("'prune': the retention of its namespace removes executions")

    def close(self) -> None:
        with self._lock:
            loop, self._loop = self._loop, None
            thread, self._thread = self._thread, None
            self._client = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    # -- internals

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop of this store, from any thread.

        Raises:
            StoreError: The server does not respond, or refuses.
        """
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="flowengine-temporal", daemon=True
                )
                self._thread.start()
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
        except RPCError as error:
            raise self._explained(error) from error

    def _explained(self, error: RPCError) -> StoreError:
        if error.status == RPCStatusCode.FAILED_PRECONDITION or (
            error.status in (RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED)
        ):
            return self._no_worker()
        return StoreError(f"{self.location}: {error.message}", hint="is the server running?")

    def _no_worker(self) -> StoreError:
        return StoreError(
            f"no worker of {self.location} answers",
            hint=f"if there is none, start one: flowengine worker --store {self.location}",
        )

    async def _connected(self) -> Client:
        if self._client is None:
            self._client = await connect(self._address)
        return self._client

    def _read(self, execution: str, method: str, *arguments: Any) -> Any:
        """Query a workflow without changing it."""
        if not arguments:
            arguments = (execution,)
        elif method == "events":
            arguments = (execution, *arguments)
        return self._call(self._query(execution, method, arguments))

    async def _query(self, execution: str, method: str, arguments: Sequence[Any]) -> Any:
        handle = (await self._connected()).get_workflow_handle(execution)
        request = {"method": method, "arguments": plain([*arguments])}
        try:
            answer = await handle.query("read", request, rpc_timeout=PATIENCE)
        except WorkflowQueryFailedError as error:
            raise StoreError(f"execution {execution} does not answer: {error.cause}") from error
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                raise _no_execution(execution) from None
            raise
        return _answer_of(method, answer)

    def _write(self, execution: str, method: str, *arguments: Any) -> Any:
        """Send an update to a workflow. None: it has ended."""
        return self._call(self._update(execution, method, arguments))

    async def _update(self, execution: str, method: str, arguments: Sequence[Any]) -> Any:
        handle = (await self._connected()).get_workflow_handle(execution)
        request = {"method": method, "arguments": plain([*arguments])}
        try:
            answer = await handle.execute_update("write", request, rpc_timeout=PATIENCE)
        except WorkflowUpdateRPCTimeoutOrCancelledError:
            raise self._no_worker() from None
        except WorkflowUpdateFailedError as error:
            raise StoreError(f"execution {execution} does not answer: {error.cause}") from error
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
            if await self._exists(execution):
                return None
            raise _no_execution(execution) from None
        return _answer_of(method, answer)

    def may_rest(self, execution: str) -> bool:
        """Return whether an execution has ended, waits or is stalled. No worker is needed."""
        return self._call(self._may_rest(execution))

    async def _may_rest(self, execution: str) -> bool:
        handle = (await self._connected()).get_workflow_handle(execution)
        found = await handle.describe(rpc_timeout=PATIENCE)
        if found.status != WorkflowExecutionStatus.RUNNING:
            return True
        tries = found.raw_description.pending_workflow_task.attempt
        if tries >= TRIES:  # Temporal retries forever without reporting it
            raise StoreError(
                f"execution {execution} cannot continue: its workflow task fails again and again "
                f"(attempt {tries})",
                hint=f"see why: temporal workflow show --workflow-id {execution}",
            )
        return found.typed_search_attributes.get(_STATUS) in _RESTING

    def check_worker(self, execution: str) -> None:
        """Check that a worker is available for an execution that should continue.

        Raises:
            StoreError: No worker has polled for work for a while.
        """
        if not self._call(self._has_worker()):
            raise StoreError(
                f"execution {execution} is recorded, and {self.location} has no worker",
                hint=f"start one: flowengine worker --store {self.location}",
            )

    async def _has_worker(self) -> bool:
        client = await self._connected()
        request = DescribeTaskQueueRequest(
            namespace=self._address.namespace,
            task_queue=TaskQueue(name=QUEUE),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
        )
        found = await client.workflow_service.describe_task_queue(request, timeout=PATIENCE)
        oldest = datetime.now(UTC) - _SEEN
        return any(
            poller.last_access_time.ToDatetime(tzinfo=UTC) > oldest for poller in found.pollers
        )

    async def _exists(self, execution: str) -> bool:
        handle = (await self._connected()).get_workflow_handle(execution)
        try:
            found = await handle.describe(rpc_timeout=PATIENCE)
        except RPCError as error:
            if error.status in (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT):
                return False
            raise
        return found.workflow_type == WORKFLOW

    def _ids(self, beginning: str) -> list[str]:
        """Return ids of executions with a prefix. The newest are possibly not listed yet."""
        if not beginning or set(beginning) - _ID_CHARACTERS:
            return []
        return sorted(self._call(self._listed(f"WorkflowId STARTS_WITH '{beginning}'")))

    async def _listed(self, condition: str) -> list[str]:
        query = f"WorkflowType = '{WORKFLOW}' AND {condition}"
        found: list[str] = []
        async for one in (await self._connected()).list_workflows(
            query, page_size=_SOME, rpc_timeout=PATIENCE
        ):
            found.append(one.id)
            if len(found) == _SOME:
                break
        return found

    def _found_waits(self, beginning: str) -> list[tuple[str, str]]:
        """Return the waits whose ids have a prefix, each with its execution.

        Raises:
            UsageError: The prefix is too short.
        """
        if len(beginning) < SHORT_WAIT:
            raise UsageError(
                f"{beginning!r} is too short to find a wait in {self.location}",
                hint=f"use at least {SHORT_WAIT} digits",
            )
        if set(beginning) - set("0123456789abcdef"):
            return []
        condition = f"{WAITS} = '{beginning[:SHORT_WAIT]}'"
        found = []
        for execution in self._call(self._listed(condition)):
            for number in self._numbers(execution):
                id = wait_id(execution, number)
                if id.startswith(beginning):
                    found.append((id, execution))
        return sorted(found)

    def _numbers(self, execution: str) -> list[int]:
        page = self.waits(WaitFilter("all", execution=execution), None, 1000)
        return [wait.number for wait in page.items]

    def _execution_of(self, wait: str) -> str:
        for id, execution in self._found_waits(wait):
            if id == wait:
                return execution
        raise NotFound(f"there is no wait {wait}", hint="list them: flowengine approvals list")


async def connect(address: Address) -> Client:
    """Return a connected client.

    Raises:
        StoreError: The server cannot be reached.
    """
    try:
        return await Client.connect(
            address.server, namespace=address.namespace, data_converter=CONVERTER
        )
    except RuntimeError as error:
        raise StoreError(
            f"cannot connect to Temporal at {address.server}: {error}",
            hint="is the server running?",
        ) from error


def _answer_of(method: str, answer: dict[str, Any]) -> Any:
    if "error" in answer:
        raise_error(answer["error"])
    return ANSWERS.get(method, lambda data: data)(answer["answer"])


def _no_execution(id: str) -> NotFound:
    return NotFound(f"there is no execution {id}", hint="list them: flowengine list")


def _only_workers() -> UsageError:
    return unsupported(
        "retry, fork, upgrade, and what else writes a journal from outside its worker"
    )
