"""The queue for places, first come, first served, with a time limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from flowengine.execution_environment.bookkeeping.books import Books, place_of
from flowengine.execution_environment.bookkeeping.capacity import CapacityTurn, PlaceClaim
from flowengine.execution_environment.bookkeeping.instances import Instance, Record
from flowengine.execution_environment.clock import TimerClock, TookTooLong, within
from flowengine.execution_environment.lifecycle.closing_tasks import ClosingTasks
from flowengine.sdk.errors import EnvironmentBusy


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
                raise self._busy(str(records[0].declared), why) from None
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
            together = [place_of(record.declared) for record in dict.fromkeys(records)]
            if not self.books.places.possible(CapacityTurn(together, bool)):
                raise self._busy(str(records[0].declared), _NEVER)
        if wanted:
            places = [place_of(record.declared) for record in wanted]
            await self._wait_turn(places, str(wanted[0].declared))
        with self.books.lock:
            for record in wanted:
                record.reserved += 1

    def unreserve(self, records: Sequence[Record]) -> None:
        """Release reserved places that were not used."""
        with self.books.lock:
            for record in dict.fromkeys(records):
                if record.reserved:
                    record.reserved -= 1
                    self.books.places.give_back(place_of(record.declared))

    async def take(self, instance: Instance) -> None:
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
        declared = instance.record.declared
        await self._wait_turn([place_of(declared)], str(declared), instance)

    async def _wait_turn(
        self, wanted: list[PlaceClaim], who: str, instance: Instance | None = None
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
                holding.append(f"{other.record.declared} held by {holders}")
        return EnvironmentBusy(f"{who}: {why}; open are: {'; '.join(holding[:20]) or 'none'}")


_NEVER = "that many can never be open at once"
