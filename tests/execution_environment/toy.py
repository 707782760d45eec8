"""An in-memory provider that counts calls and can misbehave on demand, and a fake clock."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

from flowengine.execution_environment.observation import Event
from flowengine.sdk.environments import (
    Capabilities,
    Provider,
    Request,
    Resource,
    Spec,
    background,
    both_forms,
)


class Thing(Resource):
    """The resource that the toy opens."""

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self.request = request
        self.healthy: bool | Awaitable[bool] | Callable[[], Any] = True
        self.closed = False

    async def _echo(self, text: str) -> str:
        """Return the text."""
        return text

    async def _hang(self, begun: threading.Event) -> None:
        """Signal the start, and never end."""
        begun.set()
        await asyncio.Event().wait()

    async def _until(self, begun: threading.Event, gate: asyncio.Event) -> str:
        """Signal the start, and end when the gate opens."""
        begun.set()
        await gate.wait()
        return "done"

    echo, async_echo = both_forms(_echo)
    hang, async_hang = both_forms(_hang)
    until, async_until = both_forms(_until)


class Toy(Provider[Any]):
    """Counts opens, checks and releases."""

    kind = "toy"
    leaves_traces = False

    def __init__(self, kind: str = "toy", log: list[str] | None = None) -> None:
        self.kind = kind  # type: ignore[misc]
        self.things: list[Thing] = []
        self.tries = 0
        self.checks = 0
        self.released: list[Thing] = []
        self.suspended: list[Thing] = []
        self.open: Callable[[Request], Awaitable[Any]] | None = None
        self.close: Callable[[Thing], Awaitable[None]] | None = None
        self.look: Callable[[Spec], Awaitable[None]] | None = None
        self.holds: dict[Any, str] = {}
        self.log = log if log is not None else []

    @property
    def opens(self) -> int:
        return len(self.things)

    @property
    def releases(self) -> int:
        return len(self.released)

    def behave(self) -> None:
        """Stop misbehaving."""
        self.open = self.close = self.look = None

    def config_model(self) -> Any:
        from flowengine.sdk.environments.models import Config, Secret

        class ToyConfig(Config):
            image: str = "plain"
            size: int = 1
            token: Secret | None = None
            headers: dict[str, str] | None = None

        return ToyConfig

    def policy_model(self) -> Any:
        from flowengine.sdk.environments.models import EnvironmentPolicy

        class ToyPolicy(EnvironmentPolicy):
            allow: list[str] | None = None

        return ToyPolicy

    def capabilities(self, sandbox: Capabilities) -> Capabilities:
        return sandbox.also(self.holds)

    async def probe(self, spec: Spec) -> None:
        if self.look is not None:
            await self.look(spec)

    async def ensure(self, request: Request) -> Any:
        self.tries += 1
        if self.open is not None:
            given = await self.open(request)
            if not isinstance(given, Thing):
                return given
            thing = given
        else:
            thing = Thing(request)
        self.things.append(thing)
        self.log.append(f"open {request.spec.resource_key}")
        return thing

    def health_check(self, resource: Thing) -> Any:
        self.checks += 1
        healthy = resource.healthy
        return healthy() if callable(healthy) else healthy

    async def release(self, resource: Thing) -> None:
        if self.close is not None:
            await self.close(resource)
        resource.closed = True
        self.released.append(resource)
        self.log.append(f"release {resource.request.spec.resource_key}")

    async def suspend(self, resource: Thing) -> None:
        self.suspended.append(resource)
        await self.release(resource)


class Gate:
    """Delays opening until it is opened itself. Both happen on the background loop."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._go = asyncio.Event()

    def open(self) -> None:
        background().loop.call_soon_threadsafe(self._go.set)

    async def __call__(self, request: Request) -> Thing:
        self.reached.set()
        await self._go.wait()
        return Thing(request)


class FakeClock:
    """A clock that moves only in `advance`."""

    def __init__(self) -> None:
        self._now = 0.0
        self._timers: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()
        self._withdrawn: set[int] = set()
        self._lock = threading.Lock()

    def now(self) -> float:
        return 1_700_000_000.0 + self._now

    def monotonic(self) -> float:
        return self._now

    def call_later(self, seconds: float, call: Callable[[], object]) -> Callable[[], object]:
        with self._lock:
            number = next(self._numbers)
            heapq.heappush(self._timers, (self._now + seconds, number, call))
        return lambda: self._withdrawn.add(number)

    def advance(self, seconds: float) -> None:
        """Advance the clock. Due calls run in order on the background loop."""
        end = self._now + seconds
        while True:
            with self._lock:
                if not self._timers or self._timers[0][0] > end:
                    break
                self._now, number, call = heapq.heappop(self._timers)
            if number not in self._withdrawn:
                background().run(_done(call))
        self._now = end

    def pending(self) -> list[float]:
        """Return the seconds until each pending call."""
        with self._lock:
            return sorted(
                at - self._now for at, number, _ in self._timers if number not in self._withdrawn
            )


async def _done(call: Callable[[], object]) -> None:
    call()


class Heard:
    """Subscribes, and records all events."""

    def __init__(self, manager: Any) -> None:
        self.events: list[Event] = []
        self._manager = manager
        manager.subscribe(self.events.append)

    def names(self, id: str | None = None) -> list[str]:
        """Return the names of the events so far, optionally of one handle."""
        assert self._manager.flush_events(60)
        return [
            event.event.removeprefix("execution_environment.")
            for event in self.events
            if id is None or event.id == id
        ]


def until(condition: Callable[[], object]) -> None:
    """Wait for a condition. The time limit only guards against a hang."""
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.001)


SPEC: dict[str, Any] = {"kind": "toy", "scope": "session", "owner_id": "s"}
