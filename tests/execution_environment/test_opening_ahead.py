# Shows E25
"""Opening environments ahead of their first use."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from flowengine.execution_environment import EnvironmentManager
from flowengine.sdk import EnvironmentClosed
from tests.execution_environment.toy import SPEC, FakeClock, Gate, Toy, until

Make = Callable[..., EnvironmentManager]
KEPT: dict[str, Any] = {"kind": "toy", "owner_id": "e", "on_wait": 70}


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
