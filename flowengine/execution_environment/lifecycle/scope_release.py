"""Release of all environments of an owner or of the manager, and its report."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import NamedTuple

from flowengine.execution_environment.bookkeeping.books import Books
from flowengine.execution_environment.bookkeeping.instances import Instance
from flowengine.execution_environment.futures import settled
from flowengine.execution_environment.lifecycle.closing_tasks import ClosingTasks
from flowengine.execution_environment.lifecycle.opening_tasks import OpeningTasks
from flowengine.execution_environment.registry.workspaces import Wanted
from flowengine.sdk.environments import Scope


class NotReleased(NamedTuple):
    """An environment that could not be closed. Closing is retried later."""

    id: str
    resource_key: str
    error: str
    """Name of the error's type."""


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
                if (record.declared.spec.scope, record.declared.spec.owner_id) == (scope, owner_id)
            ]
        report = await self._end(instances)
        with self._books.lock:
            for record in records:
                if not record.instances:
                    self._books.records.pop(record.declared.id, None)
                record.answer = None
        if not report.failed:
            await self._closings.end_workspaces(scope, owner_id)
        return report

    async def suspend(self, scope: Scope, owner_id: str) -> ReleaseReport:
        """Release all environments of an owner for a wait."""
        ended: list[tuple[Instance, Future[str | None]]] = []
        with self._books.lock:
            instances = self._books.of_owner(scope, owner_id)
        for instance in instances:
            if instance.is_ahead and instance.record.declared.on_wait == "release":
                self._openings.withdraw(instance)
                await settled(instance.ended)
                continue
            instance.parked = instance.is_ahead
            closing = self._closings.park(instance)
            if closing is not None:
                await settled(closing)
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
                (record.declared.spec.scope, record.declared.spec.owner_id)
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
                await settled(instance.ended)
                continue
            closing = self._closings.close(instance)
            if closing is not None:
                await settled(closing)
                ended.append((instance, closing))
        return report_of(ended)


def report_of(ended: Sequence[tuple[Instance, Future[str | None]]]) -> ReleaseReport:
    """Return the results of closings.

    Args:
        ended: Openings, each with its completed closing.

    Returns:
        The ids of those that were closed, and the errors of the others.
    """
    released, failed = [], []
    for instance, closing in ended:
        error = closing.result()
        if error is None:
            released.append(instance.id)
        else:
            key = instance.record.declared.resource_key
            failed.append(NotReleased(instance.id, key, error))
    return ReleaseReport(released, failed)
