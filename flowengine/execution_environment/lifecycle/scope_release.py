"""Release of all environments of an owner or of the manager, and its report."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from flowengine.execution_environment.bookkeeping.books import Books
from flowengine.execution_environment.bookkeeping.instances import Handle, Instance, Record
from flowengine.execution_environment.clock import within
from flowengine.execution_environment.lifecycle.closing_tasks import ClosingTasks, PlaceQueue
from flowengine.execution_environment.lifecycle.opening_tasks import OpeningTasks
from flowengine.execution_environment.registry.workspaces import Wanted
from flowengine.execution_environment.resources.opening import ManagerServices
from flowengine.sdk.environments import NotReleased, Scope
from flowengine.sdk.environments.resources import background
from flowengine.sdk.python.user_code import until_done


class ReleaseReport(NamedTuple):
    """The result of a release."""

    released: list[str]
    """Ids of the handles that were closed, in this order."""
    failed: list[NotReleased]


class ScopeRelease:
    """Closes groups of environments, newest first, one after the other.

    Args:
        books: The books of the manager.
        openings: Cancels openings.
        closings: Closes open environments.
    """

    def __init__(self, books: Books, openings: OpeningTasks, closings: ClosingTasks) -> None:
        self._books = books
        self._openings = openings
        self._closings = closings

    async def release(self, scope: Scope, owner_id: str) -> ReleaseReport:
        """Close all environments of an owner, newest first, and discard specs and directories."""
        with self._books.lock:
            instances = self._books.of_owner(scope, owner_id)
            records = [
                record
                for record in list(self._books.records.values())
                if (record.spec.scope, record.spec.owner_id) == (scope, owner_id)
            ]
        report = await self._end(instances)
        with self._books.lock:
            for record in records:
                if not record.instances:
                    self._books.records.pop(record.spec.id, None)
        if not report.failed:
            await self._closings.end_workspaces(scope, owner_id)
        return report

    async def suspend(self, scope: Scope, owner_id: str) -> ReleaseReport:
        """Release all environments of an owner for a wait."""
        ended: list[tuple[Instance, Future[str | None]]] = []
        with self._books.lock:
            instances = self._books.of_owner(scope, owner_id)
        for instance in instances:
            if instance.is_ahead and not instance.record.spec.is_kept:
                self._openings.withdraw(instance)
                await until_done(instance.ended)
                continue
            instance.parked = instance.is_ahead
            closing = self._closings.park(instance)
            if closing is not None:
                await until_done(closing)
                ended.append((instance, closing))
        return report_of(ended)

    async def close(self, wanted: Wanted) -> ReleaseReport:
        """Close all environments. After that, none can be opened.

        Args:
            wanted: Returns whether the directories of an owner are kept.

        Returns:
            The closed environments, and those that could not be closed.
        """
        with self._books.lock:
            self._books.closed = True
            instances = list(reversed(self._books.instances.values()))
            owners = {
                (record.spec.scope, record.spec.owner_id)
                for record in list(self._books.records.values())
            }
        report = await self._end(instances)
        for scope, owner_id in sorted(owners):
            if not wanted(scope, owner_id):
                await self._closings.end_workspaces(scope, owner_id)
        return report

    async def _end(self, instances: Sequence[Instance]) -> ReleaseReport:
        """Close environments one after the other, after cancelling unfinished openings."""
        ended: list[tuple[Instance, Future[str | None]]] = []
        for instance in instances:
            self._openings.withdraw(instance)
        for instance in instances:
            if instance.withdrawn:
                await until_done(instance.ended)
                continue
            closing = self._closings.close(instance)
            if closing is not None:
                await until_done(closing)
                ended.append((instance, closing))
        return report_of(ended)


def report_of(ended: Sequence[tuple[Instance, Future[str | None]]]) -> ReleaseReport:
    """Return the results of closings.

    Args:
        ended: Openings, each with its closing, which is awaited.

    Returns:
        The ids of those that were closed, and the errors of the others.
    """
    released, failed = [], []
    for instance, closing in ended:
        error = closing.result()
        if error is None:
            released.append(instance.id)
        else:
            failed.append(NotReleased(instance.id, instance.record.spec.key, error))
    return ReleaseReport(released, failed)


# Acquisition of holds on environments, which are opened first if necessary.
#
# `acquire` returns a hold immediately if an open environment passes a synchronous check. Otherwise
# it returns a future.


class Acquisition:
    """Returns holds.

    Args:
        books: The books of the manager.
        around: Objects shared by all openings.
        queue: Grants places.
        closings: Closes unhealthy environments.
    """

    def __init__(
        self, books: Books, around: ManagerServices, queue: PlaceQueue, closings: ClosingTasks
    ) -> None:
        self.books = books
        self.around = around
        self.closings = closings
        self.openings = OpeningTasks(books, around, queue, closings, self.have)

    def acquire(self, record: Record, holder: str | None) -> Handle | Future[Handle]:
        """Return a hold on the environment of a spec, or a future of one.

        Args:
            record: The spec.
            holder: Name of the caller.

        Returns:
            A handle if an open environment passed a synchronous check, otherwise a future.

        Raises:
            EnvironmentClosed: The manager was closed, or belongs to another process.
        """
        while True:
            with self.books.lock:
                self.books.check_usable()
                instance = record.current
                if instance is None:
                    return self.openings.wait_for(self.openings.start(record), holder)
                if instance.state != "ready":
                    return self.openings.wait_for(instance, holder)
                if self.closings.retire_if_old(instance):
                    continue
            verdict = self._check(instance)
            if isinstance(verdict, Future):
                return background().submit(self._acquire_slowly(record, instance, holder, verdict))
            reused = self._reuse(instance, holder, healthy=verdict)
            if reused is not None:
                return reused

    def open_ahead(self, record: Record) -> Future[None]:
        """Start opening the environment of a spec without a holder, unless it is open.

        Args:
            record: The spec.

        Returns:
            A future that is done when the environment is open.

        Raises:
            EnvironmentClosed: The manager was closed, or belongs to another process.
        """
        with self.books.lock:
            self.books.check_usable()
            return self.openings.announce(record.current or self.openings.start(record))

    async def have(self, record: Record, holder: str | None) -> Handle:
        """Return a hold on the environment of a spec, in any loop."""
        return await self.receive(self.acquire(record, holder))

    async def receive(self, acquired: Handle | Future[Handle]) -> Handle:
        """Await a hold. If the caller is cancelled, release it."""
        if isinstance(acquired, Handle):
            return acquired
        try:
            return await asyncio.wrap_future(acquired)
        except asyncio.CancelledError:
            self.decline(acquired)
            raise

    def decline(self, future: Future[Handle]) -> None:
        """Abandon a hold, even if it has not arrived yet."""
        if not future.cancel() and not future.cancelled() and future.exception() is None:
            self.closings.give_back(future.result())

    async def _acquire_slowly(
        self, record: Record, instance: Instance, holder: str | None, verdict: Future[bool]
    ) -> Handle:
        await until_done(verdict)
        healthy = not verdict.cancelled() and verdict.result()
        reused = self._reuse(instance, holder, healthy=healthy)
        return reused if reused is not None else await self.have(record, holder)

    def _reuse(self, instance: Instance, holder: str | None, *, healthy: bool) -> Handle | None:
        """Add a hold, or start replacing an unhealthy environment. None: check again."""
        with self.books.lock:
            self.books.check_usable()
            if instance.record.current is not instance or instance.state != "ready":
                return None
            instance.checked_at = self.around.clock.monotonic()
            if healthy:
                instance.stop_timer("idle")
                instance.stop_timer("keep")
                return self.books.hold(instance, holder)
            self.books.move(instance, "unhealthy")
            self.closings.replace(instance, holder)
            return None

    def _check(self, instance: Instance) -> bool | Future[bool]:
        """Check health through the provider: immediately, or by a check that all callers share."""
        opened = instance.opened
        if opened is None:
            return False
        if (running := instance.checking) is not None:
            return running
        try:
            given = opened.provider.health_check(opened.resource)
        except KeyboardInterrupt:
            raise
        except BaseException:
            return False
        if given is True or given is False or not inspect.isawaitable(given):
            return bool(given)
        with self.books.lock:
            if instance.checking is None:
                instance.checking = background().submit(self._check_slowly(instance, given))
            elif inspect.iscoroutine(given):
                given.close()
            return instance.checking

    async def _check_slowly(self, instance: Instance, given: Any) -> bool:
        try:
            return bool(await within(self.around.clock, self.around.bounds.check, given))
        except Exception:
            return False
        finally:
            with self.books.lock:
                instance.checking = None
