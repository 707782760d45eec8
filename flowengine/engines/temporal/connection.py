"""The connection of a store to Temporal, on a separate event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from functools import partial
from time import monotonic
from typing import Any, TypeVar

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client, WorkflowHandle, WorkflowQueryFailedError
from temporalio.envconfig import ClientConfig
from temporalio.service import RPCError, RPCStatusCode

from flowengine.engines.temporal.address import Address
from flowengine.engines.temporal.objects import Objects
from flowengine.engines.temporal.payloads import converter
from flowengine.engines.temporal.requests import NO_TIME_YET, QUEUE
from flowengine.errors import Hint, NoWorker, StoreError
from flowengine.store_folder import REMOTE

T = TypeVar("T")
PATIENCE = timedelta(seconds=30)
"""How long to wait for a response, as a busy worker may take a while."""
_SOON_SECONDS = 1.0
"""If there is no answer for this long, there may be no worker."""
_SEEN = timedelta(seconds=75)
"""A live worker has polled for work within this time."""
_ONE_QUERY = timedelta(seconds=10)
"""After this time, a query is repeated, because the worker that took it may be dead."""
_NO_ANSWER = (RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED)
_REPEATED = {
    # The newest task of the workflow has failed.
    RPCStatusCode.FAILED_PRECONDITION: timedelta(seconds=5),
    # More requests of one workflow are open than Temporal takes.
    RPCStatusCode.RESOURCE_EXHAUSTED: PATIENCE,
}
"""How long a request is repeated that is refused for the moment."""
_AGAIN_SECONDS = 0.2
"""Delay before a query is repeated."""


class TemporalConnection:
    """Runs coroutines for callers on any thread, with a client that connects on first use.

    Args:
        address: The address of the namespace.
        objects: The object store for large values.
    """

    def __init__(self, address: Address, objects: Objects | None) -> None:
        self.address = address
        self._objects = objects
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._client: Client | None = None

    @property
    def location(self) -> str:
        """The address, as text."""
        return f"{REMOTE}{self.address.server}/{self.address.namespace}"

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop, from any thread.

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

    async def client(self) -> Client:
        """Return the connected client."""
        if self._client is None:
            self._client = await connect(self.address, self._objects)
        return self._client

    async def handle(self, execution: str) -> WorkflowHandle[Any, Any]:
        """Return the handle of an execution's workflow."""
        return (await self.client()).get_workflow_handle(execution)

    async def read(self, workflow: str, *arguments: Any, patience: timedelta = PATIENCE) -> Any:
        """Return the answer of an open workflow to a query.

        Raises:
            RPCError: No worker answers in time, or there is no such workflow.
            StoreError: The workflow refuses the query.
        """
        handle, until = await self.handle(workflow), monotonic() + patience.total_seconds()
        while True:
            try:
                one = min(patience, _ONE_QUERY)
                return await self.answer(
                    partial(handle.query, "read", args=arguments, rpc_timeout=one)
                )
            except RPCError as error:
                if error.status not in _NO_ANSWER or monotonic() >= until:
                    raise
            except WorkflowQueryFailedError as error:
                if error.message != NO_TIME_YET or monotonic() > until:
                    message = f"execution {workflow} does not answer: {error.message}"
                    raise StoreError(message) from error
            await asyncio.sleep(_AGAIN_SECONDS)

    async def answer(self, request: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the answer of a workflow to a request that needs a worker.

        Raises:
            NoWorker: There is none.
        """
        answering = asyncio.create_task(again_if_refused(request))
        done, _ = await asyncio.wait([answering], timeout=_SOON_SECONDS)
        if not done and not await self.has_worker():
            answering.cancel()
            raise self.no_worker()
        return await answering

    async def has_worker(self) -> bool:
        """Return whether a worker has polled for work lately."""
        client = await self.client()
        request = DescribeTaskQueueRequest(
            namespace=client.namespace,
            task_queue=TaskQueue(name=QUEUE),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
        )
        described = await client.workflow_service.describe_task_queue(request, timeout=PATIENCE)
        oldest = datetime.now(UTC) - _SEEN
        return any(
            poller.last_access_time.ToDatetime(tzinfo=UTC) > oldest for poller in described.pollers
        )

    def no_worker(self) -> NoWorker:
        """Return the error that no worker responds."""
        return NoWorker(
            f"no worker of {self.location} answers",
            hint=Hint(f"if there is none, start one: flowengine worker --store {self.location}"),
        )

    def close(self) -> None:
        """Stop the loop. A later call starts another."""
        with self._lock:
            loop, self._loop = self._loop, None
            thread, self._thread = self._thread, None
            self._client = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def _explained(self, error: RPCError) -> StoreError:
        if error.status in (RPCStatusCode.FAILED_PRECONDITION, *_NO_ANSWER):
            return self.no_worker()
        busy = error.status == RPCStatusCode.RESOURCE_EXHAUSTED
        hint = "repeat the command later" if busy else "is the server running?"
        return StoreError(f"{self.location}: {error.message}", hint=hint)


async def connect(address: Address, objects: Objects | None = None) -> Client:
    """Return a connected client.

    Args:
        address: The address.
        objects: The object store for large values.

    Raises:
        StoreError: The server cannot be reached.
    """
    # A configuration file of Temporal's tools could name another server.
    config = ClientConfig.load_client_connect_config(disable_file=True)
    named: Any = {"target_host": address.server, "namespace": address.namespace}
    try:
        return await Client.connect(**{**config, **named}, data_converter=converter(objects))
    except RuntimeError as error:
        raise StoreError(
            f"cannot connect to Temporal at {address.server}: {error}",
            hint="is the server running?",
        ) from error


async def again_if_refused(request: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Return the answer of a workflow.

    Temporal refuses a request while the newest task of the workflow has failed. This is also so for
    a moment if something arrives while the workflow is continued in another run. It also refuses
    more than a few queries and updates of one workflow at a time.
    """
    begun = monotonic()
    while True:
        try:
            return await request()
        except RPCError as error:
            limit = _REPEATED.get(error.status)
            if limit is None or monotonic() > begun + limit.total_seconds():
                raise
        await asyncio.sleep(_AGAIN_SECONDS)
