# Shows E2, E19
"""Declaring, opening, reusing, releasing, listing (E1 to E8, E11 to E14, E19)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from flowengine.execution_environment import (
    EnvironmentManager,
    SpecInvalid,
    TimeBounds,
    UnknownEnvironment,
)
from flowengine.sdk import EnvironmentClosed
from tests.execution_environment.toy import SPEC, FakeClock, Heard, Thing, Toy

Make = Callable[..., EnvironmentManager]


# Shows E1
def test_declaring_checks_and_records_and_starts_nothing(
    manager: EnvironmentManager, toy: Toy
) -> None:
    heard = Heard(manager)

    declared = manager.declare({"kind": "toy"})

    assert declared["id"].startswith("env_")
    assert declared["resource_key"] == "toy"
    assert declared["scope"] == "execution"
    assert declared["on_wait"] == "release"
    assert declared["provider"] == "toy"
    assert manager.declare({"kind": "toy"}) == declared
    assert toy.tries == 0
    assert heard.names() == ["declared"]
    assert manager.inspect(declared["id"]) is not None


# Shows E3, E12
def test_ensuring_opens_once_by_spec_and_by_id(manager: EnvironmentManager, toy: Toy) -> None:
    first = manager.ensure(SPEC)
    second = manager.ensure(manager.declare(SPEC)["id"])

    assert first == second
    assert (toy.opens, toy.checks) == (1, 1)
    assert isinstance(first.resource, Thing)
    assert first.state == "ready"
    assert first.generation == 1
    assert (first.kind, first.scope, first.owner_id) == ("toy", "session", "s")
    assert (first.provider, first.resource_key, first.isolation) == ("toy", "toy", "none")
    assert manager.list(state="ready")[0]["holds"] == 2


# Shows E5
def test_the_last_release_closes(manager: EnvironmentManager, toy: Toy) -> None:
    heard = Heard(manager)
    handle, other = manager.ensure(SPEC), manager.ensure(SPEC)

    assert manager.release(handle).released == []
    assert toy.releases == 0
    assert manager.release(other.id).released == [handle.id]

    assert toy.releases == 1
    assert heard.names(handle.id) == ["ensuring", "ready", "releasing", "released"]
    assert [event.number for event in heard.events if event.id] == [1, 2, 3, 4]


# Shows E4
def test_coroutines_do_the_same_and_blocking_in_a_loop_is_refused(
    manager: EnvironmentManager, toy: Toy
) -> None:
    async def main() -> None:
        handle = await manager.async_ensure(SPEC)
        assert await manager.async_ensure(SPEC) == handle
        for verb, instead in (
            (lambda: manager.ensure(SPEC), "async_ensure"),
            (lambda: manager.release(handle), "async_release"),
            (lambda: manager.release_scope("session", "s"), "async_release_scope"),
            (manager.close, "async_close"),
            (lambda: handle.resource.echo("x"), "async_echo"),
        ):
            with pytest.raises(RuntimeError, match=instead):
                verb()
        assert await handle.resource.async_echo("x") == "x"
        await manager.async_release(handle)
        assert (await manager.async_release(handle.id)).released == [handle.id]

    asyncio.run(main())
    assert (toy.opens, toy.releases) == (1, 1)


def fail_in(manager: EnvironmentManager) -> None:
    with manager.use(SPEC) as resource:
        assert isinstance(resource, Thing)
        raise ZeroDivisionError


# Shows E4, E22
def test_leaving_a_block_releases_also_by_an_exception(
    manager: EnvironmentManager, toy: Toy
) -> None:
    async def main() -> None:
        async with manager.use(SPEC) as resource:
            assert isinstance(resource, Thing)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(main())
    with pytest.raises(ZeroDivisionError):
        fail_in(manager)

    assert (toy.opens, toy.releases) == (2, 2)


# Shows E6, S54
def test_releasing_a_scope_takes_all_of_its_owner_newest_first(
    manager: EnvironmentManager, toy: Toy
) -> None:
    for key, owner in (("a", "s"), ("b", "s"), ("c", "s"), ("other", "t")):
        manager.ensure({**SPEC, "resource_key": key, "owner_id": owner})
    manager.ensure({**SPEC, "resource_key": "a"})

    async def fail(thing: Thing) -> None:
        if thing.request.spec.resource_key == "b":
            raise OSError("stuck")

    toy.close = fail
    report = manager.release_scope("session", "s")

    assert [thing.request.spec.resource_key for thing in toy.released] == ["c", "a"]
    assert len(report.released) == 2
    assert [(each.resource_key, each.error) for each in report.failed] == [("b", "OSError")]
    assert [each["owner_id"] for each in manager.list(state="ready")] == ["t"]


# Shows E7
def test_inspecting_gives_plain_data_without_what_is_in_it(
    make: Make, toy: Toy, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    import json

    manager = make(clock=clock)

    monkeypatch.setenv("TOKEN", "SEKRET")
    toy.holds = {"memory": "cgroup"}
    spec = {**SPEC, "config": {"token": "secret:TOKEN"}, "limits": {"memory": "1GiB"}}
    handle = manager.ensure(spec, holder="step a")
    assert handle.resource.request.config.token.reveal() == "SEKRET"

    seen = manager.inspect(handle.id)

    assert seen is not None
    assert seen == manager.inspect(handle.spec_id)
    assert seen["state"] == "ready"
    assert (seen["holds"], seen["holders"], seen["provider"]) == (1, ["step a"], "toy")
    assert seen["limits"]["memory"] == 2**30
    assert (seen["age"], seen["checked"]) == (0, None)
    clock.advance(5)
    manager.ensure(spec)
    clock.advance(2)
    later = manager.inspect(handle.id)
    assert later is not None
    assert (later["age"], later["checked"], later["holds"]) == (7, 2, 2)
    assert "SEKRET" not in json.dumps(seen)
    assert "TOKEN" not in json.dumps(seen)
    assert manager.inspect("nope") is None
    assert manager.inspect(manager.declare({"kind": "toy"})["id"])["state"] == "declared"  # type: ignore[index]


# Shows E8
def test_listing_filters_and_gives_copies(manager: EnvironmentManager, toy: Toy) -> None:
    manager.ensure(SPEC)
    manager.ensure({"kind": "toy", "owner_id": "x"})
    manager.declare({"kind": "toy", "scope": "global"})

    found = manager.list(scope="execution")
    assert [each["owner_id"] for each in found] == ["x"]
    found[0]["state"] = "gone"
    found.clear()

    assert len(manager.list()) == 3
    assert [each["state"] for each in manager.list(scope="global")] == ["declared"]
    assert len(manager.list(state="ready", kind="toy")) == 2
    assert manager.list(owner_id="nobody") == []


# Shows E11, E106
def test_managers_are_independent(make: Make, toy: Toy) -> None:
    one, other = make(), make()

    handle = one.ensure(SPEC)
    assert one.ensure(SPEC) != other.ensure(SPEC)
    assert toy.opens == 2
    with pytest.raises(UnknownEnvironment, match="another manager"):
        other.release(handle)


# Health


# Shows E13
def test_the_unhealthy_one_of_its_only_holder_is_replaced_at_once(
    manager: EnvironmentManager, toy: Toy
) -> None:
    old = manager.ensure(SPEC, holder="a")
    heard = Heard(manager)
    toy.things[0].healthy = False

    new = manager.ensure(SPEC, holder="a")

    assert heard.names() == ["unhealthy", "releasing", "released", "ensuring", "ready"]
    assert (toy.opens, toy.releases) == (2, 1)
    assert new.generation == 2
    assert new != old
    manager.release(old)
    assert new.resource is toy.things[1]


def raises() -> bool:
    raise ValueError("SEKRET")


async def never() -> bool:
    await asyncio.Event().wait()
    return True


async def says_no() -> bool:
    return False


@pytest.mark.parametrize("check", [raises, never, says_no])
# Shows E14
def test_a_check_that_fails_in_any_way_means_unhealthy(
    make: Make, toy: Toy, check: Callable[[], Any]
) -> None:
    manager = make(bounds=TimeBounds(check=0.05))
    manager.ensure(SPEC, holder="a")
    toy.things[0].healthy = check

    new = manager.ensure(SPEC, holder="a")

    assert (new.generation, new.state) == (2, "ready")


# Shows E88
def test_what_others_hold_is_drained_and_not_torn_away(
    make: Make, toy: Toy, clock: FakeClock
) -> None:
    manager = make(clock=clock)
    a = manager.ensure(SPEC)
    toy.things[0].healthy = False

    b = manager.ensure(SPEC)

    assert (b.generation, toy.releases) == (2, 0)
    assert a.state == "draining"
    assert a.resource.echo("still here") == "still here"
    manager.release(a)
    assert toy.released == [toy.things[0]]
    assert b.resource.echo("x") == "x"


# Shows E88
def test_draining_ends_at_its_bound(make: Make, toy: Toy, clock: FakeClock) -> None:
    from flowengine.sdk import EnvironmentLost

    manager = make(clock=clock, bounds=TimeBounds(drain=60))
    heard = Heard(manager)
    a = manager.ensure(SPEC)
    resource = a.resource
    toy.things[0].healthy = False
    manager.ensure(SPEC)

    clock.advance(59)
    assert toy.releases == 0
    clock.advance(1)

    with pytest.raises(EnvironmentLost, match="environment 'toy'"):
        a.resource  # noqa: B018
    manager.release(a)
    manager.close()
    with pytest.raises(EnvironmentLost):
        resource.echo("x")
    assert heard.names(a.id)[-4:] == ["draining", "lost", "releasing", "released"]


# Owners and identity


# Shows E18
def test_owners_never_share(manager: EnvironmentManager, toy: Toy) -> None:
    a = manager.ensure({**SPEC, "owner_id": "a"})
    b = manager.ensure({**SPEC, "owner_id": "b"})

    manager.release_scope("session", "a")

    assert a.resource is not b.resource if a.state == "ready" else b.resource is toy.things[1]
    assert (a.state, b.state) == ("released", "ready")


@pytest.mark.parametrize(
    "other",
    [
        {"config": {"size": 2}},
        {"policy": {"allow": ["rm"]}},
        {"policy": {"network": "any"}},
        {"limits": {"time": 5, "best_effort": True}},
        {"config": {"token": "secret:OTHER"}},
        {"secrets": {"TOKEN": {"env": "OTHER"}}},
        {"args": {"python": "3.13"}},
    ],
    ids=str,
)
def test_everything_in_a_spec_tells_it_from_others(
    manager: EnvironmentManager, toy: Toy, other: dict[str, Any]
) -> None:
    spec = {**SPEC, "config": {"token": "secret:TOKEN"}, "policy": {"allow": ["ls"]}}

    assert manager.declare({**spec, **other})["id"] != manager.declare(spec)["id"]


# Wrong ids, and the end


# Shows E106
def test_unknown_ids_are_told_and_a_second_release_does_nothing(
    manager: EnvironmentManager, toy: Toy
) -> None:
    a, b = manager.ensure(SPEC), manager.ensure(SPEC)
    for wrong in ("nope", None, 7):
        with pytest.raises(UnknownEnvironment):
            manager.release(wrong)  # type: ignore[arg-type]
    with pytest.raises(UnknownEnvironment, match="'nope'"):
        manager.ensure("nope")
    with pytest.raises(SpecInvalid):
        manager.ensure(None)  # type: ignore[arg-type]
    assert manager.inspect(None) is None  # type: ignore[arg-type]

    manager.release(a)
    manager.release(a)
    manager.release(a)

    assert b.resource.echo("x") == "x"
    with pytest.raises(EnvironmentClosed, match="environment 'toy'"):
        a.resource  # noqa: B018
    manager.release(b)
    assert manager.release(b).released == []
    assert manager.release(b.id).released == []
    assert toy.releases == 1
    seen = manager.inspect(b.id)
    assert seen is not None
    assert seen["state"] == "released"


def test_a_closed_manager_has_released_everything_and_opens_nothing(make: Make, toy: Toy) -> None:
    manager = make()
    resources = [
        manager.ensure({**SPEC, "scope": scope, "resource_key": scope}).resource
        for scope in ("session", "global", "request", "agent", "region")
    ]

    report = manager.close()

    assert toy.released == resources[::-1]
    assert len(report.released) == 5
    assert manager.list(state="ready") == []
    with pytest.raises(EnvironmentClosed, match="manager"):
        manager.ensure(SPEC)
    with pytest.raises(EnvironmentClosed, match="released"):
        resources[0].echo("x")
    assert manager.close().released == []
