"""Concurrency, and all kinds of failures (E28, E85, E88 to E92, E107)."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from flowengine.execution_environment import EnvironmentManager, SpecInvalid, TimeBounds
from flowengine.execution_environment.clock import SystemTimerClock, within
from flowengine.sdk import EnvironmentClosed, EnvironmentLost, EnvironmentStartFailed
from flowengine.sdk.environments import Request, background
from flowengine.sdk.python.user_code import bounded
from tests.execution_environment.toy import SPEC, FakeClock, Gate, Heard, Thing, Toy, until

Make = Callable[..., EnvironmentManager]


# Shows E85
def test_any_number_at_once_make_one(manager: EnvironmentManager, toy: Toy) -> None:
    gate = toy.open = Gate()

    def all_wait() -> None:
        until(lambda: manager.list()[0]["waiting"] == 120)

    async def main() -> list[Any]:
        tasks = [asyncio.ensure_future(manager.async_ensure(SPEC)) for _ in range(100)]
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(20) as pool:
            blocked = [loop.run_in_executor(pool, manager.ensure, SPEC) for _ in range(20)]
            await asyncio.to_thread(all_wait)
            gate.open()
            return await asyncio.gather(*tasks, *blocked)

    handles = asyncio.run(main())

    assert len(set(handles)) == 1
    assert toy.opens == 1
    assert manager.list()[0]["holds"] == 120
    for handle in handles[:-1]:
        manager.release(handle)
    assert toy.releases == 0
    manager.release(handles[-1])
    assert toy.releases == 1


# Shows E85
def test_a_failed_opening_fails_all_who_wait_and_the_next_one_tries_anew(
    manager: EnvironmentManager, toy: Toy
) -> None:
    gate = asyncio.Event()

    async def broken(request: Request) -> Any:
        await gate.wait()
        raise OSError("no luck")

    toy.open = broken

    async def main() -> list[Any]:
        tasks = [asyncio.ensure_future(manager.async_ensure(SPEC)) for _ in range(10)]
        await asyncio.sleep(0)
        background().loop.call_soon_threadsafe(gate.set)
        return await asyncio.gather(*tasks, return_exceptions=True)

    errors = asyncio.run(main())

    assert toy.tries == 1
    assert {type(error) for error in errors} == {EnvironmentStartFailed}
    assert len({id(error) for error in errors}) == 10
    toy.open = None
    assert manager.ensure(SPEC).generation == 2


# Shows E90
def test_an_opening_that_nobody_waits_for_is_stopped(manager: EnvironmentManager, toy: Toy) -> None:
    ended = threading.Event()
    reached = threading.Event()

    async def endless(request: Request) -> Any:
        reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    toy.open = endless
    heard = Heard(manager)

    async def main() -> None:
        tasks = [asyncio.ensure_future(manager.async_ensure(SPEC)) for _ in range(10)]
        await asyncio.to_thread(reached.wait, 60)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    asyncio.run(main())

    assert ended.wait(60)
    toy.open = None
    new = manager.ensure(SPEC)  # starts after the old one has ended
    assert (new.generation, toy.opens) == (2, 1)
    names = heard.names()
    assert names.index("released") < names.index("ready")


def test_what_comes_when_nobody_waits_any_more_is_closed(
    make: Make, toy: Toy, clock: FakeClock
) -> None:
    manager = make(clock=clock, bounds=TimeBounds(start=0.05))
    made: list[Thing] = []
    go = asyncio.Event()
    closed = threading.Event()

    async def stubborn(request: Request) -> Any:
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue
        made.append(Thing(request))
        return made[0]

    async def close(thing: Thing) -> None:
        closed.set()

    toy.open, toy.close = stubborn, close
    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(manager.ensure, SPEC)
        until(lambda: toy.tries)
        clock.advance(0.05)
        with pytest.raises(EnvironmentStartFailed, match="not ready within"):
            opening.result(60)
    background().loop.call_soon_threadsafe(go.set)

    assert closed.wait(60)
    assert toy.released == made
    toy.open = None
    assert manager.ensure(SPEC).state == "ready"


def test_interrupting_a_blocked_caller_leaves_no_hold(
    manager: EnvironmentManager, toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    from concurrent.futures import Future

    gate = toy.open = Gate()
    waited, caller = Future.result, threading.current_thread()

    def interrupted(self: Any, timeout: Any = None) -> Any:
        if threading.current_thread() is not caller:
            return waited(self, timeout)
        gate.reached.wait(60)
        monkeypatch.setattr(Future, "result", waited)
        raise KeyboardInterrupt

    monkeypatch.setattr(Future, "result", interrupted)
    with pytest.raises(KeyboardInterrupt):
        manager.ensure(SPEC)
    toy.open = None

    assert manager.ensure(SPEC).generation == 2
    assert manager.list()[0]["holds"] == 1


# Several together


# Shows E28, S55
def test_of_several_those_before_the_one_that_fails_are_given_back(
    manager: EnvironmentManager, toy: Toy
) -> None:
    async def second_fails(request: Request) -> Any:
        if request.spec.resource_key == "b":
            raise OSError("no luck")
        return Thing(request)

    toy.open = second_fails
    specs = [{**SPEC, "resource_key": key} for key in "abc"]

    with pytest.raises(EnvironmentStartFailed, match="environment 'b'"):
        manager.ensure_all(specs)

    assert toy.log == ["open a", "release a"]
    assert toy.tries == 2
    toy.open = None
    handles = manager.ensure_all(specs)
    assert [handle.resource_key for handle in handles] == ["a", "b", "c"]


# Shows E108
def test_two_specs_of_one_name_are_refused_naming_both(
    manager: EnvironmentManager, toy: Toy
) -> None:
    one, other = {"kind": "toy"}, {"kind": "toy", "config": {"size": 2}}
    first = manager.declare(one)["id"]

    with pytest.raises(SpecInvalid, match="two different specs") as refused:
        manager.declare(other)
    with pytest.raises(SpecInvalid, match="two different specs"):
        manager.ensure_all([{**SPEC}, {**SPEC, "config": {"size": 2}}])

    assert first in str(refused.value)
    assert toy.tries == 0
    assert len(manager.ensure_all([one, dict(one)])) == 2
    assert toy.opens == 1


# Providers that misbehave


async def nothing(request: Request) -> Any:
    return None


async def future(request: Request) -> Any:
    return asyncio.Event().wait()


async def leaves(request: Request) -> Any:
    raise SystemExit(3)


async def interrupts(request: Request) -> Any:
    raise KeyboardInterrupt


async def cancels(request: Request) -> Any:
    raise asyncio.CancelledError


async def never(request: Request) -> Any:
    await asyncio.Event().wait()


@pytest.mark.parametrize("open", [nothing, future, leaves, interrupts, cancels, never])
# Shows E107
def test_a_provider_that_misbehaves_is_contained(
    make: Make, toy: Toy, clock: FakeClock, open: Callable[[Request], Any]
) -> None:
    manager = make(clock=clock, bounds=TimeBounds(start=0.1))
    toy.open = open

    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(manager.ensure, SPEC)
        until(lambda: toy.tries)
        if open is never:
            clock.advance(0.1)
        with pytest.raises(EnvironmentStartFailed, match="provider 'toy'"):
            opening.result(60)

    toy.open = None
    assert manager.ensure(SPEC).resource.echo("x") == "x"


# Shows E107
def test_what_a_provider_does_to_its_spec_reaches_nobody(
    manager: EnvironmentManager, toy: Toy
) -> None:
    async def changes(request: Request) -> Any:
        for copy in (request.spec.config, request.config):
            copy.headers["x"] = "changed"
            copy.__dict__["image"] = "changed"
        request.spec.needs["isolation"] = "container"  # type: ignore[index]
        return Thing(request)

    given = {**SPEC, "config": {"headers": {"a": "b"}}}
    toy.open = changes
    handle = manager.ensure(given)
    manager.release(handle)
    toy.open = None

    again = manager.ensure(given)

    assert given["config"] == {"headers": {"a": "b"}}
    assert again.resource.request.config.headers == {"a": "b"}
    assert again.resource.request.config.image == "plain"
    assert again.resource.request.spec.needs == {}
    assert again.spec_id == handle.spec_id


# Closing


async def stuck(thing: Thing) -> None:
    raise OSError("stuck")


@pytest.mark.parametrize("hangs", [False, True])
# Shows E89
def test_what_cannot_be_closed_is_set_aside_and_tried_again(
    make: Make, toy: Toy, clock: FakeClock, hangs: bool
) -> None:
    begun = threading.Event()

    async def hang(thing: Thing) -> None:
        begun.set()
        await asyncio.Event().wait()

    bounds = TimeBounds(release=0.5, retries=(10, 20))
    manager = make(clock=clock, bounds=bounds)
    heard = Heard(manager)
    handle = manager.ensure(SPEC)
    toy.close = hang if hangs else stuck

    if hangs:
        thread = threading.Thread(target=lambda: manager.release(handle), daemon=True)
        thread.start()
        assert begun.wait(60)  # by now the clock has the timer of the limit
        clock.advance(0.5)
        thread.join(60)
    else:
        assert manager.release(handle).failed[0].error == "OSError"

    assert manager.list(state="failed")[0]["id"] == handle.id
    other = manager.ensure(SPEC)
    assert (other.generation, other.state) == (2, "ready")
    toy.close = None
    clock.advance(10)
    until(lambda: toy.released and len(manager.list()) == 1)
    assert toy.released == [toy.things[0]]
    expected = ["ensuring", "ready", "releasing", "failed", "releasing", "released"]
    assert heard.names(handle.id) == expected
    assert other.state == "ready"


# Shows E89
def test_after_the_last_try_it_is_reported(make: Make, toy: Toy, clock: FakeClock) -> None:
    manager = make(clock=clock, bounds=TimeBounds(retries=(1, 1)))
    heard = Heard(manager)
    handle = manager.ensure(SPEC)
    toy.close = stuck
    manager.release(handle)

    def tried(times: int) -> bool:
        return heard.names(handle.id).count("failed") == times

    for times in (1, 2, 3):
        until(partial(tried, times))
        failed = manager.list(state="failed")  # the next try is already scheduled
        clock.advance(1)

    clock.advance(100)
    assert heard.names(handle.id).count("releasing") == 3
    assert [each["id"] for each in failed] == [handle.id]
    assert failed[0]["error"] == "OSError"
    assert clock.pending() == []


# Shows E92
def test_a_call_that_runs_ends_before_its_environment_is_given_back(
    manager: EnvironmentManager, toy: Toy
) -> None:
    resource = manager.ensure(SPEC).resource
    begun, gate = threading.Event(), asyncio.Event()
    with ThreadPoolExecutor(2) as pool:
        call = pool.submit(resource.until, begun, gate)
        assert begun.wait(60)
        released = pool.submit(manager.release_scope, "session", "s")
        until(lambda: manager.list()[0]["state"] == "releasing")
        assert toy.releases == 0
        background().loop.call_soon_threadsafe(gate.set)

        assert call.result(60) == "done"
        assert len(released.result(60).released) == 1
    with pytest.raises(EnvironmentClosed, match=r"environment 'toy' .*session s"):
        resource.echo("x")


# Shows E92
def test_a_call_without_end_is_cut_off_at_the_bound(make: Make, toy: Toy) -> None:
    manager = make(bounds=TimeBounds(use=0.05))
    resource = manager.ensure(SPEC).resource
    begun = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(resource.hang, begun)
        assert begun.wait(60)

        manager.release_scope("session", "s")

        with pytest.raises(EnvironmentLost, match="interrupted"):
            call.result(60)
    assert toy.releases == 1


@pytest.mark.parametrize("limited", [partial(within, SystemTimerClock(), 9), partial(bounded, 9)])
def test_work_that_a_loop_that_ends_never_began_is_closed(
    limited: Callable[[Awaitable[None]], Awaitable[object]],
) -> None:
    """Python warns of coroutines that are never awaited, and warnings are errors here."""

    async def work() -> None:
        raise AssertionError("nobody wants it any more")

    async def cancelled_at_once() -> None:
        waiting = asyncio.ensure_future(limited(made))
        await asyncio.sleep(0)  # the task exists, but has not started
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.wait([waiting])

    made = work()
    asyncio.run(cancelled_at_once())

    assert inspect.getcoroutinestate(made) == inspect.CORO_CLOSED
