"""Stores in Temporal that take the place of those that a test opens, each with a worker.

The workers run in the process of the test, so that they have its functions, providers and
variables. `tests/engines/test_temporal*.py` show what is different in another process.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import wraps
from secrets import token_hex
from typing import Any

from temporalio.client import Client, WorkflowExecution
from temporalio.service import RPCError

from flowengine.engines import engine
from flowengine.engines.stores import open_store
from flowengine.engines.temporal import worker, working
from flowengine.engines.temporal.heartbeat import DEFAULT
from flowengine.engines.temporal.listing import Listing
from flowengine.engines.temporal.objects import VARIABLE
from flowengine.engines.temporal.requests import WORKFLOW
from flowengine.store_folder import REMOTE, SETTING
from tests.engines.temporal_server import new_namespaces
from tests.replacing import patches_everywhere

MOST = 10
"""Maximum number of stores of one test."""
LISTS = ("executions", "counts", "ids", "ended", "waits", "found_waits")
"""Methods that read the index of workflows."""


class Namespaces:
    """New namespaces of a development server.

    Args:
        addresses: The common part of their addresses.
    """

    def __init__(self, addresses: str) -> None:
        self._addresses = addresses
        self._left: list[str] = []

    def prepare(self) -> None:
        """Have enough of them for a test."""
        if len(self._left) < MOST:
            self._left += new_namespaces(self._addresses, *(token_hex(8) for _ in range(MOST)))

    def take(self) -> str:
        """Return the address of a new one."""
        return self._left.pop()


class Stores:
    """The stores of one test."""

    def __init__(self, namespaces: Namespaces) -> None:
        namespaces.prepare()
        self._namespaces = namespaces
        self._open = open_store  # so that tests of folders are those of Temporal, unchanged
        self._of_folders: dict[str, str] = {}
        self._idle = set[str]()
        self._workers = ExitStack()
        self.default = self._new()
        self.are_used = False
        """Whether the test has opened one."""

    def opened(self, store: Any, durability: Any) -> Any:
        """Open the store that takes the place of another one: as the function that engines call."""
        if store is None or isinstance(store, str | os.PathLike):
            store = self._address(store)
            if store in self._idle:
                self._idle.remove(store)
                self._workers.enter_context(running_worker(store))
                self.are_used = True
        return self._open(store, durability)

    def _address(self, store: str | os.PathLike[str] | None) -> str:
        named = self._new() if store is None else os.fspath(store) or self.default
        if named.startswith(REMOTE):
            return named
        folder = os.path.abspath(named)
        if folder not in self._of_folders:
            self._of_folders[folder] = self._new()
        return self._of_folders[folder]

    def _new(self) -> str:
        address = self._namespaces.take()
        self._idle.add(address)
        return address

    def close(self) -> None:
        """Stop their workers."""
        self._workers.close()


@contextmanager
def stores_in_temporal(namespaces: Namespaces, objects: str) -> Iterator[Stores]:
    """Have engines of this process use stores in Temporal in place of all others.

    Args:
        namespaces: Where to take them from.
        objects: A directory for large values and files.
    """
    stores, begun = Stores(namespaces), Begun()
    with patches_everywhere() as patch:
        patch.setenv(VARIABLE, objects)
        patch.setenv(SETTING, stores.default)
        patch.setattr(engine, "open_store", stores.opened)
        patch.setattr(worker, "guarded", unguarded)
        patch.setattr(Client, "start_workflow", begun.noted(Client.start_workflow))
        for name in LISTS:
            patch.setattr(Listing, name, begun.awaited(getattr(Listing, name)))
        try:
            yield stores
        finally:
            stores.close()


def unguarded(*_: Any) -> AbstractContextManager[None]:
    """Run no guard, because it would end the process of the tests."""
    return nullcontext()


@contextmanager
def running_worker(address: str) -> Iterator[None]:
    """Run a worker on a thread of this process."""
    loop, stopping, ready = asyncio.new_event_loop(), asyncio.Event(), threading.Event()
    failures: list[BaseException] = []

    def run() -> None:
        work = working.work(
            address,
            drain=0,
            heartbeat=DEFAULT,
            log_format="text",
            deployment=None,
            stopping=stopping,
            on_ready=ready.set,
            on_attempt=lambda execution, flow, step: None,
            on_start=lambda start: None,
        )
        try:
            loop.run_until_complete(work)
        except BaseException as error:
            failures.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        ready.wait()
        if failures:
            raise failures[0]
        yield
    finally:
        loop.call_soon_threadsafe(stopping.set)
        thread.join()
        loop.close()


class Begun:
    """The executions of a test, which its lists wait for: the index lags behind."""

    def __init__(self) -> None:
        self._ids: dict[str, set[str]] = {}
        """Namespace → executions."""

    def noted(self, start: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """Return `Client.start_workflow`, which also notes the execution."""

        @wraps(start)
        async def noting(client: Client, workflow: Any, *args: Any, **options: Any) -> Any:
            if workflow == WORKFLOW:
                self._ids.setdefault(client.namespace, set()).add(options["id"])
            return await start(client, workflow, *args, **options)

        return noting

    def awaited(self, read: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """Return a method of `Listing` that first waits until the index knows everything."""

        @wraps(read)
        async def waiting(listing: Listing, *args: Any) -> Any:
            client = await listing._connection.client()  # in the namespace that is listed
            while not await self._are_indexed(client):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.02)
            return await read(listing, *args)

        return waiting

    async def _are_indexed(self, client: Client) -> bool:
        found = {(row.id, row.run_id): row async for row in client.list_workflows()}
        for id in self._ids.get(client.namespace, ()):
            try:
                newest = await client.get_workflow_handle(id).describe()
            except RPCError:  # it was deleted
                continue
            row = found.get((id, newest.run_id))
            if row is None or indexed(row) != indexed(newest):
                return False
        return True


def indexed(workflow: WorkflowExecution) -> Any:
    """Return what the index knows of a workflow."""
    memo = {name: payload.data for name, payload in workflow.raw_info.memo.fields.items()}
    return workflow.status, memo, workflow.typed_search_attributes
