# Shows E9, E73
"""Random schedules of all verbs over a provider that misbehaves at random (E9)."""

from __future__ import annotations

import asyncio
import tempfile
from concurrent.futures import wait
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from flowengine.execution_environment import (
    Capacity,
    EnvironmentManager,
    Handle,
    TimeBounds,
    register_provider,
    unregister_provider,
)
from flowengine.execution_environment.bookkeeping.states import MOVES
from flowengine.sdk import EnvironmentBusy, EnvironmentClosed, EnvironmentFailure
from flowengine.sdk.environments import background
from tests.execution_environment.toy import FakeClock, Heard, Thing, Toy

SPECS = [
    {"kind": "toy", "scope": "session", "owner_id": "a"},
    {"kind": "toy", "scope": "session", "owner_id": "a", "resource_key": "other", "idle": 50},
    {"kind": "toy", "scope": "session", "owner_id": "b", "max_age": 100},
    {"kind": "toy", "scope": "execution", "owner_id": "e", "on_wait": 70},
]


class Schedules(RuleBasedStateMachine):
    """Invariants after every step: valid transitions, correct counts of holders, kept limits."""

    handles: Bundle[Handle] = Bundle("handles")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = FakeClock()
        self.toy = Toy()
        register_provider(self.toy)
        self.manager = EnvironmentManager(
            self.folder.name,
            clock=self.clock,
            capacity=Capacity(whole=3, wait=5),
            bounds=TimeBounds(drain=30, retries=(10, 10)),
        )
        self.heard = Heard(self.manager)
        self.held: dict[int, Handle] = {}

    @rule(target=handles, spec=st.sampled_from(SPECS), holder=st.sampled_from([None, "x", "y"]))
    def ensure(self, spec: dict[str, Any], holder: str | None) -> Any:
        async def waiting() -> Handle:
            ensuring = asyncio.ensure_future(self.manager.async_ensure(spec, holder=holder))
            while not ensuring.done():  # it may wait for a free place: let the limit expire
                await asyncio.wait([ensuring], timeout=0.02)
                if self.manager._books.places.waiting:
                    await asyncio.to_thread(self.clock.advance, 5)
            return ensuring.result()

        try:
            handle = asyncio.run(waiting())
        except (EnvironmentBusy, EnvironmentFailure):
            return None
        self.held[handle.number] = handle
        return handle

    @rule(spec=st.sampled_from(SPECS))
    def open_ahead(self, spec: dict[str, Any]) -> None:
        opening = self.manager.open_ahead(spec)
        while not opening.done():  # as in `ensure`
            wait([opening], timeout=0.02)
            if self.manager._books.places.waiting:
                self.clock.advance(5)

    @rule(handle=consumes(handles), times=st.integers(1, 2))
    def release(self, handle: Handle | None, times: int) -> None:
        for _ in range(times if handle else 0):
            assert handle is not None
            self.manager.release(handle)
            self.held.pop(handle.number, None)

    @rule(handle=handles)
    def use(self, handle: Handle | None) -> None:
        if handle is None:
            return
        try:
            assert handle.resource.echo("x") == "x"
        except (EnvironmentClosed, EnvironmentFailure):
            assert handle.given_back

    @rule(seconds=st.sampled_from([1, 9, 30, 60, 100]))
    def let_pass(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(spec=st.sampled_from(SPECS))
    def release_scope(self, spec: dict[str, Any]) -> None:
        self.manager.release_scope(spec["scope"], spec["owner_id"])

    @rule()
    def suspend(self) -> None:
        self.manager.suspend_scope("execution", "e")

    @rule(healthy=st.booleans())
    def health(self, healthy: bool) -> None:
        for thing in self.toy.things:
            thing.healthy = healthy or thing.closed

    @rule(fails=st.booleans())
    def opening(self, fails: bool) -> None:
        async def broken(request: Any) -> Any:
            raise OSError("no luck")

        self.toy.open = broken if fails else None

    @rule(fails=st.booleans())
    def closing(self, fails: bool) -> None:
        async def stuck(thing: Thing) -> None:
            raise OSError("stuck")

        self.toy.close = stuck if fails else None

    @invariant()
    def only_moves_of_the_table(self) -> None:
        assert self.manager.flush_events(60)
        states: dict[str, str] = {}
        numbers: dict[str, int] = {}
        for event in self.heard.events:
            if event.id is None:
                continue
            assert event.number == numbers.get(event.id, 0) + 1
            numbers[event.id] = event.number
            before = states.get(event.id, "declared")
            if event.event.endswith(".lost"):
                continue
            assert event.state in MOVES[before], (before, event)  # type: ignore[index]
            states[event.id] = event.state

    @invariant()
    def holds_are_those_given_out(self) -> None:
        held = [handle for handle in self.held.values() if not handle.given_back]
        shown = self.manager.list()
        assert sum(each["holds"] for each in shown) == len(held)
        for handle in held:
            assert handle.state in {"ready", "draining"}
        taken = self.manager._books.places._used.get(("whole",), 0)
        opening = [each for each in shown if each["state"] in {"ready", "draining", "releasing"}]
        assert taken <= 3
        assert taken >= len([each for each in opening if each["state"] != "releasing"])

    def teardown(self) -> None:
        self.toy.close = None
        self.manager.close()
        background().run(asyncio.sleep(0))
        assert self.manager.list(state="ready") == []
        assert not any(each["holds"] for each in self.manager.list())
        assert all(handle.given_back for handle in self.held.values())
        unregister_provider("toy")
        self.folder.cleanup()


TestSchedules = pytest.mark.endurance(Schedules.TestCase)
TestSchedules.settings = settings(
    max_examples=40, stateful_step_count=25, suppress_health_check=[HealthCheck.too_slow]
)
