"""The connection of a store to Temporal, on a separate event loop."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from functools import partial
from math import inf
from time import monotonic, sleep
from typing import Any, NamedTuple, TypeVar

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client, WorkflowHandle, WorkflowQueryFailedError
from temporalio.envconfig import ClientConfig
from temporalio.service import RPCError, RPCStatusCode

from flowengine.engines.temporal.objects import Objects
from flowengine.engines.temporal.payloads import converter
from flowengine.engines.temporal.requests import NOT_COMPLETED, QUEUE
from flowengine.errors import Hint, NoWorker, StoreError, UsageError
from flowengine.store_folder import REMOTE

_FORM = re.compile(re.escape(REMOTE) + r"(?P<server>[^/@?#\s]+:\d+)/(?P<namespace>[^/?#\s]+)/?\Z")


class Address(NamedTuple):
    """The location of executions."""

    server: str
    """Host and port."""
    namespace: str


def read_address(text: str) -> Address:
    """Return the parts of an address.

    Raises:
        UsageError: The address is not valid.
    """
    match = _FORM.match(text)
    if match is None:
        raise UsageError(
            f"{text!r} is not the address of a store in Temporal",
            hint=f"it has the form {REMOTE}HOST:PORT/NAMESPACE",
        )
    return Address(match["server"], match["namespace"])


T = TypeVar("T")
PATIENCE = timedelta(seconds=30)
"""How long to wait for a response, as a busy worker may take a while."""
_SOON_SECONDS = 1.0
"""After this time without an answer, it is checked whether a worker exists."""
_NOTICED_SECONDS = 0.1
"""After this time, the library has noticed that a request was cancelled."""
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
_CREDENTIALS = "see the variables TEMPORAL_API_KEY and TEMPORAL_TLS of this process"
_HINTS = {
    RPCStatusCode.INVALID_ARGUMENT: None,
    RPCStatusCode.PERMISSION_DENIED: _CREDENTIALS,
    RPCStatusCode.RESOURCE_EXHAUSTED: "repeat the command later",
    RPCStatusCode.UNAUTHENTICATED: _CREDENTIALS,
}
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
        self._loop: _Loop | None = None
        self._end: Callable[[], None] | None = None
        """Ends the loop, at the latest when the program ends."""
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
        try:
            return self.submit(coroutine).result()
        except RPCError as error:
            raise self._explained(error) from error

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin a coroutine on the loop, from any thread."""
        with self._lock:
            if self._loop is None:
                self._loop = _Loop()
                self._end = weakref.finalize(self, self._loop.end)
            return self._loop.begin(coroutine)

    def cancel(self, task: asyncio.Task[Any]) -> None:
        """Cancel a task of the loop, from any thread."""
        if self._loop is not None:
            self._loop.cancel(task)

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
            RPCError: No worker answers in time, or the workflow does not exist.
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
                if error.message != NOT_COMPLETED or monotonic() > until:
                    message = f"execution {workflow} does not answer: {error.message}"
                    raise StoreError(message) from error
            await asyncio.sleep(_AGAIN_SECONDS)

    async def answer(
        self, request: Callable[[], Coroutine[Any, Any, T]], patience: timedelta | None = None
    ) -> T:
        """Return the answer of a workflow to a request that needs a worker.

        Args:
            request: Sends it.
            patience: How long a worker may take. Default: as long as one that was killed can hold
                the answer up.

        Raises:
            NoWorker: There is none, or none that answers. Temporal's library would ask forever.
                What a worker was doing when it was killed can hold an answer up for a while.
        """
        answering = asyncio.create_task(again_if_refused(request))
        until = monotonic() + (patience or _SEEN).total_seconds()
        while not (await asyncio.wait([answering], timeout=_SOON_SECONDS))[0]:
            if monotonic() < until and await self.has_worker():
                continue
            answering.cancel()
            await asyncio.wait([answering])
            if answering.cancelled() or answering.exception() is not None:
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
            end, self._end = self._end, None
            self._loop, self._client = None, None
        if end is not None:
            end()

    def _explained(self, error: RPCError) -> StoreError:
        if error.status in (RPCStatusCode.FAILED_PRECONDITION, *_NO_ANSWER):
            return self.no_worker()
        hint = _HINTS.get(error.status, "is the server running?")
        return StoreError(f"{self.location}: {error.message}", hint=hint)


class _Loop:
    """An event loop on a thread, which ends with its connection, or with the program.

    Temporal's library answers requests from threads that it starts. Once Python is being finalized,
    that would abort the process or hold it up, so that no request may be open then.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._is_ending = False
        self._cancelled = -inf
        """When a request was cancelled last. The library's thread notices it some time later."""
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="flowengine-temporal", daemon=True
        )
        self._thread.start()

    def begin(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin a coroutine, from any thread."""
        if self._is_ending:
            coroutine.close()
            raise StoreError("no request is made to Temporal while the program ends")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def cancel(self, task: asyncio.Task[Any]) -> None:
        """Cancel a task, from any thread."""
        self._cancelled = monotonic()
        self._loop.call_soon_threadsafe(task.cancel)

    def end(self) -> None:
        """Cancel open tasks, and end the loop."""
        self._is_ending = True
        self._loop.call_soon_threadsafe(self._loop.create_task, self._cancel_all())
        self._thread.join()
        self._loop.close()
        if monotonic() - self._cancelled < _SOON_SECONDS:
            sleep(_NOTICED_SECONDS)

    async def _cancel_all(self) -> None:
        until = monotonic() + _SOON_SECONDS
        while (open_ := asyncio.all_tasks() - {asyncio.current_task()}) and monotonic() < until:
            self._cancelled = monotonic()
            for task in open_:
                task.cancel()
            await asyncio.wait(open_, timeout=_SOON_SECONDS)
            await asyncio.sleep(0)  # others may have been about to begin
        self._loop.stop()


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
    who = f"{os.getpid()}@{socket.gethostname()}#{os.urandom(8).hex()}"
    named: Any = {"target_host": address.server, "namespace": address.namespace, "identity": who}
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
