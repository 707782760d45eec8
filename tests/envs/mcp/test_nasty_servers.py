# Shows E55
"""Servers that start badly, die, flood, pry and refuse to exit (E50, E51, E54-E57)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from flowengine.execution_environment import EnvironmentManager, TimeBounds
from flowengine.sdk import EnvironmentLost, EnvironmentStartFailed, LimitExceeded, Timeout
from flowengine.sdk.environments import background
from flowengine_envs.mcp.stdio import GRACE
from tests.alive import alive
from tests.envs.enough import enough
from tests.envs.mcp.conftest import NASTY, Open, ends
from tests.envs.opening import managed_processes

# Starting (E50)

LATE = "did not answer in time|was not ready within"
"""On a busy machine, the time may be over before the server has started."""


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"command": [*NASTY, "end"]}, "cannot start: no licence"),
        ({"command": "/no/such/program"}, "no program /no/such/program"),
        ({"command": "no-such-program-anywhere"}, "no program no-such-program-anywhere"),
        ({"command": ["sh", "-c", "echo hello; exec sleep 1000"]}, LATE),
        ({"command": [*NASTY, "silent"]}, LATE),
        ({"command": [*NASTY, "old"]}, "1999-01-01"),
        ({"command": [*NASTY], "cwd": "no/such/folder"}, "No such file"),
        ({"command": "/etc/hostname"}, "no program|Permission denied|Exec format|not found"),
        ({"url": "http://127.0.0.1:9/mcp"}, "connect"),
    ],
    ids=lambda given: None if isinstance(given, dict) else given[:12],
)
# Shows E50
def test_what_does_not_start_is_told_within_the_deadline_and_leaves_nothing(
    tmp_path: Path, config: dict[str, Any], told: str
) -> None:
    import mcp  # noqa: F401 - takes seconds on a busy machine, outside of the start

    with EnvironmentManager(
        tmp_path / "environments", bounds=TimeBounds(start=4 if told == LATE else 60)
    ) as manager:
        begin = time.monotonic()
        spec = {"kind": "mcp", "scope": "session", "folder": str(tmp_path), "config": config}
        with pytest.raises(EnvironmentStartFailed, match=f"(?i){told}"):
            manager.ensure(spec)
        assert time.monotonic() - begin < 50
        assert managed_processes(manager) == []


# Health (E51)


# Shows E51
def test_a_server_that_died_between_calls_is_made_anew(
    nasty: Open, manager: EnvironmentManager
) -> None:
    first = nasty()
    assert first.call_tool("count").text == "1"
    assert nasty() is first
    for pid in managed_processes(manager):
        os.kill(pid, signal.SIGKILL)

    second = nasty()

    assert second is not first
    assert second.call_tool("count").text == "1"


# Shows E51
def test_a_server_that_dies_during_a_call_is_lost_and_the_call_is_not_repeated(nasty: Open) -> None:
    session = nasty()

    with pytest.raises(EnvironmentLost, match="may or may not have acted") as caught:
        session.call_tool("die")

    assert caught.value.data == {"ran": "maybe"}
    assert "I am dying" in caught.value.message
    with pytest.raises(EnvironmentLost):
        session.call_tool("count")
    assert nasty().call_tool("count").text == "1"


def test_a_call_without_an_answer_is_given_up_and_the_session_goes_on(nasty: Open) -> None:
    seconds = enough(lambda: nasty().call_tool("count"), least=0.3)
    session = nasty(limits={"time": seconds})

    told = rf"tool hang: no answer in {seconds:g} s \(limits\.time\)"
    with pytest.raises(Timeout, match=told) as caught:
        session.call_tool("hang")
    assert caught.value.data == {"limit": "time", "value": seconds}
    with pytest.raises(Timeout, match=r"no answer in 0\.1 s$"):
        session.call_tool("hang", timeout=0.1)
    assert session.call_tool("count", timeout=60).text == "3"


@pytest.mark.parametrize("how", ["its time", "cancelled"])
# Shows G15
def test_a_server_that_hangs_in_a_call_is_started_again_for_the_next_one(
    nasty: Open, manager: EnvironmentManager, how: str
) -> None:
    """Even if the time of each call is shorter than a check of the server may take."""
    first = nasty()
    assert first.call_tool("count").text == "1"
    [hanging] = {pid for pid in managed_processes(manager) if "nasty" in _words(pid)}

    async def cancelled() -> None:
        async with asyncio.timeout(0.3):
            await first.async_call_tool("hang", {"block": True})

    if how == "cancelled":
        with pytest.raises(TimeoutError):
            background().run(cancelled())
    else:
        with pytest.raises(Timeout, match=r"no answer in 0\.3 s"):
            first.call_tool("hang", {"block": True}, timeout=0.3)
    second = nasty()

    assert second is not first
    assert second.call_tool("count").text == "1"
    assert ends(hanging)


def _words(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


# The end (E54)


@pytest.mark.endurance
@pytest.mark.parametrize("how", ["release", "crash", "suspend"])
# Shows E54
def test_the_whole_process_tree_ends(nasty: Open, manager: EnvironmentManager, how: str) -> None:
    session = nasty()
    child = int(session.call_tool("spawn").text)
    assert alive(child)

    if how == "crash":
        with pytest.raises(EnvironmentLost):
            session.call_tool("die")
    verb = manager.suspend_scope if how == "suspend" else manager.release_scope
    assert 2 * GRACE < 5  # a server that ignores the end of its input is terminated, then killed
    verb("session")

    assert ends(child)


# Messages from the server (E55)


def test_a_huge_answer_is_an_error_and_the_session_goes_on(nasty: Open) -> None:
    session = nasty(limits={"output": "1MB"})

    told = r"message has 100,000,1\d\d bytes, more than 1,000,000 bytes \(limits.output\)"
    with pytest.raises(LimitExceeded, match=told) as caught:
        session.call_tool("big", {"size": 100_000_000})
    assert caught.value.data == {"limit": "output", "value": 1_000_000, "ran": "maybe"}
    assert len(session.call_tool("big", {"size": 900_000}).text) == 900_000
    assert session.call_tool("count").text == "3"


@pytest.mark.endurance
@pytest.mark.parametrize(
    ("tool", "args"), [("flood", {"count": 3000}), ("errors", {"count": 20_000}), ("garbage", {})]
)
def test_floods_and_garbage_do_no_harm(nasty: Open, tool: str, args: dict[str, Any]) -> None:
    session = nasty()

    async def slowest(stop: asyncio.Event) -> float:
        loop = asyncio.get_running_loop()
        worst = 0.0
        while not stop.is_set():
            begun = loop.time()
            await asyncio.sleep(0.01)
            worst = max(worst, loop.time() - begun)
        return worst

    async def call() -> tuple[str, float]:
        stop = asyncio.Event()
        watching = asyncio.create_task(slowest(stop))
        answer = await session.async_call_tool(tool, args)
        stop.set()
        return answer.text, await watching

    begin = time.monotonic()
    text, standstill = background().run(call())
    assert text == "hang"
    assert standstill < max(2, (time.monotonic() - begin) / 2)
    assert session.call_tool("count").text == "2"
    assert len(session.last_output()) < 100_000


def test_what_a_server_asks_for_is_refused(nasty: Open, tmp_path: Path) -> None:
    asked = json.loads(nasty().call_tool("ask").text)
    assert asked == dict.fromkeys(
        ("sampling/createMessage", "elicitation/create", "roots/list"), "refused"
    )

    asked = json.loads(nasty(name="told", roots=["/srv/data"]).call_tool("ask").text)
    assert asked["roots/list"]["roots"][0]["uri"] == "file:///srv/data"
    assert asked["sampling/createMessage"] == "refused"


# Access of the server to its surroundings (E57)


# Shows E57
def test_a_server_sees_the_variables_that_are_declared(
    nasty: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOST_ONLY", "SEKRET")
    monkeypatch.setenv("TOKEN", "SEKRET-token")

    env = json.loads(nasty(env={"A": "1", "T": "secret:TOKEN"}).call_tool("env").text)

    assert (env["A"], env["T"]) == ("1", "SEKRET-token")
    ours = {"FLOWENGINE_ENVIRONMENT", "FLOWENGINE_SERVER_RUN"}
    assert env.keys() - ours <= {"A", "T", "PATH", "HOME", "LANG", "LC_CTYPE"}


# Shows E57
def test_a_secret_is_in_nothing_that_is_told(
    manager: EnvironmentManager,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("TOKEN", "SEKRET-token")
    caplog.set_level("DEBUG")
    events: list[Any] = []
    manager.subscribe(events.append)
    leaky = "import os, sys; sys.stderr.write('the key is ' + os.environ['T']); sys.exit(1)"
    config: dict[str, Any] = {"env": {"T": "secret:TOKEN"}}
    good = {"kind": "mcp", "scope": "session", "config": {**config, "command": NASTY}}
    bad = {
        "kind": "mcp",
        "scope": "session",
        "resource_key": "bad",
        "config": {**config, "command": ["python3", "-c", leaky]},
    }

    handle = manager.ensure(good)
    entries = "".join(path.read_text() for path in tmp_path.rglob("*.json"))
    with pytest.raises(EnvironmentStartFailed) as caught:
        manager.ensure(bad)

    told = [
        caught.value.message,
        repr(caught.value.data),
        json.dumps(manager.inspect(handle.id)),
        json.dumps(manager.declare(good)),
        entries,
        caplog.text,
        repr(handle),
        repr(handle.resource),
        *map(repr, events),
    ]
    assert entries
    assert events
    assert not [each for each in told if "SEKRET" in each]
