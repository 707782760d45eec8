"""The manager of environments: declare, ensure, release, inspect.

Bookkeeping happens immediately, under one lock, on the caller's thread. Coroutines on the
background loop do slow work. Reusing an open environment with a synchronous check therefore needs
no thread switch. Any task, thread or loop can open, use and release environments, in any order.
Each method that can wait has two variants: a blocking one, and a coroutine named `async_...`.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from flowengine.errors import Conflict, Hint, StoreError, UsageError
from flowengine.execution_environment import reaper
from flowengine.execution_environment.bookkeeping.books import Books, Capacity, Given, check_names
from flowengine.execution_environment.bookkeeping.instances import (
    Handle,
    Instance,
    describe,
    describe_spec,
)
from flowengine.execution_environment.clock import SystemTimerClock, TimerClock
from flowengine.execution_environment.lifecycle.closing_tasks import ClosingTasks, PlaceQueue
from flowengine.execution_environment.lifecycle.scope_release import (
    Acquisition,
    ReleaseReport,
    ScopeRelease,
    report_of,
)
from flowengine.execution_environment.observation import Subscriber, measure
from flowengine.execution_environment.reaper import examine
from flowengine.execution_environment.registry.entries import Registry, describe_entry, one_entry
from flowengine.execution_environment.registry.screens import ScreenAnswer, look
from flowengine.execution_environment.registry.workspaces import Wanted, Workspaces
from flowengine.execution_environment.resources.opening import ManagerServices, TimeBounds
from flowengine.sdk import processes as process_end
from flowengine.sdk.environments import Scope
from flowengine.sdk.environments.resources import background, refuse_in_loop
from flowengine.sdk.errors import StepError
from flowengine.sdk.processes import is_dead, this_process
from flowengine.sdk.python.user_code import until_done
from flowengine.store_folder import claim, find_store, state_folder

_FLUSH = 1.0
"""Seconds that subscribers have to receive the last events when a manager is closed."""


class EnvironmentManager:
    """Manages the environments of a process. Managers are independent of each other.

    Args:
        folder: Directory of the registry and the workspaces, writable only by this user. Default: a
            directory in the user's state directory. It belongs to the store in `$FLOWENGINE_STORE`,
            otherwise to the nearest `.flowengine`.
        capacity: Limits on open environments. Default: unlimited.
        bounds: Time limits of providers.
        wanted: Returns whether a scope and owner can continue later, possibly in another process.
            Their workspaces are kept when this process ends. Default: none.
        clock: Returns the time.
        guarded: Directories hidden from all sandboxes, in addition to those of the manager and its
            store.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        capacity: Capacity = Capacity(),  # noqa: B008 - it is immutable
        bounds: TimeBounds = TimeBounds(),  # noqa: B008
        wanted: Wanted | None = None,
        clock: TimerClock | None = None,
        guarded: Sequence[str | os.PathLike[str]] = (),
    ) -> None:
        if folder is None:
            guarded = [*guarded, find_store()[0]]
        place = Path(folder).absolute() if folder is not None else default_folder()
        clock = clock or SystemTimerClock()
        owner = this_process()
        self.id = os.urandom(6).hex()
        self._wanted = wanted or (lambda scope, owner_id: False)
        self._around = ManagerServices(
            self.id,
            owner,
            clock,
            bounds,
            Registry(place),
            Workspaces(place, owner, self.id),
            [Path(each).absolute() for each in guarded],
        )
        self._books = Books(self.id, clock, capacity)
        self.pid = self._books.pid
        """Id of the process that it belongs to."""
        self._closings = ClosingTasks(self._books, self._around)
        self._queue = PlaceQueue(self._books, clock, self._closings)
        self._acquisition = Acquisition(self._books, self._around, self._queue, self._closings)
        self._scope_release = ScopeRelease(self._books, self._acquisition.openings, self._closings)
        self._swept = False
        self._sweeping: Future[Any] | None = None
        measure(self)

    # Declaration

    def declare(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Check and record a spec, without starting anything.

        Args:
            spec: `{"kind": ...}`, with further keys as needed.

        Returns:
            The spec with all defaults, and its `id`.

        Raises:
            SpecInvalid: It is invalid. The error lists all faults.
        """
        return self._books.record(spec).spec.data()

    # Acquisition

    def ensure(self, spec: Given, *, holder: str | None = None) -> Handle:
        """Open an environment, or add a hold on the open one.

        Args:
            spec: A spec, or its id from `declare`.
            holder: Name of the caller, for messages. If all holds of an unhealthy environment
                belong to this holder, the environment is replaced immediately.

        Returns:
            A hold, to be released with `release`.

        Raises:
            RuntimeError: An event loop runs in this thread. Await `async_ensure` instead.
            EnvironmentFailure: It cannot be opened, for the reason given by the error's type.
            Refused: A policy denies it.
        """
        refuse_in_loop(None, "await async_ensure()")
        acquired = self._acquire(spec, holder)
        if isinstance(acquired, Handle):
            return acquired
        try:
            return acquired.result()
        except BaseException:
            self._acquisition.decline(acquired)
            raise

    async def async_ensure(self, spec: Given, *, holder: str | None = None) -> Handle:
        """Open an environment like `ensure`, in any event loop."""
        record = self._books.record(spec)
        try:
            return await self._acquisition.receive(self._acquire(record.spec.id, holder))
        except StepError as error:
            error.environment = record.spec.id
            raise

    def ensure_all(
        self, specs: Sequence[Given], *, holder: str | None = None
    ) -> builtins.list[Handle]:
        """Open several environments, all or none.

        Args:
            specs: The specs, in the order of opening.
            holder: Name of the caller.

        Returns:
            A hold on each.

        Raises:
            SpecInvalid: Two have one name.
            EnvironmentFailure: One cannot be opened. Those before it were released.
        """
        return background().run(self._ensure_all(specs, holder), "await async_ensure_all()")

    async def async_ensure_all(
        self, specs: Sequence[Given], *, holder: str | None = None
    ) -> builtins.list[Handle]:
        """Open several environments like `ensure_all`, in any event loop."""
        if len(specs) == 1:  # an open one needs no thread switch
            return [await self.async_ensure(specs[0], holder=holder)]
        return await background().wait(self._ensure_all(specs, holder))

    def open_ahead(self, spec: Given) -> Future[None]:
        """Start opening an environment that will be needed, and return immediately.

        Calls of `ensure` before it is open wait for this opening. Until then it has no holder. It
        stays open until its owner is released or suspended, its `idle` time is over, or its place
        is needed.

        Args:
            spec: A spec or its id.

        Returns:
            A future that is done when the environment is open, and cannot be cancelled. Its error
            is the one that `ensure` would raise, or `EnvironmentClosed` if the environment was
            released before it was open.

        Raises:
            EnvironmentClosed: The manager was closed, or belongs to another process.
            SpecInvalid: It is invalid.
        """
        opening = self._acquisition.open_ahead(self._books.record(spec))
        if not self._swept:
            self._sweep_once()
        return opening

    def use(self, spec: Given, *, holder: str | None = None) -> EnvironmentUse:
        """Return a sync and async context manager that provides the resource and releases it.

        Args:
            spec: A spec or its id.
            holder: Name of the caller.
        """
        return EnvironmentUse(self, spec, holder)

    # Release

    def release(self, handle: Handle | str) -> ReleaseReport:
        """Release one hold. Releasing the last one closes the environment.

        Releasing a hold again has no effect.

        Args:
            handle: A handle. Its id, or the id of its spec, releases any of its holds.

        Returns:
            The closed environments, and those that could not be closed.

        Raises:
            RuntimeError: An event loop runs in this thread. Await `async_release` instead.
            UnknownEnvironment: It never existed here.
        """
        refuse_in_loop(None, "await async_release()")
        return report_of(self._give_back(handle))

    async def async_release(self, handle: Handle | str) -> ReleaseReport:
        """Release one hold like `release`, in any event loop."""
        ended = self._give_back(handle)
        for _, closing in ended:
            await until_done(closing)
        return report_of(ended)

    def release_scope(self, scope: Scope, owner_id: str = "") -> ReleaseReport:
        """Release all environments of an owner in a scope, regardless of holders, newest first.

        The specs are discarded, and the workspaces are removed.

        Args:
            scope: `execution`, `session`, ...
            owner_id: The owner.

        Returns:
            The closed environments, and those that could not be closed.

        Raises:
            RuntimeError: An event loop runs in this thread. Await `async_release_scope` instead.
        """
        return background().run(
            self._scope_release.release(scope, owner_id), "await async_release_scope()"
        )

    async def async_release_scope(self, scope: Scope, owner_id: str = "") -> ReleaseReport:
        """Release an owner's environments like `release_scope`, in any event loop."""
        return await background().wait(self._scope_release.release(scope, owner_id))

    def suspend_scope(self, scope: Scope, owner_id: str = "") -> ReleaseReport:
        """Release the environments of an owner in a scope while the owner waits.

        An environment with `on_wait: keep` stays open for `keep_for`. Others are closed, and their
        workspaces remain. The next `ensure` reopens them.

        Args:
            scope: `execution`, ...
            owner_id: The owner.

        Returns:
            The closed environments, and those that could not be closed.

        Raises:
            RuntimeError: An event loop runs in this thread. Await `async_suspend_scope` instead.
        """
        return background().run(
            self._scope_release.suspend(scope, owner_id), "await async_suspend_scope()"
        )

    async def async_suspend_scope(self, scope: Scope, owner_id: str = "") -> ReleaseReport:
        """Release an owner's environments like `suspend_scope`, in any event loop."""
        return await background().wait(self._scope_release.suspend(scope, owner_id))

    def close(self) -> ReleaseReport:
        """Release everything, newest first. After that, no environment can be opened.

        This also happens automatically when the interpreter exits.

        Returns:
            The closed environments, and those that could not be closed.

        Raises:
            RuntimeError: An event loop runs in this thread. Await `async_close` instead.
        """
        report = background().run(self._close(), "await async_close()")
        self._books.events.flush(_FLUSH)
        return report

    async def async_close(self) -> ReleaseReport:
        """Release everything like `close`, in any event loop."""
        return await background().wait(self._close())

    def __enter__(self) -> EnvironmentManager:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    async def __aenter__(self) -> EnvironmentManager:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.async_close()

    # Inspection

    def inspect(self, id: str) -> dict[str, Any] | None:
        """Describe a spec or a handle.

        Args:
            id: Its id.

        Returns:
            Plain data without configuration, secrets and resource, or None if the id is unknown.
        """
        with self._books.lock:
            now = self._around.clock.monotonic()
            if id in self._books.records:
                return describe_spec(self._books.records[id], now)
            if id in self._books.instances:
                return describe(self._books.instances[id], now)
            ended = self._books.ended.get(id)
            return None if ended is None else dict(ended)

    def was_open(self, id: str) -> bool:
        """Return whether the environment of a spec was open before, in any process.

        Openings in other processes are known only while the spec's owner continues, because the
        workspace records them.

        Args:
            id: Id of a spec that was declared here.
        """
        record = self._books.record(id)
        spec = record.spec
        return record.was_open or self._around.workspaces.was_open(
            spec.scope, spec.owner_id, record.spec.id
        )

    def list(
        self,
        *,
        scope: Scope | None = None,
        owner_id: str | None = None,
        kind: str | None = None,
        state: str | None = None,
    ) -> builtins.list[dict[str, Any]]:
        """Describe declared and open environments, like `inspect`.

        Args:
            scope: Only this scope.
            owner_id: Only this owner.
            kind: Only this kind.
            state: Only this state.

        Returns:
            Copies, in the order of declaration.
        """
        wanted = {"scope": scope, "owner_id": owner_id, "kind": kind, "state": state}
        wanted = {key: value for key, value in wanted.items() if value is not None}
        with self._books.lock:
            now = self._around.clock.monotonic()
            all_of_them = [
                each
                for record in builtins.list(self._books.records.values())
                for each in (
                    [describe(instance, now) for instance in record.instances.values()]
                    or [describe_spec(record, now)]
                )
            ]
        return [each for each in all_of_them if all(each[key] == wanted[key] for key in wanted)]

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call a function with every future lifecycle event, on a separate thread.

        Args:
            subscriber: Called with each `Event`.

        Returns:
            A function that ends the subscription.
        """
        return self._books.events.subscribe(subscriber)

    def flush_events(self, seconds: float = _FLUSH) -> bool:
        """Wait until subscribers have received all events so far.

        Args:
            seconds: Maximum time to wait for one of them.

        Returns:
            Whether they have.
        """
        return self._books.events.flush(seconds)

    # Leftovers of dead processes

    def reap(self) -> builtins.list[dict[str, Any]]:
        """Clean up leftovers of dead processes: processes, containers, directories.

        This happens automatically before the first environment is opened that could leave something
        behind.

        Returns:
            One entry for each leftover, with `error` if cleaning up failed.

        Raises:
            RuntimeError: An event loop runs in this thread. Await `async_reap` instead.
        """
        return background().run(self._reap(), "await async_reap()")

    async def async_reap(self) -> builtins.list[dict[str, Any]]:
        """Clean up leftovers like `reap`, in any event loop."""
        return await background().wait(self._reap())

    # Records of this process and others

    def written(self) -> builtins.list[dict[str, Any]]:
        """Describe everything that this and other processes have open or left open, oldest first.

        Environments that cannot leave anything behind, such as databases, are not recorded.

        Returns:
            Plain data, as returned by `registry.entry_views.describe_entry`.
        """
        return [describe_entry(entry) for entry in self._around.registry.read()[0]]

    def written_one(self, name: str) -> dict[str, Any]:
        """Describe one recorded environment.

        Args:
            name: Its name, or an unambiguous prefix of its id.

        Returns:
            Plain data, as returned by `written`.

        Raises:
            NotFound: No environment matches.
            Conflict: Several environments match.
        """
        return describe_entry(one_entry(self._around.registry, name))

    def look(self, name: str) -> tuple[str, ScreenAnswer]:
        """Look into an environment that this or another process has open.

        It blocks for at most some seconds. The step that uses the environment is not disturbed.

        Args:
            name: Its name, or an unambiguous prefix of its id.

        Returns:
            Its id, and its screen.

        Raises:
            NotFound: No environment matches.
            Conflict: Several environments match, or it cannot be looked into.
        """
        entry = one_entry(self._around.registry, name)
        return entry.id, look(entry)

    def end_written(self, name: str, *, force: bool = False) -> dict[str, Any]:
        """End an environment that another process has open or left open.

        Args:
            name: Its name, or an unambiguous prefix of its id.
            force: Whether to end it even if a running process holds it, which then loses it.

        Returns:
            A description of the environment, with `error` if it could not be ended.

        Raises:
            NotFound: No environment matches.
            Conflict: Several environments match, or a running process holds it.
        """
        entry = one_entry(self._around.registry, name)
        if not force and not is_dead(owner := entry.leftover.owner):
            raise Conflict(
                f"environment '{name}' is in use by process {owner.pid} on {owner.host}",
                hint=Hint(
                    "it ends with that process. force=True ends it now, and its steps fail",
                    "it ends with that process. --force ends it now, and its steps fail",
                ),
            )
        ending = reaper.end_entry(entry, self._around, self._books)
        return background().run(ending, "call it in a thread without a loop")

    def examine(self) -> builtins.list[dict[str, Any]]:
        """Probe every kind of environment in every sandbox, without opening one.

        Returns:
            The abilities of this machine, as returned by `flowengine.execution_environment.reaper`.
        """
        return background().run(examine(self._around), "call it in a thread without a loop")

    # Internals

    def _acquire(self, spec: Given, holder: str | None) -> Handle | Future[Handle]:
        acquired = self._acquisition.acquire(self._books.record(spec), holder)
        if not self._swept:
            self._sweep_once()
        return acquired

    async def _ensure_all(
        self, specs: Sequence[Given], holder: str | None
    ) -> builtins.list[Handle]:
        records = [self._books.record(spec) for spec in specs]
        check_names(record.spec for record in records)
        handles: builtins.list[Handle] = []
        async with self._queue.together(records):
            await self._queue.reserve(records)
            try:
                for record in records:
                    try:
                        handles += [await self._acquisition.have(record, holder)]
                    except StepError as error:
                        error.environment = record.spec.id
                        raise
            except BaseException:
                await self._closings.give_back_all(handles)
                raise
            finally:
                self._queue.unreserve(records)
        return handles

    def _give_back(self, given: Handle | str) -> builtins.list[tuple[Instance, Future[str | None]]]:
        self._books.check_process()
        with self._books.lock:
            instance = self._books.find(given)
            closing = self._closings.give_back(given)
        return [] if closing is None or instance is None else [(instance, closing)]

    async def _reap(self) -> builtins.list[dict[str, Any]]:
        self._books.check_process()
        self._swept = True
        return await reaper.reap(self._around, self._books, self._wanted, wait=True)

    def _sweep_once(self) -> None:
        """Clean up leftovers of dead processes, concurrently with the first opening."""
        self._swept = True
        process_end.close_at_exit(self)
        with contextlib.suppress(RuntimeError):
            sweep = reaper.reap(self._around, self._books, self._wanted, wait=False)
            self._sweeping = background().submit(sweep)

    async def _close(self) -> ReleaseReport:
        report = await self._scope_release.close(self._wanted)
        sweeping, self._sweeping = self._sweeping, None
        if sweeping is not None:  # it would still access the directory
            with contextlib.suppress(Exception):  # errors of a sweep that was not requested
                await asyncio.wait_for(asyncio.wrap_future(sweeping), self._around.bounds.sweep)
        process_end.forget(self)
        return report


class EnvironmentUse:
    """An environment for a `with` block, which provides its resource.

    Args:
        manager: Opens it.
        spec: A spec or its id.
        holder: Name of the caller.
    """

    def __init__(self, manager: EnvironmentManager, spec: Given, holder: str | None) -> None:
        self._manager = manager
        self._spec = spec
        self._holder = holder
        self._handles: list[Handle] = []

    def __enter__(self) -> Any:
        handle = self._manager.ensure(self._spec, holder=self._holder)
        self._handles.append(handle)
        return handle.resource

    def __exit__(self, *_: object) -> None:
        self._manager.release(self._handles.pop())

    async def __aenter__(self) -> Any:
        handle = await self._manager.async_ensure(self._spec, holder=self._holder)
        self._handles.append(handle)
        return handle.resource

    async def __aexit__(self, *_: object) -> None:
        await self._manager.async_release(self._handles.pop())


def default_folder() -> Path:
    """Return the default directory for the registry.

    Raises:
        StoreError: The store here does not belong to the user, or its owner cannot be recorded.
    """
    folder, by_name = find_store()
    try:
        return Path(claim(folder, by_name=by_name), "environments")
    except OSError as error:
        raise StoreError(
            f"environments cannot be recorded in {state_folder()}: {error.strerror or error}",
            hint="set XDG_STATE_HOME to a writable directory, or give the manager a directory",
        ) from None


_lock = threading.Lock()
_global: EnvironmentManager | None = None


def manager() -> EnvironmentManager:
    """Return the manager of this process, created on first use."""
    global _global  # noqa: PLW0603 - one per process
    with _lock:
        if _global is None or _global._books.pid != os.getpid() or _global._books.closed:
            _global = EnvironmentManager()
        return _global


# Release of open environments when a signal ends the process.


def release_on_termination() -> None:
    """Make SIGTERM and SIGHUP end this process like an exit, so that all environments are released.

    Otherwise the kernel ends the process immediately, and the next process has to clean up.
    Programs with their own SIGTERM handler do not need this function. They close the manager, or
    exit. A SIGHUP that is ignored or has a handler is left alone.

    Raises:
        UsageError: SIGTERM has a handler already, or this is not the main thread.
    """
    import signal
    import sys

    if threading.current_thread() is not threading.main_thread():
        raise UsageError("signal handlers can only be set in the main thread")
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        raise UsageError("SIGTERM has a handler already", hint="call manager().close() in it")
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup makes the process ignore SIGHUP
            signal.signal(number, lambda number, _: sys.exit(128 + number))
