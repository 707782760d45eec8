"""The manager of environments: declare, ensure, release, inspect.

Bookkeeping is done at once, under one lock, on the thread of whoever asks; whatever may take time
is done by coroutines on the background loop. So reusing an open environment with a plain check
costs no change of threads, and any task, thread or loop may open, use and give back in any order.
Each verb that may wait is there twice: blocking, and as a coroutine named `async_...`.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from flowengine.errors import Conflict, StoreError
from flowengine.execution_environment import approving, process_end, reaper
from flowengine.execution_environment.bookkeeping import Books, Given, check_names
from flowengine.execution_environment.capacity import Capacity
from flowengine.execution_environment.clock import Clock, SystemClock
from flowengine.execution_environment.doctor import examine
from flowengine.execution_environment.endings import Endings
from flowengine.execution_environment.events import Subscriber
from flowengine.execution_environment.futures import settled
from flowengine.execution_environment.inspecting import describe, describe_spec
from flowengine.execution_environment.instances import Handle, Instance, Record
from flowengine.execution_environment.opening import Bounds, Surroundings
from flowengine.execution_environment.records import Records
from flowengine.execution_environment.scopes import Report, Scopes, report_of
from flowengine.execution_environment.sharing import Sharing
from flowengine.execution_environment.telemetry import measure
from flowengine.execution_environment.turns import Turns
from flowengine.execution_environment.use import Use
from flowengine.execution_environment.workspaces import Wanted, Workspaces
from flowengine.execution_environment.written import describe_entry, one_entry
from flowengine.policy_approval import Answer
from flowengine.sdk.background import background, refuse_in_loop
from flowengine.sdk.environments import Scope
from flowengine.sdk.errors import StepError
from flowengine.sdk.process_identity import is_dead, this_process
from flowengine.store_folder import claim, find_store, state_folder

_Result = TypeVar("_Result")
_FLUSH = 1.0
"""Seconds that subscribers get for the last events when a manager is closed."""


class EnvironmentManager:
    """Keeps the environments of a process. Managers know nothing of one another.

    Args:
        folder: Where what is open is written down, and where workspaces are: a folder that only
            this user may write. Default: that of the store in `$FLOWENGINE_STORE`, else of the
            nearest `.flowengine`, which lies in the user's state folder.
        capacity: How much may be open at once; default: anything.
        bounds: How long providers may take.
        wanted: Says of a scope and owner whether it may still go on, in another process too: its
            workspaces are kept when this process ends. Default: none.
        clock: Tells the time.
        guarded: Folders that no sandbox may see; the manager's own, and that of its store, are
            guarded in any case.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        capacity: Capacity = Capacity(),  # noqa: B008 - it never changes
        bounds: Bounds = Bounds(),  # noqa: B008
        wanted: Wanted | None = None,
        clock: Clock | None = None,
        guarded: Sequence[str | os.PathLike[str]] = (),
    ) -> None:
        if folder is None:
            guarded = [*guarded, find_store()[0]]
        place = Path(folder).absolute() if folder is not None else default_folder()
        clock = clock or SystemClock()
        owner = this_process()
        self.id = os.urandom(6).hex()
        self._wanted = wanted or (lambda scope, owner_id: False)
        self._around = Surroundings(
            self.id,
            owner,
            clock,
            bounds,
            Records(place),
            Workspaces(place, owner, self.id),
            [Path(each).absolute() for each in guarded],
        )
        self._books = Books(self.id, clock, capacity)
        self._endings = Endings(self._books, self._around)
        self._turns = Turns(self._books, clock, self._endings)
        self._sharing = Sharing(self._books, self._around, self._turns, self._endings)
        self._scopes = Scopes(self._books, self._sharing.openings, self._endings)
        self._swept = False
        self._sweeping: Future[Any] | None = None
        measure(self)

    # Declaring

    def declare(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Check and remember a spec; nothing is started.

        Args:
            spec: `{"kind": ...}` and what else is to be said of it.

        Returns:
            The spec with all defaults, and its `id`.

        Raises:
            SpecInvalid: It has faults; the error lists all of them.
        """
        return self._books.record(spec).declared.data()

    def answer(self, question: str, answer: Mapping[str, Any]) -> None:
        """Answer a question whose handler said that the answer comes later.

        Args:
            question: Id of the question (`ApprovalPending.question`), or of the spec.
            answer: `{"approved": True}`, as a handler answers.

        Raises:
            UnknownEnvironment: The spec was not declared here.
            Conflict: It was answered already; the first answer stands.
            Rejected: The answer cannot be understood.
        """
        record = self._books.record(question.removeprefix("ask_"))
        approving.take_answer(record, answer, self._books)

    async def async_consult(
        self, spec: Given, question: str, reason: str | None = None, required: bool = False
    ) -> tuple[str, Answer] | None:
        """Ask whoever may answer at once whether a spec may be opened; nothing is opened.

        That is the answer that stands for the spec already, or the handler that was configured;
        the default one, which asks on the terminal, is not asked.

        Args:
            spec: A spec or its id.
            question: Id by which the question can be answered later.
            reason: Why it is wanted.
            required: A handler's yes is not enough, only its no counts.

        Returns:
            Who answered, and the answer; None: nobody did, or the answer comes later.
        """
        record = self._books.record(spec)
        asking = approving.consult(record, self._books, question, reason, required)
        return await background().wait(asking)

    # Having

    def ensure(self, spec: Given, *, holder: str | None = None) -> Handle:
        """Open an environment, or take another hold on the one that is open.

        Args:
            spec: A spec, or the id that `declare` gave it.
            holder: Who asks, for messages; and where all holds of an unhealthy environment are
                this holder's, it is replaced at once.

        Returns:
            A hold, to be given back by `release`.

        Raises:
            RuntimeError: An event loop runs in this thread; await `async_ensure`.
            EnvironmentFailure: It cannot be had; the type says why.
            Rejected: Somebody was asked, and said no.
            Refused: A policy says no.
        """
        refuse_in_loop(None, "async_ensure()")
        return self._now(self._begin(spec, holder))

    async def async_ensure(self, spec: Given, *, holder: str | None = None) -> Handle:
        """Open or reuse an environment, as `ensure`, in any event loop."""
        record = self._books.record(spec)
        try:
            found = self._begin(record.declared.id, holder)
            return found if isinstance(found, Handle) else await self._sharing.take(found)
        except StepError as error:
            error.environment = record.declared.id
            raise

    def ensure_all(
        self, specs: Sequence[Given], *, holder: str | None = None
    ) -> builtins.list[Handle]:
        """Open several environments, all or none.

        Args:
            specs: In the order in which they are opened.
            holder: Who asks.

        Returns:
            A hold on each.

        Raises:
            SpecInvalid: Two have one name.
            EnvironmentFailure: One cannot be had; those before it were given back.
        """
        return self._blocking(self._ensure_all(specs, holder), "async_ensure_all()")

    async def async_ensure_all(
        self, specs: Sequence[Given], *, holder: str | None = None
    ) -> builtins.list[Handle]:
        """Open several environments, as `ensure_all`, in any event loop."""
        if len(specs) == 1:  # one that is open is had without a change of threads
            return [await self.async_ensure(specs[0], holder=holder)]
        return await background().wait(self._ensure_all(specs, holder))

    def use(self, spec: Given, *, holder: str | None = None) -> Use:
        """Return a context manager, plain and async, that gives the resource and releases it.

        Args:
            spec: A spec or its id.
            holder: Who asks.
        """
        return Use(self, spec, holder)

    # Giving back

    def release(self, handle: Handle | str) -> Report:
        """Give back one hold; the last one closes the environment.

        What was given back already is left as it is.

        Args:
            handle: A handle; or its id, or the id of its spec, for any of its holds.

        Returns:
            What was closed, or could not be.

        Raises:
            RuntimeError: An event loop runs in this thread; await `async_release`.
            UnknownEnvironment: There never was such a thing here.
        """
        refuse_in_loop(None, "async_release()")
        closing = self._give_back(handle)
        if closing is None:
            return Report([], [])
        closing[1].result()
        return report_of([closing])

    async def async_release(self, handle: Handle | str) -> Report:
        """Give back one hold, as `release`, in any event loop."""
        closing = self._give_back(handle)
        if closing is None:
            return Report([], [])
        await settled(closing[1])
        return report_of([closing])

    def release_scope(self, scope: Scope, owner_id: str = "") -> Report:
        """Give back all that an owner has in a scope, whoever holds it, newest first.

        Its specs are forgotten, and so are the answers about them; its workspaces are removed.

        Args:
            scope: `execution`, `session`, ...
            owner_id: The owner.

        Returns:
            What was closed, and what could not be.

        Raises:
            RuntimeError: An event loop runs in this thread; await `async_release_scope`.
        """
        return self._blocking(self._scopes.release(scope, owner_id), "async_release_scope()")

    async def async_release_scope(self, scope: Scope, owner_id: str = "") -> Report:
        """Give back all of an owner, as `release_scope`, in any event loop."""
        return await background().wait(self._scopes.release(scope, owner_id))

    def suspend_scope(self, scope: Scope, owner_id: str = "") -> Report:
        """Give back what an owner has in a scope for as long as it waits.

        What its spec wants kept (`on_wait: keep`) stays open for `keep_for`; anything else is
        closed, and its workspace stays. The next `ensure` has it again.

        Args:
            scope: `execution`, ...
            owner_id: The owner.

        Returns:
            What was closed, and what could not be.

        Raises:
            RuntimeError: An event loop runs in this thread; await `async_suspend_scope`.
        """
        return self._blocking(self._scopes.suspend(scope, owner_id), "async_suspend_scope()")

    async def async_suspend_scope(self, scope: Scope, owner_id: str = "") -> Report:
        """Give back for a wait, as `suspend_scope`, in any event loop."""
        return await background().wait(self._scopes.suspend(scope, owner_id))

    def close(self) -> Report:
        """Give back everything, newest first; afterwards nothing can be opened.

        It happens by itself when the interpreter ends.

        Returns:
            What was closed, and what could not be.

        Raises:
            RuntimeError: An event loop runs in this thread; await `async_close`.
        """
        report = self._blocking(self._close(), "async_close()")
        self._books.events.flush(_FLUSH)
        return report

    async def async_close(self) -> Report:
        """Give back everything, as `close`, in any event loop."""
        return await background().wait(self._close())

    def __enter__(self) -> EnvironmentManager:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    async def __aenter__(self) -> EnvironmentManager:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.async_close()

    # Looking

    def inspect(self, id: str) -> dict[str, Any] | None:
        """Describe a spec or a handle.

        Args:
            id: Of either.

        Returns:
            Plain data without configuration, secrets and resource; None: it is unknown here.
        """
        with self._books.lock:
            now = self._around.clock.monotonic()
            if id in self._books.records:
                return describe_spec(self._books.records[id], now)
            if id in self._books.instances:
                return describe(self._books.instances[id], now)
            gone = self._books.gone.get(id)
            return None if gone is None else dict(gone)

    def was_open(self, id: str) -> bool:
        """Return whether the environment of a spec was open before, in this process or another.

        Another process is known of where the spec's owner goes on: its workspace says so.

        Args:
            id: Of a spec that was declared here.
        """
        record = self._books.record(id)
        spec = record.declared.spec
        return record.was_open or self._around.workspaces.was_open(
            spec.scope, spec.owner_id, record.declared.id
        )

    def list(
        self,
        *,
        scope: Scope | None = None,
        owner_id: str | None = None,
        kind: str | None = None,
        state: str | None = None,
    ) -> builtins.list[dict[str, Any]]:
        """Describe what is declared and what is open, as `inspect` does.

        Args:
            scope: Only of this scope.
            owner_id: Only of this owner.
            kind: Only of this kind.
            state: Only in this state.

        Returns:
            Copies, in the order in which they were declared.
        """
        wanted = {"scope": scope, "owner_id": owner_id, "kind": kind, "state": state}
        wanted = {key: value for key, value in wanted.items() if value is not None}
        with self._books.lock:
            now = self._around.clock.monotonic()
            all_of_them = [
                each
                for record in self._records()
                for each in (
                    [describe(instance, now) for instance in record.instances.values()]
                    or [describe_spec(record, now)]
                )
            ]
        return [each for each in all_of_them if all(each[key] == wanted[key] for key in wanted)]

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call a function with every lifecycle event from now on, on a thread of its own.

        Args:
            subscriber: Gets each `Event`.

        Returns:
            A function that ends the subscription.
        """
        return self._books.events.subscribe(subscriber)

    def flush_events(self, seconds: float = _FLUSH) -> bool:
        """Wait until subscribers got all events so far.

        Args:
            seconds: The longest time to wait for one of them.

        Returns:
            Whether they did.
        """
        return self._books.events.flush(seconds)

    # What dead processes left

    def reap(self) -> builtins.list[dict[str, Any]]:
        """End what dead processes left open: processes, containers, folders.

        It happens by itself before the first environment is opened that could leave something.

        Returns:
            What was found, one entry each, with `error` where it could not be ended.

        Raises:
            RuntimeError: An event loop runs in this thread; await `async_reap`.
        """
        return self._blocking(self._reap(), "async_reap()")

    async def async_reap(self) -> builtins.list[dict[str, Any]]:
        """End what dead processes left, as `reap`, in any event loop."""
        return await background().wait(self._reap())

    @property
    def pid(self) -> int:
        """The process it belongs to."""
        return self._books.pid

    # What is written down, by this process and others

    def written(self) -> builtins.list[dict[str, Any]]:
        """Describe all that this and other processes have open or left open, oldest first.

        What can leave nothing, such as a database, is not written down.

        Returns:
            Plain data: see `flowengine.execution_environment.written.describe_entry`.
        """
        return [describe_entry(entry) for entry in self._around.records.read()[0]]

    def written_one(self, name: str) -> dict[str, Any]:
        """Describe one of them.

        Args:
            name: Its name, or any unambiguous beginning of its id.

        Returns:
            Plain data, as of `written`.

        Raises:
            NotFound: There is none.
            Conflict: There are several.
        """
        return describe_entry(one_entry(self._around.records, name))

    def end_written(self, name: str, *, force: bool = False) -> dict[str, Any]:
        """End an environment that another process left open, or has open.

        Args:
            name: Its name, or any unambiguous beginning of its id.
            force: Take it also from a process that lives; that one finds it lost.

        Returns:
            What was ended, with `error` where that failed.

        Raises:
            NotFound: There is none.
            Conflict: There are several, or a living process has it.
        """
        entry = one_entry(self._around.records, name)
        if not force and not is_dead(owner := entry.leftover.owner):
            raise Conflict(
                f"environment '{name}' is in use by process {owner.pid} on {owner.host}",
                hint="it ends with that process; --force ends it now, and its steps fail",
            )
        ending = reaper.end_entry(entry, self._around, self._books)
        return self._blocking(ending, "a thread without a loop")

    def examine(self) -> builtins.list[dict[str, Any]]:
        """Probe every kind of environment in every sandbox, and open none.

        Returns:
            What this machine can give: see `flowengine.execution_environment.doctor`.
        """
        return self._blocking(examine(self._around), "a thread without a loop")

    # Inside

    def _begin(self, spec: Given, holder: str | None) -> Handle | Future[Handle]:
        found = self._sharing.begin(self._books.record(spec), holder)
        if not self._swept:
            self._sweep_once()
        return found

    def _now(self, found: Handle | Future[Handle]) -> Handle:
        if isinstance(found, Handle):
            return found
        try:
            return found.result()
        except BaseException:
            self._sharing.decline(found)
            raise

    async def _ensure_all(
        self, specs: Sequence[Given], holder: str | None
    ) -> builtins.list[Handle]:
        records = [self._books.record(spec) for spec in specs]
        check_names(record.declared for record in records)
        async with self._turns.together(records):
            return await self._have_all(records, holder)

    async def _have_all(
        self, records: Sequence[Record], holder: str | None
    ) -> builtins.list[Handle]:
        await self._turns.reserve(records)
        handles: builtins.list[Handle] = []
        try:
            for record in records:
                try:
                    handles += [await self._sharing.have(record, holder)]
                except StepError as error:
                    error.environment = record.declared.id
                    raise
        except BaseException:
            for handle in reversed(handles):
                if (closing := self._endings.give_back(handle)) is not None:
                    await settled(closing)
            raise
        finally:
            self._turns.unreserve(records)
        return handles

    def _give_back(self, given: Handle | str) -> tuple[Instance, Future[str | None]] | None:
        self._books.check_process()
        with self._books.lock:
            instance = self._books.find(given)
            closing = self._endings.give_back(given)
        return None if closing is None or instance is None else (instance, closing)

    async def _reap(self) -> builtins.list[dict[str, Any]]:
        self._books.check_process()
        self._swept = True
        return await reaper.reap(self._around, self._books, self._wanted, wait=True)

    def _sweep_once(self) -> None:
        """Look for what dead processes left, beside the first opening."""
        self._swept = True
        process_end.close_at_exit(self)
        with contextlib.suppress(RuntimeError):
            sweep = reaper.reap(self._around, self._books, self._wanted, wait=False)
            self._sweeping = background().submit(sweep)

    async def _close(self) -> Report:
        report = await self._scopes.close(self._wanted)
        await self._end_sweep()
        process_end.forget(self)
        return report

    async def _end_sweep(self) -> None:
        """Stop looking for leftovers, so that nothing touches the folder any more."""
        sweeping, self._sweeping = self._sweeping, None
        if sweeping is not None:
            with contextlib.suppress(Exception):  # of the sweep, which nobody asked for
                await asyncio.wait_for(asyncio.wrap_future(sweeping), self._around.bounds.sweep)

    def _records(self) -> builtins.list[Record]:
        return builtins.list(self._books.records.values())

    def _blocking(self, work: Coroutine[Any, Any, _Result], instead: str) -> _Result:
        return background().run(work, instead)


def default_folder() -> Path:
    """Return where environments are written down if nothing else is said.

    Raises:
        StoreError: The store here is not the user's own, or that cannot be written down.
    """
    folder, by_name = find_store()
    try:
        return Path(claim(folder, by_name=by_name), "environments")
    except OSError as error:
        raise StoreError(
            f"environments cannot be recorded in {state_folder()}: {error.strerror or error}",
            hint="set XDG_STATE_HOME to a writable folder, or give the manager a folder",
        ) from None


_lock = threading.Lock()
_global: EnvironmentManager | None = None


def manager() -> EnvironmentManager:
    """Return the manager of this process; it is made when it is first asked for."""
    global _global  # noqa: PLW0603 - one a process
    with _lock:
        if _global is None or _global._books.pid != os.getpid() or _global._books.closed:
            _global = EnvironmentManager()
        return _global
