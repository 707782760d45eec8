# Shows E25
"""Opening environments ahead of their first use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from flowengine.execution_environment import Capacity, EnvironmentManager
from flowengine.sdk import EnvironmentClosed, EnvironmentStartFailed
from tests.execution_environment.toy import SPEC, FakeClock, Gate, Thing, Toy, until

Make = Callable[..., EnvironmentManager]
KEPT: dict[str, Any] = {"kind": "toy", "owner_id": "e", "on_wait": "keep", "keep_for": 70}
GIVEN_BACK = {**KEPT, "on_wait": "release"}


def states(manager: EnvironmentManager) -> list[str]:
    return [each["state"] for each in manager.list()]


def test_it_is_open_though_nobody_holds_it_and_the_first_user_gets_it(
    manager: EnvironmentManager, toy: Toy
) -> None:
    manager.open_ahead(SPEC).result(60)

    [shown] = manager.list()
    assert (shown["state"], shown["holds"], toy.opens) == ("ready", 0, 1)
    handle = manager.ensure(SPEC)
    assert (handle.resource, handle.generation) == (toy.things[0], 1)
    manager.open_ahead(SPEC).result(60)
    manager.release(handle)
    assert (toy.opens, toy.releases) == (1, 1)


def test_whoever_needs_it_meanwhile_waits_for_it(manager: EnvironmentManager, toy: Toy) -> None:
    gate = toy.open = Gate()
    opening = manager.open_ahead(SPEC)
    assert gate.reached.wait(60)
    with ThreadPoolExecutor(1) as pool:
        ensuring = pool.submit(manager.ensure, SPEC)
        until(lambda: manager.list()[0]["waiting"] == 2)
        gate.open()

        assert ensuring.result(60).resource is toy.things[0]
    assert (opening.result(60), toy.opens) == (None, 1)


def test_who_stops_waiting_for_it_does_not_stop_it(manager: EnvironmentManager, toy: Toy) -> None:
    gate = toy.open = Gate()
    opening = manager.open_ahead(SPEC)

    async def stops_waiting() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(manager.async_ensure(SPEC), 0.05)

    asyncio.run(stops_waiting())
    assert not opening.cancel()
    gate.open()

    assert opening.result(60) is None
    assert states(manager) == ["ready"]


def test_what_cannot_be_opened_is_told_and_tried_again_by_who_needs_it(
    manager: EnvironmentManager, toy: Toy
) -> None:
    async def fails(_request: object) -> Thing:
        raise EnvironmentStartFailed("there is no such machine")

    toy.open = fails
    error = manager.open_ahead(SPEC).exception(60)
    assert isinstance(error, EnvironmentStartFailed)
    toy.behave()

    assert manager.ensure(SPEC).resource.echo("x") == "x"
    assert toy.tries == 2


@pytest.mark.parametrize("end", ["release", "close"])
def test_released_while_it_opens_it_leaves_nothing(
    manager: EnvironmentManager, toy: Toy, end: str
) -> None:
    gate = toy.open = Gate()
    opening = manager.open_ahead(SPEC)
    assert gate.reached.wait(60)

    if end == "release":
        manager.release_scope("session", "s")
    else:
        manager.close()

    assert isinstance(opening.exception(60), EnvironmentClosed)
    assert (toy.opens, "ready" in states(manager)) == (0, False)


def test_released_unused_it_is_closed(manager: EnvironmentManager, toy: Toy) -> None:
    manager.open_ahead(SPEC).result(60)

    manager.release_scope("session", "s")

    assert (toy.opens, toy.releases) == (1, 1)


def test_its_owner_waits_and_does_not_keep_it(manager: EnvironmentManager, toy: Toy) -> None:
    gate = toy.open = Gate()
    opening = manager.open_ahead(GIVEN_BACK)
    assert gate.reached.wait(60)

    manager.suspend_scope("execution", "e")

    assert isinstance(opening.exception(60), EnvironmentClosed)
    toy.behave()
    assert manager.ensure(GIVEN_BACK).resource.echo("x") == "x"


def test_its_owner_waits_and_keeps_it_from_when_it_is_open(
    make: Make, toy: Toy, clock: FakeClock
) -> None:
    manager = make(clock=clock)
    gate = toy.open = Gate()
    opening = manager.open_ahead(KEPT)
    assert gate.reached.wait(60)
    manager.suspend_scope("execution", "e")
    clock.advance(69)
    gate.open()
    opening.result(60)

    clock.advance(69)
    assert states(manager) == ["ready"]
    clock.advance(1)
    until(lambda: toy.releases == 1)


def test_needed_again_before_it_is_open_it_stays(make: Make, toy: Toy, clock: FakeClock) -> None:
    manager = make(clock=clock)
    gate = toy.open = Gate()
    manager.open_ahead(KEPT)
    assert gate.reached.wait(60)
    manager.suspend_scope("execution", "e")
    with ThreadPoolExecutor(1) as pool:
        ensuring = pool.submit(manager.ensure, KEPT)
        until(lambda: manager.list()[0]["waiting"] == 2)
        gate.open()
        handle = ensuring.result(60)

    clock.advance(1000)
    assert (handle.state, clock.pending()) == ("ready", [])


def test_unused_it_idles_as_long_as_its_spec_says(make: Make, toy: Toy, clock: FakeClock) -> None:
    manager = make(clock=clock)
    manager.open_ahead({**SPEC, "idle": 50}).result(60)

    clock.advance(49)
    assert states(manager) == ["ready"]
    clock.advance(1)
    until(lambda: toy.releases == 1)


def test_it_gives_its_place_to_what_is_needed(make: Make, toy: Toy) -> None:
    manager = make(capacity=Capacity(whole=1))
    manager.open_ahead(SPEC).result(60)

    needed = manager.ensure({**SPEC, "owner_id": "other"})

    assert needed.state == "ready"
    assert (toy.opens, toy.releases) == (2, 1)
