"""How environments are opened, reused, drained and closed.

`begin` answers at once where an open environment can be reused, and otherwise with a future. What
takes its time runs in one task for each opening (`_open`) and one for each closing (`_close`), on
the background loop, and comes back to the books at its end.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

from flowengine.execution_environment import approving
from flowengine.execution_environment.bookkeeping import Books, place_of
from flowengine.execution_environment.capacity import Place, Turn
from flowengine.execution_environment.clock import within
from flowengine.execution_environment.closing import close_resource, end_strays
from flowengine.execution_environment.handle import Handle
from flowengine.execution_environment.inspecting import describe
from flowengine.execution_environment.instances import Instance, Opened, Record, Waiter
from flowengine.execution_environment.opening import Surroundings, failure_of, open_resource
from flowengine.sdk.background import background
from flowengine.sdk.environments import Capabilities, Scope
from flowengine.sdk.errors import (
    EnvironmentBusy,
    EnvironmentClosed,
    EnvironmentStartFailed,
    StepError,
)
from flowengine.sdk.threads import on_thread


class Lifecycle:
    """Brings openings from one state to the next.

    Args:
        books: What is known.
        around: What all openings share.
    """

    def __init__(self, books: Books, around: Surroundings) -> None:
        self.books = books
        self.around = around

    # Having one

    def begin(self, record: Record, holder: str | None) -> Handle | Future[Handle]:
        """Return a hold on the environment of a spec, or a future of one.

        Args:
            record: The spec.
            holder: Who asks, as they say.

        Returns:
            A handle at once, where an open environment passed a plain check.

        Raises:
            EnvironmentClosed: The manager was closed, or belongs to another process.
        """
        while True:
            with self.books.lock:
                self.books.check_usable()
                instance = record.current
                if instance is None:
                    return self._wait_for(self._start(record), holder)
                if instance.state != "ready":
                    return self._wait_for(instance, holder)
                if self._retire_if_old(instance):
                    continue
            verdict = self._check(instance)
            if isinstance(verdict, Future):
                return background().submit(self._begin_slowly(record, instance, holder, verdict))
            found = self._reuse(instance, holder, healthy=verdict)
            if found is not None:
                return found

    async def have(self, record: Record, holder: str | None) -> Handle:
        """Return a hold on the environment of a spec; for any loop."""
        found = self.begin(record, holder)
        return found if isinstance(found, Handle) else await self.take(found)

    async def take(self, future: Future[Handle]) -> Handle:
        """Await a hold; whoever is cancelled while it comes leaves none behind."""
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            self.decline(future)
            raise

    def decline(self, future: Future[Handle]) -> None:
        """Say that nobody wants this hold any more, whether it has come or not."""
        if not future.cancel() and not future.cancelled() and future.exception() is None:
            handle = future.result()
            self.give_back(handle)

    async def _begin_slowly(
        self, record: Record, instance: Instance, holder: str | None, verdict: Future[bool]
    ) -> Handle:
        await settled(verdict)
        healthy = not verdict.cancelled() and verdict.result()
        found = self._reuse(instance, holder, healthy=healthy)
        return found if found is not None else await self.have(record, holder)

    def _start(self, record: Record) -> Instance:
        instance = self.books.new_instance(record)
        instance.task = background().submit(self._open(instance))
        return instance

    def _wait_for(self, instance: Instance, holder: str | None) -> Future[Handle]:
        waiter = Waiter(Future(), holder)
        instance.waiters.append(waiter)
        waiter.future.add_done_callback(partial(self._left, instance, waiter))
        return waiter.future

    def _left(self, instance: Instance, waiter: Waiter, future: Future[Handle]) -> None:
        """Stop an opening that nobody waits for any more."""
        if not future.cancelled():
            return
        with self.books.lock:
            if waiter in instance.waiters:
                instance.waiters.remove(waiter)
            if not instance.waiters and not instance.holds:
                self.withdraw(instance)

    def withdraw(self, instance: Instance) -> None:
        """Stop an opening; what it has come to is closed."""
        with self.books.lock:
            if instance.state not in {"declared", "pending_approval", "ensuring"}:
                return
            instance.withdrawn = True
            if instance.record.current is instance:
                instance.record.current = None
            if instance.task is not None:
                instance.task.cancel()

    def _reuse(self, instance: Instance, holder: str | None, *, healthy: bool) -> Handle | None:
        """Take another hold, or begin to replace what is not healthy; None: look again."""
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
            self._replace(instance, holder)
            return None

    def _replace(self, instance: Instance, holder: str | None) -> None:
        """Take it from new users: others finish with it, and who asks for a new one has done."""
        instance.record.current = None
        others = [hold for hold in instance.holds.values() if not holder or hold.holder != holder]
        if not others:
            self.close(instance)
            return
        self._drain(instance, self.around.bounds.drain)

    def _drain(self, instance: Instance, seconds: float | None) -> None:
        instance.record.current = None
        self.books.move(instance, "draining")
        if seconds is not None:
            cut = partial(self.close, instance, lost=True)
            instance.timers["drain"] = self.around.clock.call_later(seconds, cut)

    def _retire_if_old(self, instance: Instance) -> bool:
        """Let nobody else have what is past its age: it is drained, and not cut off."""
        most = instance.record.declared.spec.max_age
        if most is None or self.around.clock.monotonic() - instance.opened_at < most:
            return False
        self._retire(instance)
        return True

    def _retire(self, instance: Instance) -> None:
        with self.books.lock:
            if instance.state != "ready":
                return
            if instance.holds:
                self._drain(instance, None)
            else:
                self.close(instance)

    # Checking

    def _check(self, instance: Instance) -> bool | Future[bool]:
        """Ask the provider whether it works: at once, or by a check that all who ask share."""
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

    # Opening

    async def _open(self, instance: Instance) -> None:
        record = instance.record
        try:
            for earlier in [each for each in record.instances.values() if each is not instance]:
                if earlier.withdrawn or earlier.state == "releasing":
                    await settled(earlier.ended)
            await approving.approve(instance, self.books)
            self.books.move(instance, "ensuring")
            await self._take_place(instance)
            mounts = await self._mount(instance)
            opened = await open_resource(
                instance, self.around, mounts, partial(self._close_late, instance)
            )
            self._check_own(instance, opened)
            instance.opened = opened
        except asyncio.CancelledError:
            self._finish(instance, self._stopped(instance))
        except BaseException as error:
            self._finish(instance, self._failed(instance, failure_of(error, instance)))
        else:
            self._opened(instance)

    def _finish(self, instance: Instance, work: Coroutine[Any, Any, None]) -> None:
        """End an opening in a task of its own, which no withdrawal can cut."""
        instance.finishing = asyncio.ensure_future(work)

    def _opened(self, instance: Instance) -> None:
        """Make it ready, and give everybody who waits a hold."""
        assert instance.entry is not None
        instance.entry.set_state("ready")
        with self.books.lock:
            wanted = [w for w in instance.waiters if w.future.set_running_or_notify_cancel()]
            instance.waiters.clear()
            self.books.move(instance, "ready")
            given = [(w.future, self.books.hold(instance, w.holder)) for w in wanted]
            if instance.withdrawn or not given:
                self.close(instance)
            elif (most := instance.record.declared.spec.max_age) is not None:
                retire = partial(self._retire, instance)
                instance.timers["age"] = self.around.clock.call_later(most, retire)
        for future, handle in given:
            if handle.given_back:
                future.set_exception(_closed(instance))
            else:
                future.set_result(handle)

    async def _failed(self, instance: Instance, error: StepError) -> None:
        """Tell everybody who waits why it could not be had, and leave nothing behind."""
        await end_strays(instance)
        name = error.name or type(error).__name__
        with self.books.lock:
            if instance.state == "ensuring":
                self.books.move(instance, "failed", name)
            else:
                if instance.state == "pending_approval":
                    instance.move("declared")
                instance.error = name
                self.books.tell("failed", instance.record, instance, name)
            waiters = self._leave(instance)
        await self._unmount(instance)
        instance.ended.set_result(None)
        for waiter in waiters:
            if waiter.future.set_running_or_notify_cancel():
                waiter.future.set_exception(_copy(error))

    async def _stopped(self, instance: Instance) -> None:
        """End an opening that was withdrawn."""
        await end_strays(instance)
        with self.books.lock:
            if instance.state == "ensuring":
                self.books.move(instance, "releasing")
                self.books.move(instance, "released")
            elif instance.state == "pending_approval":
                instance.move("declared")
            waiters = self._leave(instance)
        await self._unmount(instance)
        instance.ended.set_result(None)
        for waiter in waiters:
            if waiter.future.set_running_or_notify_cancel():
                waiter.future.set_exception(_closed(instance))

    def _leave(self, instance: Instance) -> list[Waiter]:
        """Take an opening that came to nothing out of the books."""
        if instance.entry is not None:
            instance.entry.remove()
        self._let_workspace_go(instance, remove=False)
        self.books.give_place_back(instance)
        self.books.forget(instance, describe(instance, self.around.clock.monotonic()))
        waiters = list(instance.waiters)
        instance.waiters.clear()
        return waiters

    def _check_own(self, instance: Instance, opened: Opened) -> None:
        """Refuse an object that belongs to another opening already; it is not touched."""
        with self.books.lock:
            for other in self.books.instances.values():
                if other.opened is not None and other.opened.resource is opened.resource:
                    raise EnvironmentStartFailed(
                        f"{instance.record.declared}: provider '{opened.choice}' returned an "
                        f"object that belongs to {other.id} already"
                    )

    async def _close_late(self, instance: Instance, resource: Any) -> None:
        """Close a resource that came when nobody waited for it any more."""
        from flowengine.execution_environment.providers import find_provider

        provider = find_provider(instance.record.declared.spec.kind)
        opened = Opened(resource, provider, "", None, Capabilities(), [])
        await close_resource(opened, self.around, suspend=False, lost=False)

    # Places

    async def reserve(self, records: Sequence[Record]) -> None:
        """Keep places for specs that are going to be opened, all or none.

        Args:
            records: Those that are open already need none.

        Raises:
            EnvironmentBusy: They were not free in time.
        """
        with self.books.lock:
            wanted = [record for record in dict.fromkeys(records) if record.current is None]
        if wanted:
            places = [place_of(record.declared) for record in wanted]
            await self._wait_turn(places, str(wanted[0].declared))
        with self.books.lock:
            for record in wanted:
                record.reserved += 1

    def unreserve(self, records: Sequence[Record]) -> None:
        """Give back the places that were kept and not used."""
        with self.books.lock:
            for record in dict.fromkeys(records):
                if record.reserved:
                    record.reserved -= 1
                    self.books.places.give_back(place_of(record.declared))

    async def _take_place(self, instance: Instance) -> None:
        with self.books.lock:
            if instance.record.reserved:
                instance.record.reserved -= 1
                instance.place = True
                return
        declared = instance.record.declared
        await self._wait_turn([place_of(declared)], str(declared), instance)

    async def _wait_turn(
        self, wanted: list[Place], who: str, instance: Instance | None = None
    ) -> None:
        """Wait until places are free, in the order of asking and within a bound."""
        loop = asyncio.get_running_loop()
        told = asyncio.Event()
        turn = Turn(wanted, lambda: loop.call_soon_threadsafe(told.set))
        places = self.books.places
        with self.books.lock:
            if not places.possible(turn):
                raise self._busy(who, "so many can never be open at once")
            if not places.ask(turn):
                self._make_room(turn)
            elif instance is not None:
                instance.place = True
        if turn.had:
            return
        wait = places.capacity.wait
        withdraw = self.around.clock.call_later(wait, turn.granted)
        try:
            await told.wait()
        except asyncio.CancelledError:
            with self.books.lock:
                places.give_up(turn)
            raise
        finally:
            withdraw()
        with self.books.lock:
            if not turn.had:
                places.give_up(turn)
                raise self._busy(who, f"no place was free within {wait:g} s")
            if instance is not None:
                instance.place = True

    def _make_room(self, turn: Turn) -> None:
        """Close the environment that nobody has held for longest, where that gives the place."""
        for other in list(self.books.instances.values()):
            idle = other.state == "ready" and not other.holds
            if idle and self.books.places.blocks(turn, place_of(other.record.declared)):
                self.close(other)
                return

    def _busy(self, who: str, why: str) -> EnvironmentBusy:
        """Return the error for no place, which names those who have the places."""
        holding = []
        for other in self.books.instances.values():
            if other.place:
                holders = ", ".join(other.holders) or f"{len(other.holds)} holds"
                holding.append(f"{other.record.declared} held by {holders}")
        return EnvironmentBusy(f"{who}: {why}; open are: {'; '.join(holding[:20]) or 'none'}")

    async def end_workspaces(self, scope: Scope, owner_id: str) -> None:
        """Remove the folders of an owner."""
        await on_thread(lambda: self.around.workspaces.end_scope(scope, owner_id))

    # Folders of others

    async def _mount(self, instance: Instance) -> dict[str, Path]:
        mounts = {}
        for inside, id in instance.record.declared.spec.mounts.items():
            handle = await self.have(self.books.record(id), instance.id)
            instance.mounted.append(handle)
            folder = getattr(handle.resource, "path", None) or handle.workspace
            if folder is None:
                raise EnvironmentStartFailed(
                    f"{instance.record.declared}: {handle.resource_key} has no folder to mount"
                )
            mounts[inside] = Path(folder)
        return mounts

    async def _unmount(self, instance: Instance) -> None:
        for handle in reversed(instance.mounted):
            closing = self.give_back(handle)
            if closing is not None:
                await settled(closing)
        instance.mounted.clear()

    # Giving back and closing

    def give_back(self, given: Handle | str) -> Future[str | None] | None:
        """Take one hold back; the last one closes the environment, or lets it idle.

        Args:
            given: A handle or an id.

        Returns:
            What closes it; None: it stays open, or was gone already.
        """
        with self.books.lock:
            instance = self.books.find(given)
            if instance is None:
                return None
            if isinstance(given, Handle) and given.given_back:
                return None
            self.books.drop(instance, given)
            if instance.holds or instance.waiters:
                return None
            if instance.state == "draining":
                return self.close(instance)
            if instance.state != "ready":
                return instance.closing
            idle = instance.record.declared.spec.idle
            if idle is None:
                return self.close(instance)
            instance.stop_timer("idle")
            instance.timers["idle"] = self.around.clock.call_later(
                idle, partial(self._close_if_unheld, instance)
            )
            return None

    def park(self, instance: Instance) -> Future[str | None] | None:
        """Take all holds back for a wait: close it, or keep it as long as its spec says.

        Args:
            instance: What is open.

        Returns:
            What closes it; None: it is kept.
        """
        with self.books.lock:
            if instance.state != "ready" or instance.record.declared.on_wait == "release":
                return self.close(instance, suspend=True)
            self.books.drop_all(instance)
            instance.timers["keep"] = self.around.clock.call_later(
                instance.record.declared.spec.keep_for,
                partial(self._close_if_unheld, instance, suspend=True),
            )
            return None

    def _close_if_unheld(self, instance: Instance, *, suspend: bool = False) -> None:
        with self.books.lock:
            if instance.state == "ready" and not instance.holds:
                self.close(instance, suspend=suspend)

    def close(
        self, instance: Instance, *, suspend: bool = False, lost: bool = False
    ) -> Future[str | None] | None:
        """Close an environment, whoever holds it.

        Args:
            instance: What is open.
            suspend: Whether it is given back for a wait only.
            lost: Whether holders are cut off: what they do next raises `EnvironmentLost`.

        Returns:
            What closes it; None: there is nothing to close.
        """
        with self.books.lock:
            if instance.state not in {"ready", "unhealthy", "draining"}:
                return instance.closing
            if instance.record.current is instance:
                instance.record.current = None
            lost = lost and bool(instance.holds)
            if lost:
                instance.error = "EnvironmentLost"
                self.books.tell("lost", instance.record, instance, instance.error)
            self.books.drop_all(instance)
            for name in list(instance.timers):
                instance.stop_timer(name)
            self.books.move(instance, "releasing")
            work = self._close(instance, suspend=suspend, lost=lost)
            instance.closing = background().submit(work)
            return instance.closing

    async def _close(self, instance: Instance, *, suspend: bool, lost: bool) -> str | None:
        opened, entry = instance.opened, instance.entry
        assert opened is not None
        assert entry is not None
        entry.set_state("releasing")
        instance.attempts += 1
        error = await close_resource(opened, self.around, suspend=suspend, lost=lost)
        if error is None:
            entry.remove()
            ends = instance.record.declared.spec.scope == "action_call" and not suspend
            await on_thread(lambda: self._let_workspace_go(instance, remove=ends))
        else:
            entry.set_state("failed")
        with self.books.lock:
            self.books.give_place_back(instance)
            if error is None:
                self.books.move(instance, "released")
                self.books.forget(instance, describe(instance, self.around.clock.monotonic()))
            else:
                self.books.move(instance, "failed", error)
                self._try_again(instance, suspend=suspend)
        await self._unmount(instance)
        if not instance.ended.done():
            instance.ended.set_result(None)
        return error

    def _try_again(self, instance: Instance, *, suspend: bool) -> None:
        """Plan another try to close what could not be closed, later each time."""
        pauses = self.around.bounds.retries
        if instance.attempts > len(pauses) or self.books.closed:
            return

        def again() -> None:
            with self.books.lock:
                if instance.state == "failed":
                    instance.error = None
                    self.books.move(instance, "releasing")
                    work = self._close(instance, suspend=suspend, lost=False)
                    instance.closing = background().submit(work)

        pause = pauses[instance.attempts - 1]
        instance.timers["retry"] = self.around.clock.call_later(pause, again)

    def _let_workspace_go(self, instance: Instance, *, remove: bool) -> None:
        """Give its folder back, unless another opening of the spec works in it."""
        path = instance.workspace
        if path is None:
            return
        if any(
            other.workspace == path
            for other in list(instance.record.instances.values())
            if other is not instance
        ):
            return
        remove = remove or not self.around.workspaces.has(path)  # nobody would find it again
        self.around.workspaces.let_go(path, remove=remove, generation=instance.generation)


async def settled(future: Future[Any]) -> None:
    """Wait until a future is done, whatever its result; cancelling the wait leaves it alone."""
    if future.done():
        return
    loop = asyncio.get_running_loop()
    told = asyncio.Event()

    def tell(_: Future[Any]) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(told.set)

    future.add_done_callback(tell)
    await told.wait()


def _copy(error: StepError) -> StepError:
    """Return the error for one of several: each gets a traceback of its own."""
    copied = copy.copy(error)
    copied.__cause__ = error.__cause__
    return copied


def _closed(instance: Instance) -> EnvironmentClosed:
    return EnvironmentClosed(f"{instance.record.declared} was given back while it was opened")
