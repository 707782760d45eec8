"""Events report all changes in order, without any contents (E73 to E75)."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from flowengine.execution_environment import EnvironmentManager, SpecInvalid
from flowengine.execution_environment.observation import Event
from flowengine.sdk import EnvironmentFailure
from flowengine.sdk.environments import Request
from tests.execution_environment.toy import SPEC, Heard, Toy

Make = Callable[..., EnvironmentManager]
FIELDS = {
    "event",
    "id",
    "spec_id",
    "kind",
    "scope",
    "owner_id",
    "resource_key",
    "provider",
    "state",
    "generation",
    "number",
    "at",
    "error",
}


# Shows E75
def test_one_that_raises_or_blocks_holds_up_nobody(
    manager: EnvironmentManager, toy: Toy, caplog: pytest.LogCaptureFixture
) -> None:
    blocked, go = threading.Event(), threading.Event()

    def raises(event: Event) -> None:
        raise ZeroDivisionError("SEKRET")

    def blocks(event: Event) -> None:
        blocked.set()
        assert go.wait(60)

    manager.subscribe(raises)
    manager.subscribe(blocks)
    heard = Heard(manager)

    with caplog.at_level(logging.DEBUG):
        handle = manager.ensure(SPEC)
        assert blocked.wait(60)
        manager.release(handle)
        go.set()
        names = heard.names()

    assert names == ["declared", "ensuring", "ready", "releasing", "released"]
    told = [record.getMessage() for record in caplog.records if "subscriber" in record.message]
    assert len(told) == 1
    assert "ZeroDivisionError" in told[0]
    assert "SEKRET" not in caplog.text


def test_unsubscribing_ends_it(manager: EnvironmentManager, toy: Toy) -> None:
    heard: list[Event] = []
    stop = manager.subscribe(heard.append)
    stop()

    manager.ensure(SPEC)

    assert manager.flush_events()
    assert heard == []


async def tells(request: Request) -> Any:
    request.log.error("could not use %s", request.config.token.reveal())
    raise OSError(f"login as {request.config.token.reveal()} failed")


async def tells_in_type(request: Request) -> Any:
    raise EnvironmentFailure(f"{request.config.headers['x']} is wrong", data={"key": "SEKRET"})


@pytest.mark.parametrize("open", [None, tells, tells_in_type])
# Shows E74
def test_no_secret_leaves_an_environment(
    make: Make,
    toy: Toy,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    open: Callable[[Request], Any] | None,
    tmp_path: Any,
) -> None:
    monkeypatch.setenv("TOKEN", "SEKRET")
    manager = make()
    heard = Heard(manager)
    toy.open = open
    spec = {**SPEC, "config": {"token": "secret:TOKEN", "headers": {"x": "secret:TOKEN"}}}
    told = ""

    with caplog.at_level(logging.DEBUG):
        try:
            handle = manager.ensure(spec)
            assert handle.resource.request.config.headers == {"x": "SEKRET"}
            told += repr(handle) + repr(handle.resource.request.config.token)
        except EnvironmentFailure as error:
            told += f"{error!r} {error} {error.data} {error.__cause__!r} {error.__context__!r}"
    told += json.dumps([manager.list(), manager.declare(spec)])
    heard.names()
    told += json.dumps([event.data() for event in heard.events]) + caplog.text

    assert "SEKRET" not in told
    for event in heard.events:
        assert event.data().keys() == FIELDS


# Shows E74
def test_a_secret_written_in_clear_is_refused_without_showing_it(
    manager: EnvironmentManager, toy: Toy
) -> None:
    with pytest.raises(SpecInvalid, match=r"config\.token: must be a reference") as refused:
        manager.ensure({**SPEC, "config": {"token": "SEKRET"}})

    assert "SEKRET" not in f"{refused.value!r} {refused.value.data}"
    assert manager.list() == []


# Shows E103
def test_an_unknown_secret_is_named_and_nothing_is_opened(
    manager: EnvironmentManager, toy: Toy
) -> None:
    from flowengine.sdk import SecretMissing

    with pytest.raises(SecretMissing, match="'NO_SUCH_TOKEN'"):
        manager.ensure({**SPEC, "config": {"token": "secret:NO_SUCH_TOKEN"}})

    assert toy.tries == 0
