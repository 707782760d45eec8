"""Tasks that open environments, one for each opening, on the background loop.

A task waits until earlier openings of the spec have ended, then for a place, and the
directories of other environments. It opens the resource, and updates the books.
"""

from __future__ import annotations

import asyncio
import copy
import os
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from flowengine.execution_environment.bookkeeping.books import Books
from flowengine.execution_environment.bookkeeping.instances import (
    Handle,
    Instance,
    Provision,
    Record,
    Waiter,
    describe,
)
from flowengine.execution_environment.lifecycle.closing_tasks import ClosingTasks, PlaceQueue
from flowengine.execution_environment.resources.closing import close_resource, end_strays
from flowengine.execution_environment.resources.opening import (
    ManagerServices,
    Mounted,
    failure_of,
    open_resource,
    window_of,
)
from flowengine.execution_environment.specs.providers import find_provider
from flowengine.sdk.environments.resources import background
from flowengine.sdk.errors import (
    EnvironmentClosed,
    EnvironmentStartFailed,
    StepError,
)
from flowengine.sdk.python.user_code import lasting, until_done

Have = Callable[[Record, str | None], Awaitable[Handle]]
"""Returns a hold on the environment of a spec."""


@dataclass(eq=False)
class OpeningTasks:
    """Opens environments, and cancels openings without waiting callers.

    Args:
        books: The books of the manager.
        around: Objects shared by all openings.
        queue: Grants places.
        closings: Closes environments that are not needed.
        have: Returns holds on the environments whose directories are mounted.
    """

    books: Books
    around: ManagerServices
    queue: PlaceQueue
    closings: ClosingTasks
    have: Have

    def start(self, record: Record) -> Instance:
        """Start a new opening of a spec. Called under the lock."""
        instance = self.books.new_instance(record)
        instance.task = background().submit(self._open(instance))
        return instance

    def wait_for(self, instance: Instance, holder: str | None) -> Future[Handle]:
        """Return a future of a hold on an environment being opened. Called under the lock."""
        future: Future[Any] = Future()
        waiter = Waiter(future, holder)
        instance.waiters.append(waiter)
        instance.parked = False
        future.add_done_callback(partial(self._left, instance, waiter))
        return future

    def announce(self, instance: Instance) -> Future[None]:
        """Return a future that is done when it is open, without a hold. Called under the lock."""
        future = lasting()
        if instance.is_opening:
            instance.waiters.append(Waiter(future, None, holds=False))
        else:
            future.set_result(None)
        return future

    def _left(self, instance: Instance, waiter: Waiter, future: Future[Handle]) -> None:
        """Cancel an opening without waiting callers."""
        if not future.cancelled():
            return
        with self.books.lock:
            if waiter in instance.waiters:
                instance.waiters.remove(waiter)
            if not instance.waiters and not instance.holds:
                self.withdraw(instance)

    def withdraw(self, instance: Instance) -> None:
        """Cancel an opening, and close its result."""
        with self.books.lock:
            if not instance.is_opening:
                return
            instance.withdrawn = True
            if instance.record.current is instance:
                instance.record.current = None
            if instance.task is not None:
                instance.task.cancel()

    async def _open(self, instance: Instance) -> None:
        record = instance.record
        try:
            for earlier in [each for each in record.instances.values() if each is not instance]:
                if earlier.withdrawn or earlier.state == "releasing":
                    await until_done(earlier.ended)
            self.books.move(instance, "ensuring")
            await self.queue.acquire(instance)
            mounts = await self._mount(instance)
            opened = await open_resource(
                instance,
                self.around,
                mounts,
                partial(self._close_late, instance),
                partial(self.books.changed, instance),
            )
            self._check_own(instance, opened)
            instance.opened = opened
        except asyncio.CancelledError:
            self._finish(instance, self._unopened(instance, None))
        except BaseException as error:
            self._finish(instance, self._unopened(instance, failure_of(error, instance)))
        else:
            self._opened(instance)

    def _finish(self, instance: Instance, work: Coroutine[Any, Any, None]) -> None:
        """End an opening in a separate task, which cannot be cancelled."""
        instance.finishing = asyncio.ensure_future(work)

    def _opened(self, instance: Instance) -> None:
        """Make it ready, and give every waiting caller a hold."""
        assert instance.entry is not None
        instance.ready_at = max(instance.asked_at, self.around.clock.now())
        instance.entry.set_state("ready")
        instance.window = window_of(instance, self.around)
        if not instance.record.was_open:
            instance.record.was_open = True
            if instance.workspace is not None:
                self.around.workspaces.note_ready(instance.workspace)
        with self.books.lock:
            wanted = [waiter for waiter in instance.waiters if _stays(waiter)]
            instance.waiters.clear()
            self.books.move(instance, "ready")
            given = [
                (w.future, self.books.hold(instance, w.holder) if w.holds else None) for w in wanted
            ]
            if instance.withdrawn or not given:
                self.closings.close(instance)
            else:
                if (most := instance.record.spec.max_age) is not None:
                    retire = partial(self.closings.retire, instance)
                    instance.timers["age"] = self.around.clock.call_later(most, retire)
                if not instance.holds:
                    self.closings.rest(instance)
            closed = instance.state != "ready"
        for future, handle in given:
            if closed or (handle is not None and handle.given_back):
                future.set_exception(_closed(instance))
            else:
                future.set_result(handle)

    async def _unopened(self, instance: Instance, error: StepError | None) -> None:
        """End an opening that failed, or was cancelled. Waiting callers receive the error."""
        await end_strays(instance)
        name = None if error is None else error.name or type(error).__name__
        with self.books.lock:
            if instance.state == "ensuring":
                self.books.move(instance, "failed" if error else "releasing", name)
                if error is None:
                    self.books.move(instance, "released")
            if instance.entry is not None:
                instance.entry.remove()
            self.closings.let_workspace_go(instance, remove=False)
            self.books.give_place_back(instance)
            self.books.forget(instance, describe(instance, self.around.clock.monotonic()))
            waiters = list(instance.waiters)
            instance.waiters.clear()
        await self.closings.unmount(instance)
        instance.ended.set_result(None)
        for waiter in waiters:
            if _stays(waiter):
                waiter.future.set_exception(_copy(error) if error else _closed(instance))

    def _check_own(self, instance: Instance, opened: Provision) -> None:
        """Reject an object that already belongs to another opening, without touching it."""
        with self.books.lock:
            for other in self.books.instances.values():
                if other.opened is not None and other.opened.resource is opened.resource:
                    raise EnvironmentStartFailed(
                        f"{instance.record.spec}: provider '{opened.choice}' returned an "
                        f"object that belongs to {other.id} already"
                    )

    async def _close_late(self, instance: Instance, resource: Any) -> None:
        """Close a resource that arrived without a waiting caller."""
        provider = find_provider(instance.record.spec.kind)
        opened = Provision(provider, "", resource=resource)
        await close_resource(opened, self.around, suspend=False, lost=False)

    async def _mount(self, instance: Instance) -> dict[str, Mounted]:
        mounts = {}
        for inside, id in instance.record.spec.mounts.items():
            handle = await self.have(self.books.record(id), instance.id)
            instance.mounted.append(handle)
            folder = getattr(handle.resource, "path", None) or _real(handle.workspace)
            if folder is None:
                raise EnvironmentStartFailed(
                    f"{instance.record.spec}: {handle.resource_key} has no directory to mount"
                )
            writable = getattr(handle.resource, "writable", True) is not False
            mounts[inside] = Mounted(Path(folder), writable)
        return mounts


def _real(folder: Path | None) -> Path | None:
    """Return the path of a workspace without links, because the store can contain links."""
    return folder and Path(os.path.realpath(folder))


def _stays(waiter: Waiter) -> bool:
    """Return whether a waiter still waits. After that, it cannot leave."""
    return not waiter.holds or waiter.future.set_running_or_notify_cancel()


def _copy(error: StepError) -> StepError:
    """Return a copy of the error for one of several callers, with a separate traceback."""
    copied = copy.copy(error)
    copied.__cause__ = error.__cause__
    return copied


def _closed(instance: Instance) -> EnvironmentClosed:
    return EnvironmentClosed(f"{instance.record.spec} was released while it was being opened")
