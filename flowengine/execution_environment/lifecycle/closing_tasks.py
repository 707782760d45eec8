"""Tasks that release, drain and close environments.

Each closing runs its slow parts in one task (`_close`) on the background loop, which updates the
books at its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from functools import partial

from flowengine.execution_environment.bookkeeping.books import Books, CapacityTurn
from flowengine.execution_environment.bookkeeping.instances import (
    Handle,
    Instance,
    Record,
    describe,
)
from flowengine.execution_environment.bookkeeping.states import CLOSABLE
from flowengine.execution_environment.clock import TimerClock, TookTooLong, within
from flowengine.execution_environment.resources.closing import close_resource
from flowengine.execution_environment.resources.opening import ManagerServices
from flowengine.execution_environment.specs.spec import EnvironmentSpec
from flowengine.sdk.environments import Scope
from flowengine.sdk.environments.resources import background
from flowengine.sdk.errors import EnvironmentBusy
from flowengine.sdk.python.user_code import on_thread, until_done


class ClosingTasks:
    """Releases holds, and closes environments without holders, or regardless of them.

    Args:
        books: The books of the manager.
        around: Objects shared by all openings.
    """

    def __init__(self, books: Books, around: ManagerServices) -> None:
        self.books = books
        self.around = around

    def give_back(self, given: Handle | str) -> Future[str | None] | None:
        """Release one hold. Releasing the last one closes the environment, or leaves it idle.

        Args:
            given: A handle or an id.

        Returns:
            The closing. None: it stays open, or was closed already.
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
            if instance.record.spec.idle is None:
                return self.close(instance)
            self._let_idle(instance)
            return instance.closing

    def rest(self, instance: Instance) -> None:
        """Leave open an environment opened ahead, without a holder. Called under the lock."""
        if instance.parked:
            self.park(instance)
        else:
            self._let_idle(instance)

    def _let_idle(self, instance: Instance) -> None:
        """Leave an unheld environment open until its idle time ends or its place is needed."""
        instance.stop_timer("idle")
        idle = instance.record.spec.idle
        if idle is not None:
            instance.timers["idle"] = self.around.clock.call_later(
                idle, partial(self._close_if_unheld, instance)
            )
        self.make_room()

    def park(self, instance: Instance) -> Future[str | None] | None:
        """Release all holds for a wait. Close the environment, or keep it as declared in its spec.

        Args:
            instance: The open environment.

        Returns:
            The closing. None: it is kept.
        """
        with self.books.lock:
            if instance.state != "ready" or not instance.record.spec.is_kept:
                return self.close(instance, suspend=True)
            self.books.drop_all(instance)
            instance.timers["keep"] = self.around.clock.call_later(
                instance.record.spec.kept_for,
                partial(self._close_if_unheld, instance, suspend=True),
            )
            self.make_room()
            return instance.closing

    def make_room(self) -> None:
        """Close environments without holders until there are enough places for waiting callers."""
        with self.books.lock:
            places = self.books.places
            short = places.short()
            if not short:
                return
            unheld = []
            for instance in self.books.instances.values():
                counters = places.counters(instance.record.spec)
                if instance.state == "releasing" and instance.place:
                    short |= {each: short[each] - 1 for each in counters if each in short}
                elif instance.state == "ready" and not instance.holds:
                    unheld.append((instance, counters))
            for instance, counters in unheld:
                if any(short.get(each, 0) > 0 for each in counters):
                    short |= {each: short[each] - 1 for each in counters if each in short}
                    self.close(instance, suspend="keep" in instance.timers)

    def _close_if_unheld(self, instance: Instance, *, suspend: bool = False) -> None:
        with self.books.lock:
            if instance.state == "ready" and not instance.holds:
                self.close(instance, suspend=suspend)

    def replace(self, instance: Instance, holder: str | None) -> None:
        """Hide it from new users, and release the caller's hold. Other holders can finish."""
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

    def retire_if_old(self, instance: Instance) -> bool:
        """Drain an environment that is too old, without interrupting its holders."""
        most = instance.record.spec.max_age
        if most is None or self.around.clock.monotonic() - instance.opened_at < most:
            return False
        self.retire(instance)
        return True

    def retire(self, instance: Instance) -> None:
        """Hide it from new users, and drain it without a time limit, or close it."""
        with self.books.lock:
            if instance.state != "ready":
                return
            if instance.holds:
                self._drain(instance, None)
            else:
                self.close(instance)

    def close(
        self, instance: Instance, *, suspend: bool = False, lost: bool = False
    ) -> Future[str | None] | None:
        """Close an environment, regardless of its holders.

        Args:
            instance: The open environment.
            suspend: Whether it is only released for a wait.
            lost: Whether holders lose it, so that their next call raises `EnvironmentLost`.

        Returns:
            The closing. None: there is nothing to close.
        """
        with self.books.lock:
            if instance.state not in CLOSABLE:
                return instance.closing
            if instance.record.current is instance:
                instance.record.current = None
            lost = lost and bool(instance.holds)
            if lost:
                instance.error = "EnvironmentLost"
                self.books.publish("lost", instance.record, instance, instance.error)
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
        if instance.window is not None:
            instance.window.close()
        instance.attempts += 1
        error = await close_resource(opened, self.around, suspend=suspend, lost=lost)
        if error is None:
            entry.remove()
            ends = instance.record.spec.scope == "action_call" and not suspend
            await on_thread(lambda: self.let_workspace_go(instance, remove=ends))
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
        await self.unmount(instance)
        if not instance.ended.done():
            instance.ended.set_result(None)
        return error

    def _try_again(self, instance: Instance, *, suspend: bool) -> None:
        """Schedule another attempt to close an environment, with increasing delays."""
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

    def let_workspace_go(self, instance: Instance, *, remove: bool) -> None:
        """Release its directory, unless another opening of the spec uses it."""
        path = instance.workspace
        if path is None:
            return
        if any(
            other.workspace == path
            for other in list(instance.record.instances.values())
            if other is not instance
        ):
            return
        remove = remove or not self.around.workspaces.has(path)  # a temporary one
        self.around.workspaces.let_go(path, remove=remove, generation=instance.generation)

    async def unmount(self, instance: Instance) -> None:
        """Release the environments whose directories it used."""
        await self.give_back_all(instance.mounted)
        instance.mounted.clear()

    async def give_back_all(self, handles: Sequence[Handle]) -> None:
        """Release holds, the last one first, and wait for the closings."""
        for handle in reversed(handles):
            closing = self.give_back(handle)
            if closing is not None:
                await until_done(closing)

    async def end_workspaces(self, scope: Scope, owner_id: str) -> None:
        """Remove the directories of an owner."""
        await on_thread(lambda: self.around.workspaces.end_scope(scope, owner_id))


# The queue for places, first come, first served, with a time limit.


class PlaceQueue:
    """Grants places to openings, closing environments without holders if necessary.

    Args:
        books: Count the places.
        clock: Measures the time limit.
        closings: Close environments to free places.
    """

    def __init__(self, books: Books, clock: TimerClock, closings: ClosingTasks) -> None:
        self.books = books
        self._clock = clock
        self._closings = closings
        self._together = asyncio.Lock()

    @asynccontextmanager
    async def together(self, records: Sequence[Record]) -> AsyncIterator[None]:
        """Serialize requests for several places, if places are limited.

        A caller can have some of its places and wait for another, if an environment that was open
        at the time of the request has been closed since. Such a caller then waits only for callers
        that have all their places, never for another waiting one.

        Args:
            records: The specs to open.

        Raises:
            EnvironmentBusy: It did not get its turn in time.
        """
        capacity = self.books.places.capacity
        if capacity.unlimited:
            yield
            return

        async def late(_: bool) -> None:
            self._together.release()

        try:
            await within(self._clock, capacity.wait, self._together.acquire(), late)
        except TookTooLong:
            why = f"others that need several were not served within {capacity.wait:g} s"
            with self.books.lock:
                raise self._busy(str(records[0].spec), why) from None
        try:
            yield
        finally:
            self._together.release()

    async def reserve(self, records: Sequence[Record]) -> None:
        """Reserve places for specs that will be opened, all or none.

        Args:
            records: The specs. Those that are open already need no place.

        Raises:
            EnvironmentBusy: The places did not become free in time.
        """
        with self.books.lock:
            wanted = [record for record in dict.fromkeys(records) if record.current is None]
            together = [record.spec for record in dict.fromkeys(records)]
            if not self.books.places.possible(CapacityTurn(together, bool)):
                raise self._busy(str(records[0].spec), _NEVER)
        if wanted:
            await self._wait_turn([record.spec for record in wanted], str(wanted[0].spec))
        with self.books.lock:
            for record in wanted:
                record.reserved += 1

    def unreserve(self, records: Sequence[Record]) -> None:
        """Release reserved places that were not used."""
        with self.books.lock:
            for record in dict.fromkeys(records):
                if record.reserved:
                    record.reserved -= 1
                    self.books.places.give_back(record.spec)

    async def acquire(self, instance: Instance) -> None:
        """Take the place of an opening: the one reserved for it, or the next free one.

        Args:
            instance: The opening.

        Raises:
            EnvironmentBusy: No place became free in time.
        """
        with self.books.lock:
            if instance.record.reserved:
                instance.record.reserved -= 1
                instance.place = True
                return
        spec = instance.record.spec
        await self._wait_turn([spec], str(spec), instance)

    async def _wait_turn(
        self, wanted: Sequence[EnvironmentSpec], who: str, instance: Instance | None = None
    ) -> None:
        """Wait until places are free, first come, first served, with a time limit."""
        loop = asyncio.get_running_loop()
        granted = asyncio.Event()
        turn = CapacityTurn(wanted, lambda: loop.call_soon_threadsafe(granted.set))
        places = self.books.places
        with self.books.lock:
            if not places.possible(turn):
                raise self._busy(who, _NEVER)
            if not places.ask(turn):
                self._closings.make_room()
            elif instance is not None:
                instance.place = True
        if turn.had:
            return
        wait = places.capacity.wait
        withdraw = self._clock.call_later(wait, turn.granted)
        try:
            await granted.wait()
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

    def _busy(self, who: str, why: str) -> EnvironmentBusy:
        """Return the error for missing places, which names the current holders."""
        holding = []
        for other in self.books.instances.values():
            if other.place:
                holders = ", ".join(other.holders) or f"{len(other.holds)} holds"
                holding.append(f"{other.record.spec} held by {holders}")
        return EnvironmentBusy(f"{who}: {why}; open are: {'; '.join(holding[:20]) or 'none'}")


_NEVER = "that many can never be open at once"
