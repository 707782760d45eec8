"""The bookkeeping of one manager: specs, openings, holds and places, under one lock.

Every change of a state goes through `Books.move`, by the table in `states.py`.
"""

from __future__ import annotations

import os
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from flowengine.execution_environment.bookkeeping.instances import Handle, Instance, Record
from flowengine.execution_environment.bookkeeping.states import MOVES, State
from flowengine.execution_environment.clock import TimerClock
from flowengine.execution_environment.errors import Fault, SpecInvalid, UnknownEnvironment
from flowengine.execution_environment.observation import PREFIX, Event, EventPublisher, Name
from flowengine.execution_environment.specs.spec import EnvironmentSpec, check_spec
from flowengine.kernel.notation.addresses import shown_owner
from flowengine.sdk.errors import EnvironmentClosed


class Capacity(NamedTuple):
    """Maximum concurrently open environments. None: unlimited."""

    whole: int | None = None
    owner: int | None = None
    """Per owner and scope."""
    kinds: Mapping[str, int] = {}
    """Kind → maximum."""
    wait: float = 60.0
    """Seconds to wait for a place."""

    @property
    def unlimited(self) -> bool:
        """Whether the number of open environments is unlimited."""
        return self.whole is None and self.owner is None and not self.kinds


class CapacityTurn:
    """A caller that has places or waits for them.

    Args:
        places: All places that it needs.
        granted: Called once, under the manager's lock, when they are granted.
    """

    def __init__(self, places: Sequence[EnvironmentSpec], granted: Callable[[], object]) -> None:
        self.places = tuple(places)
        self.granted = granted
        self.had = False


class Places:
    """Counts places. Every method is called under the manager's lock.

    Args:
        capacity: The limits.
    """

    def __init__(self, capacity: Capacity) -> None:
        self.capacity = capacity
        self._used: dict[tuple[str, ...], int] = {}
        self._waiting: list[CapacityTurn] = []

    def ask(self, turn: CapacityTurn) -> bool:
        """Take places, or wait for them.

        Args:
            turn: The caller.

        Returns:
            Whether they were granted immediately. Otherwise `turn.granted` is called later.
        """
        self._waiting.append(turn)
        self._serve(tell=False)
        return turn.had

    def possible(self, turn: CapacityTurn) -> bool:
        """Return whether the places could be granted if all places were free."""
        wanted = self._wanted(turn)
        return all(number <= self._most(counter) for counter, number in wanted.items())

    def give_up(self, turn: CapacityTurn) -> None:
        """Stop waiting, and release granted places."""
        if turn in self._waiting:
            self._waiting.remove(turn)
            self._serve()
        elif turn.had:
            for place in turn.places:
                self.give_back(place)

    def give_back(self, place: EnvironmentSpec) -> None:
        """Release one place, and serve waiting callers."""
        for counter in self.counters(place):
            self._used[counter] -= 1
            if not self._used[counter]:
                del self._used[counter]
        self._serve()

    def short(self) -> dict[tuple[str, ...], int]:
        """Return how many places are missing for all waiting callers, by counter."""
        wanted = sum(map(self._wanted, self._waiting), Counter[tuple[str, ...]]())
        lacking = {
            counter: self._used.get(counter, 0) + number - self._most(counter)
            for counter, number in wanted.items()
        }
        return {counter: number for counter, number in lacking.items() if number > 0}

    def counters(self, place: EnvironmentSpec) -> list[tuple[str, ...]]:
        """Return the counters of a place."""
        counters: list[tuple[str, ...]] = []
        if self.capacity.whole is not None:
            counters.append(("whole",))
        if self.capacity.owner is not None:
            counters.append(("owner", place.scope, place.owner_id))
        if place.kind in self.capacity.kinds:
            counters.append(("kind", place.kind))
        return counters

    @property
    def waiting(self) -> int:
        """Number of waiting callers."""
        return len(self._waiting)

    def _serve(self, *, tell: bool = True) -> None:
        kept: set[tuple[str, ...]] = set()
        for turn in list(self._waiting):
            wanted = self._wanted(turn)
            lacking = [
                counter
                for counter, number in wanted.items()
                if self._used.get(counter, 0) + number > self._most(counter)
            ]
            if lacking or wanted.keys() & kept:
                kept.update(lacking)
                continue
            self._waiting.remove(turn)
            for counter, number in wanted.items():
                self._used[counter] = self._used.get(counter, 0) + number
            turn.had = True
            if tell:
                turn.granted()

    def _wanted(self, turn: CapacityTurn) -> Counter[tuple[str, ...]]:
        return Counter(counter for place in turn.places for counter in self.counters(place))

    def _most(self, counter: tuple[str, ...]) -> int:
        match counter[0]:
            case "whole":
                return self.capacity.whole or 0
            case "owner":
                return self.capacity.owner or 0
        return self.capacity.kinds[counter[1]]


Given = Mapping[str, Any] | str
"""A spec as written, or the id returned by `declare`."""
_REMEMBERED = 10_000
"""Maximum closed handles that can still be looked up by id."""
_NAMES_TOLD = 100
_LONGEST_NAME = 200


class Books:
    """The records of a manager.

    Args:
        manager: Its id.
        clock: Returns the time.
        capacity: Limits on open environments.
    """

    def __init__(self, manager: str, clock: TimerClock, capacity: Capacity) -> None:
        self.manager = manager
        self.clock = clock
        self.lock = threading.RLock()
        self.events = EventPublisher()
        self.places = Places(capacity)
        self.records: dict[str, Record] = {}
        self.instances: dict[str, Instance] = {}
        """All existing openings, in the order in which they were requested."""
        self.ended: OrderedDict[str, dict[str, Any]] = OrderedDict()
        """Descriptions of ended openings, by id."""
        self.closed = False
        self.pid = os.getpid()
        self._holds = 0
        self._ids = 0

    def check_usable(self) -> None:
        """Reject use after closing, and in the child of a fork.

        Raises:
            EnvironmentClosed: The manager was closed, or belongs to another process.
        """
        self.check_process()
        if self.closed:
            raise EnvironmentClosed("this environment manager was closed")

    def check_process(self) -> None:
        """Reject use in the child of a fork.

        Raises:
            EnvironmentClosed: The manager belongs to another process.
        """
        if self.pid != os.getpid():
            raise EnvironmentClosed(
                f"this environment manager belongs to process {self.pid}: create another one here"
            )

    # Specs

    def record(self, given: Given) -> Record:
        """Return the record of a spec, declaring the spec if it is passed as such.

        Args:
            given: A spec or its id.

        Returns:
            The record.

        Raises:
            UnknownEnvironment: The id was not declared.
            SpecInvalid: The spec is invalid.
        """
        self.check_usable()
        if isinstance(given, str):
            with self.lock:
                found = self.records.get(given)
                if found is None and given in self.instances:
                    found = self.instances[given].record
            if found is None:
                raise UnknownEnvironment(f"no environment '{given}' was declared here")
            return found
        return self.declare(check_spec(given))

    def declare(self, spec: EnvironmentSpec) -> Record:
        """Record a spec.

        Args:
            spec: It, checked.

        Returns:
            Its new or existing record.

        Raises:
            SpecInvalid: The execution has another spec of the same name.
        """
        with self.lock:
            self.check_usable()
            found = self.records.get(spec.id)
            if found is not None:
                return found
            if spec.scope == "execution":
                check_names([spec, *(record.spec for record in self.records.values())])
            record = self.records[spec.id] = Record(spec)
            self.publish("declared", record)
        return record

    # States

    def move(self, instance: Instance, state: State, error: str | None = None) -> None:
        """Move an opening to another state, and report it.

        Args:
            instance: The opening.
            state: The new state.
            error: Name of the error that caused it.

        Raises:
            AssertionError: The table has no such move, which is a bug in the manager.
        """
        with self.lock:
            if state not in MOVES[instance.state]:
                raise AssertionError(f"an environment cannot go from {instance.state} to {state}")
            instance.state = state
            instance.error = error or instance.error
            self.publish(state, instance.record, instance, error)

    def publish(
        self,
        name: Name,
        record: Record,
        instance: Instance | None = None,
        error: str | None = None,
        difference: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Notify subscribers of an event.

        Args:
            name: The event.
            record: The spec.
            instance: The opening of the spec, if any.
            error: Name of the error's type, if any.
            difference: Changes of the environment's offer, if any.
        """
        spec = record.spec
        opened = instance.opened if instance else None
        if instance is not None:
            instance.events += 1
        self.events.publish(
            Event(
                event=PREFIX + name,
                id=instance.id if instance else None,
                **spec.named,
                provider=opened.choice if opened else ",".join(spec.providers),
                state=instance.state if instance else "declared",
                generation=instance.generation if instance else 0,
                number=instance.events if instance else 1,
                at=self.clock.now(),
                error=error,
                difference=difference,
            )
        )

    def changed(self, instance: Instance, **names: Sequence[str]) -> None:
        """Notify subscribers that the offer of an environment has changed.

        Args:
            instance: The environment.
            names: Names that are `added`, `changed` or `removed`, as chosen by its server.
        """
        difference = {
            how: [str(instance.mask(name))[:_LONGEST_NAME] for name in each[:_NAMES_TOLD]]
            for how, each in names.items()
        }
        with self.lock:
            self.publish("changed", instance.record, instance, difference=difference)

    # Openings

    def new_instance(self, record: Record) -> Instance:
        """Create another opening of a spec."""
        self._ids += 1
        record.generation += 1
        instance = Instance(f"{self.manager}-{self._ids}", record, record.generation)
        instance.asked_at = self.clock.now()
        record.current = record.instances[instance.id] = self.instances[instance.id] = instance
        return instance

    def forget(self, instance: Instance, summary: dict[str, Any]) -> None:
        """Remove an ended opening from the books, except for its description for `inspect`."""
        record = instance.record
        record.instances.pop(instance.id, None)
        self.instances.pop(instance.id, None)
        if record.current is instance:
            record.current = None
        self.ended[instance.id] = summary
        while len(self.ended) > _REMEMBERED:
            self.ended.popitem(last=False)

    def find(self, given: Handle | str) -> Instance | None:
        """Return the opening of a handle or id, or None if it no longer exists.

        Args:
            given: A handle, its id, or the id of a spec that is open.

        Returns:
            The opening.

        Raises:
            UnknownEnvironment: It never existed here.
        """
        if isinstance(given, Handle):
            if given.manager != self.manager:
                raise UnknownEnvironment(f"{given!r} belongs to another manager")
            return self.instances.get(given.id)
        if not isinstance(given, str):
            raise UnknownEnvironment(f"{type(given).__name__} is not a handle or an id")
        if given in self.records:
            return self.records[given].current
        if given not in self.instances and given not in self.ended:
            raise UnknownEnvironment(f"there is no environment '{given}' here")
        return self.instances.get(given)

    # Holds

    def hold(self, instance: Instance, holder: str | None) -> Handle:
        """Add a hold."""
        self._holds += 1
        handle = Handle(instance, self.manager, self._holds, holder)
        instance.holds[self._holds] = handle
        return handle

    def drop(self, instance: Instance, given: Handle | str) -> None:
        """Release one hold. Releasing it again has no effect."""
        if isinstance(given, Handle):
            number: int | None = given.number
        else:
            number = next(reversed(instance.holds), None)
        handle = instance.holds.pop(number, None) if number is not None else None
        if handle is not None:
            handle.given_back = True

    def drop_all(self, instance: Instance) -> None:
        """Release all holds."""
        for handle in instance.holds.values():
            handle.given_back = True
        instance.holds.clear()

    def give_place_back(self, instance: Instance) -> None:
        """Release its place."""
        if instance.place:
            instance.place = False
            self.places.give_back(instance.record.spec)

    def of_owner(self, scope: str, owner_id: str) -> list[Instance]:
        """Return the openings of an owner in a scope, newest first."""
        return [
            instance
            for instance in reversed(self.instances.values())
            if instance.record.spec.scope == scope and instance.record.spec.owner_id == owner_id
        ]


def check_names(together: Iterable[EnvironmentSpec]) -> None:
    """Reject two different specs with one name for the same owner.

    Args:
        together: Specs. Those of different owners or scopes do not conflict.

    Raises:
        SpecInvalid: Two have one name.
    """
    seen: dict[tuple[str, str, str], EnvironmentSpec] = {}
    for spec in together:
        key = (spec.scope, spec.owner_id, spec.key)
        other = seen.setdefault(key, spec)
        if other.id != spec.id:
            message = (
                f"two different specs of {spec.scope} '{shown_owner(spec.owner_id)}' have this "
                f"name: {other.id} ({other.kind}) and {spec.id} ({spec.kind})"
            )
            raise SpecInvalid(spec.key, [Fault("resource_key", message)])
