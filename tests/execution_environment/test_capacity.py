# Shows E95
"""Limits on number and time, and their effect on waiting executions (E94, E95, E96 in Python)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowengine.execution_environment import Capacity, EnvironmentManager
from flowengine.execution_environment.bookkeeping.books import CapacityTurn, Places
from flowengine.execution_environment.specs.spec import EnvironmentSpec
from flowengine.sdk import EnvironmentBusy, EnvironmentClosed
from tests.execution_environment.toy import SPEC, FakeClock, Heard, Toy, until
from tests.sliced_examples import sliced

Make = Callable[..., EnvironmentManager]


def named(owner: str, **more: Any) -> dict[str, Any]:
    return {**SPEC, "owner_id": owner, **more}


def waiting(manager: EnvironmentManager, number: int) -> None:
    """Wait until that many calls are queued."""
    # A list shows what is open or opening, not the line before it.
    until(lambda: manager._books.places.waiting == number)


def test_who_must_wait_is_served_in_order(make: Make, toy: Toy) -> None:
    manager = make(capacity=Capacity(whole=2))
    handles = [manager.ensure(named(owner)) for owner in "ab"]
    served: list[str] = []
    calls: list[Future[Any]] = []
    with ThreadPoolExecutor(3) as pool:
        for number, owner in enumerate("cde", start=1):
            call = pool.submit(manager.ensure, named(owner))
            call.add_done_callback(lambda _, owner=owner: served.append(owner))  # type: ignore[misc]
            calls.append(call)
            waiting(manager, number)
        assert toy.opens == 2
        for handle, call in zip([*handles, None], calls, strict=True):
            manager.release(handle or calls[0].result(60))
            call.result(60)

    assert served == ["c", "d", "e"]
    assert toy.opens == 5


def test_past_the_bound_the_error_names_who_has_the_places(
    make: Make, toy: Toy, clock: FakeClock
) -> None:
    manager = make(capacity=Capacity(kinds={"toy": 1}, wait=30), clock=clock)
    manager.ensure(named("a"), holder="step fetch")
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(manager.ensure, named("b"))
        waiting(manager, 1)
        clock.advance(30)

        with pytest.raises(EnvironmentBusy, match=r"30 s.*session a.*held by step fetch"):
            call.result(60)
    assert toy.tries == 1


def test_who_stops_waiting_frees_the_place_in_the_line(make: Make, toy: Toy) -> None:
    manager = make(capacity=Capacity(owner=1))
    first = manager.ensure(named("a"))

    async def main() -> None:
        gives_up = asyncio.ensure_future(manager.async_ensure(named("a", resource_key="x")))
        await asyncio.to_thread(waiting, manager, 1)
        stays = asyncio.ensure_future(manager.async_ensure(named("a", resource_key="y")))
        await asyncio.to_thread(waiting, manager, 2)
        gives_up.cancel()
        await asyncio.to_thread(waiting, manager, 1)
        other = await manager.async_ensure(named("b"))  # another owner does not have to wait
        assert other.state == "ready"
        await manager.async_release(first)
        assert (await stays).resource_key == "y"

    asyncio.run(main())


def test_what_nobody_holds_makes_room(make: Make, toy: Toy) -> None:
    manager = make(capacity=Capacity(whole=2))
    manager.release(manager.ensure(named("a", idle="1h")))
    manager.release(manager.ensure(named("b", idle="1h")))

    manager.ensure(named("c"))

    assert [thing.request.spec.owner_id for thing in toy.released] == ["a"]


def test_what_is_given_back_while_somebody_waits_makes_room(make: Make, toy: Toy) -> None:
    """Idle environments and those kept for a wait are closed, but only as many as necessary."""
    manager = make(capacity=Capacity(whole=3))
    idles = [manager.ensure(named(owner, idle="1h")) for owner in "ab"]
    manager.ensure({"kind": "toy", "owner_id": "e", "on_wait": "keep"})
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(manager.ensure, named("c"))
        waiting(manager, 1)
        manager.release(idles[0])
        assert call.result(60).state == "ready"
        call = pool.submit(manager.ensure, named("d"))
        waiting(manager, 1)
        manager.suspend_scope("execution", "e")
        assert call.result(60).state == "ready"
    manager.release(idles[1])

    assert [thing.request.spec.owner_id for thing in toy.released] == ["a", "e"]
    assert [thing.request.spec.owner_id for thing in toy.suspended] == ["e"]
    assert [each["owner_id"] for each in manager.list(state="ready")] == ["b", "c", "d"]


def test_more_than_there_are_is_refused_at_once(make: Make, toy: Toy) -> None:
    manager = make(capacity=Capacity(whole=1))

    with pytest.raises(EnvironmentBusy, match="never"):
        manager.ensure_all([named("a"), named("b")])
    manager.ensure(named("a"))
    with pytest.raises(EnvironmentBusy, match="never"):
        manager.ensure_all([named("a"), named("b")])


def test_nor_do_they_where_what_they_share_was_open_and_is_closed(make: Make, toy: Toy) -> None:
    """Each owner has one open environment, and closes it to make room for its other one."""
    manager = make(capacity=Capacity(whole=2))
    at_once = threading.Barrier(2)

    def both(owner: str) -> None:
        for _ in range(20):
            idle = named(owner, resource_key="idle", idle="1h")
            manager.release(manager.ensure(idle))
            at_once.wait(60)
            try:
                handles = manager.ensure_all([idle, named(owner, resource_key="other")])
            except EnvironmentBusy:
                at_once.abort()
                raise
            for handle in handles:
                manager.release(handle)
            at_once.wait(60)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(both, owner) for owner in "ab"]:
            done.result()


@sliced(examples=60)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 2)), max_size=60))
def test_places_are_served_in_order_and_none_is_lost(steps: list[tuple[int, int]]) -> None:
    """Random requests, releases and withdrawals with limits per kind, per owner and overall."""
    places = Places(Capacity(whole=3, owner=2, kinds={"k": 1}))
    had: list[CapacityTurn] = []
    line: list[CapacityTurn] = []
    for action, number in steps:
        if action <= 1:
            kind = "k" if action else "m"
            own = {"owner_id": f"o{number}"}
            kinds = [kind, "m"][:number]
            wanted = [EnvironmentSpec.model_validate({"kind": kind} | own) for kind in kinds]
            turn = CapacityTurn(wanted, lambda: None)
            assert places.possible(turn)
            line.append(turn)
            places.ask(turn)
        elif action == 2 and had:
            for place in had.pop(0).places:
                places.give_back(place)
        elif action == 3 and line:
            places.give_up(line.pop(-1 if number == 1 else 0))
        had += [turn for turn in line if turn.had]
        line = [turn for turn in line if not turn.had]
        open_ones = [place for turn in had for place in turn.places]
        assert len(open_ones) <= 3
        if not had:
            assert not line  # no request waits forever
    for turn in had:
        for place in turn.places:
            places.give_back(place)


# Times


# Shows E94
def test_what_nobody_holds_is_released_when_it_has_been_idle(
    make: Make, toy: Toy, clock: FakeClock
) -> None:
    manager = make(clock=clock)
    heard = Heard(manager)
    spec = named("a", idle="5m")
    handle = manager.ensure(spec)
    clock.advance(3600)  # held environments are not idle
    assert handle.state == "ready"
    manager.release(handle)
    clock.advance(299)
    handle = manager.ensure(spec)  # used environments are not idle
    manager.release(handle)
    clock.advance(299)
    assert (toy.opens, toy.releases) == (1, 0)

    clock.advance(1)

    manager.ensure(spec)
    assert heard.names(handle.id)[-2:] == ["releasing", "released"]
    assert (toy.opens, toy.releases) == (2, 1)


# Shows E94
def test_past_its_age_it_is_drained_and_not_cut(make: Make, toy: Toy, clock: FakeClock) -> None:
    manager = make(clock=clock)
    spec = named("a", max_age="1h", idle="2h")
    old = manager.ensure(spec)
    clock.advance(3600)

    new = manager.ensure(spec)

    assert (old.state, new.generation) == ("draining", 2)
    clock.advance(36_000)
    assert old.resource.echo("still") == "still"
    manager.release(old)
    assert toy.releases >= 1
    manager.release(new)
    clock.advance(3600)
    settle(manager)
    assert toy.releases == 2


def settle(manager: EnvironmentManager) -> None:
    """Wait until no environment is being closed."""
    until(lambda: not manager.list(state="releasing"))


# Shows E96
def test_while_its_execution_waits_it_is_given_back_or_kept(
    make: Make, toy: Toy, clock: FakeClock
) -> None:
    manager = make(clock=clock)
    heard = Heard(manager)
    kept = {"kind": "toy", "owner_id": "e", "resource_key": "kept", "on_wait": "keep"}
    back = {"kind": "toy", "owner_id": "e", "resource_key": "back"}
    first = manager.ensure(kept)
    other = manager.ensure(back)

    report = manager.suspend_scope("execution", "e")

    assert report.released == [other.id]
    assert [thing.request.spec.resource_key for thing in toy.suspended] == ["back"]
    with pytest.raises(EnvironmentClosed):
        first.resource  # noqa: B018
    assert manager.ensure(kept).generation == 1
    assert manager.ensure(back).generation == 2
    manager.suspend_scope("execution", "e")
    clock.advance(3599)
    [still] = manager.list(state="ready")
    assert still["resource_key"] == "kept"
    clock.advance(1)
    settle(manager)
    assert manager.list(state="ready") == []
    assert heard.names(still["id"])[-2:] == ["releasing", "released"]
    assert manager.ensure(kept).generation == 2


@pytest.mark.endurance
# Shows E96
def test_a_hundred_waiting_executions_hold_nothing(make: Make, toy: Toy) -> None:
    before = threading.active_count()  # other tests may have left idle ones
    manager = make(capacity=Capacity(whole=1))
    for number in range(100):
        spec = {"kind": "toy", "owner_id": str(number)}
        manager.ensure(spec)
        manager.suspend_scope("execution", str(number))

    assert manager.list(state="ready") == []
    assert (toy.opens, toy.releases) == (100, 100)
    assert threading.active_count() < before + 50
