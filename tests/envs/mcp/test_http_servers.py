"""Servers over HTTP that refuse requests, forget sessions and disappear (E50-E52, E57)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from flowengine.execution_environment import EnvironmentManager
from flowengine.sdk import EnvironmentLost, EnvironmentStartFailed, StepError
from tests.envs.mcp.conftest import Open
from tests.envs.mcp.http_server import HttpServer


@pytest.fixture
def server() -> Iterator[HttpServer]:
    with HttpServer() as made:
        yield made


@pytest.mark.parametrize("status", [401, 403, 500])
# Shows E50
def test_a_server_that_refuses_is_told_with_its_status(
    opened: Open, server: HttpServer, status: int
) -> None:
    server.refuse = status

    with pytest.raises(EnvironmentStartFailed, match=str(status)) as caught:
        opened(url=server.url)
    assert caught.value.retryable is (None if status == 500 else False)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
# Shows E52
def test_a_session_that_the_server_dropped_is_begun_anew_once(
    opened: Open, server: HttpServer, mode: str
) -> None:
    session = opened(url=server.url, headers={"x-tenant": "a"}, mode=mode)
    assert session.call_tool("count").text == "1"
    assert ("server/discover" in server.methods()) == (mode == "auto")
    server.sessions.clear()
    server.requests.clear()

    with ThreadPoolExecutor(5) as pool:
        answers = list(pool.map(lambda _: session.call_tool("count").text, range(5)))

    assert sorted(answers) == ["2", "3", "4", "5", "6"]
    begun = [headers for method, headers in server.requests if method == "initialize"]
    assert len(begun) == 1
    assert "mcp-session-id" not in begun[0]
    assert all(headers["x-tenant"] == "a" for _, headers in server.requests)


def test_a_server_that_forgets_at_once_again_is_an_error(opened: Open, server: HttpServer) -> None:
    session = opened(url=server.url)
    server.sessions.clear()
    server.forgets = True
    server.requests.clear()

    with pytest.raises(StepError):
        session.call_tool("count")
    assert server.calls == 0
    assert server.methods().count("initialize") <= 2


def test_release_does_not_wait_for_a_call(
    opened: Open, server: HttpServer, manager: EnvironmentManager
) -> None:
    session = opened(url=server.url)
    begun, end = threading.Event(), threading.Event()

    def hang() -> bool:
        begun.set()
        return end.wait(60)

    server.during = hang

    with ThreadPoolExecutor(1) as pool:
        called = pool.submit(session.call_tool, "count")
        assert begun.wait(60)
        assert manager.release_scope("session").failed == []
        assert called.exception(60) is not None
        end.set()


# Shows E57
def test_the_value_of_a_header_is_in_nothing_that_is_told(
    manager: EnvironmentManager,
    server: HttpServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("TOKEN", "SEKRET-token")
    caplog.set_level("DEBUG")
    events: list[Any] = []
    manager.subscribe(events.append)
    config = {"url": server.url, "headers": {"authorization": "secret:TOKEN"}}
    handle = manager.ensure({"kind": "mcp", "scope": "session", "config": config})
    assert handle.resource.call_tool("count").text == "1"
    server.during = lambda: True
    with pytest.raises(EnvironmentLost) as caught:
        handle.resource.call_tool("count")

    assert {headers["authorization"] for _, headers in server.requests} == {"SEKRET-token"}
    told = [
        caught.value.message,
        json.dumps(manager.inspect(handle.id)),
        caplog.text,
        repr(handle.resource),
        *map(repr, events),
    ]
    assert not [each for each in told if "SEKRET" in each]
