# Shows S26, S86
"""Requests and answers between the engine and its supervisor, in every sandbox."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from flowengine.sdk import EnvironmentBusy, EnvironmentLost, ValidationError
from flowengine.sdk.environments import Sandbox, background
from flowengine_envs.kinds.bash import BashProvider
from flowengine_envs.kinds.python import Python, PythonSandbox
from flowengine_envs.link import channel
from tests.envs.opening import channel_of, opened


async def begun(python: PythonSandbox, code: str) -> asyncio.Task[object]:
    """Start a call and return once its code runs."""
    runs = asyncio.Event()
    loop = asyncio.get_running_loop()

    def heard(*_: str) -> None:
        if not runs.is_set():
            loop.call_soon_threadsafe(runs.set)

    call = asyncio.ensure_future(python.async_run(f"print(1)\n{code}", on_output=heard))
    await asyncio.wait_for(runs.wait(), 60)
    return call


def when_free(python: PythonSandbox) -> object:
    """Return the result of a call made after the cancelled one has ended."""
    end = time.monotonic() + 60
    while True:
        try:
            return python.run("1").value
        except EnvironmentBusy:
            assert time.monotonic() < end
            time.sleep(0.02)


@pytest.mark.wherever
def test_a_ping_is_answered_during_an_endless_loop_and_the_call_can_be_cancelled(
    python: PythonSandbox,
) -> None:
    python.run("x = 41")

    async def cancelled() -> None:
        call = await begun(python, "while True: pass")
        assert await background().wait(python.ping())
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(cancelled())

    assert python.run("x + 1").value == 42


@pytest.mark.endurance
@pytest.mark.wherever
def test_a_long_silent_call_is_not_lost_however_late_the_engine_looks(
    sandbox: type[Sandbox], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine, the answer to a ping may have arrived long before the engine reads it."""
    looks, sleep, pings = 0, asyncio.sleep, channel.PINGS

    async def late(seconds: float) -> None:
        nonlocal looks
        await sleep(2 * seconds if seconds == channel.QUIET else seconds)
        looks += seconds == channel.QUIET
        if looks == 4 * pings:
            (tmp_path / "go").touch()

    monkeypatch.setattr(channel, "QUIET", 0.1)
    monkeypatch.setattr(channel, "PINGS", 10_000)  # its start may take long
    monkeypatch.setattr(asyncio, "sleep", late)
    with opened(BashProvider(), sandbox, tmp_path) as bash:
        monkeypatch.setattr(channel, "PINGS", pings)
        looks = 0
        result = bash.run("until [ -e go ]; do sleep 0.02; done", timeout=60)

    assert result.exit_code == 0
    assert looks >= 4 * pings


@pytest.mark.wherever
def test_an_answer_that_comes_too_late_is_nobody_elses(python: PythonSandbox) -> None:
    async def late() -> object:
        call = await begun(python, "import time\ntime.sleep(30)\n'late'")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(call, 0.05)
        return (await python.async_run("'mine'")).value

    assert asyncio.run(late()) == "mine"


@pytest.mark.wherever
def test_a_call_is_refused_while_another_runs_where_the_spec_says_so(
    sandbox: type[Sandbox], tmp_path: Path
) -> None:
    with opened(Python(), sandbox, tmp_path, config={"on_busy": "refuse"}) as python:

        async def refused() -> None:
            call = await begun(python, "while True: pass")
            with pytest.raises(EnvironmentBusy):
                await python.async_run("1")
            call.cancel()
            await asyncio.wait({call})

        asyncio.run(refused())
        assert when_free(python) == 1


def many(python: PythonSandbox) -> None:
    for _ in range(1000):
        python.run("1")


@pytest.mark.wherever
@pytest.mark.parametrize("request_", ["nonsense", "hello", "run", "worker", "python", "put", "get"])
def test_a_request_that_is_none_costs_itself_alone(python: PythonSandbox, request_: str) -> None:
    python.run("x = 41")

    async def bad() -> None:
        await channel_of(python).request(request_)

    with pytest.raises(ValidationError):
        background().run(bad())

    assert python.run("x + 1").value == 42


@pytest.mark.endurance
@pytest.mark.wherever
@pytest.mark.parametrize(
    "data",
    [
        b"{\"code\": \"open('pwned', 'w')\"}\n",
        b"GET / HTTP/1.1\r\nHost: sandbox\r\n\r\n",
        b"\x00\x00\x00\x04" + b"\x00" * 16 + b"{}{}",
        b"\xff" * 64,
    ],
)
# Shows S23
def test_bytes_without_the_key_end_the_connection_and_do_nothing(
    sandbox: type[Sandbox], tmp_path: Path, data: bytes
) -> None:
    with opened(Python(), sandbox, tmp_path) as python:
        assert python.run("1").value == 1

        async def write() -> None:
            channel_of(python)._input.write(data + b"\x00" * 200)

        background().run(write())
        with pytest.raises(EnvironmentLost):
            many(python)
        assert not (tmp_path / "pwned").exists()
    with opened(Python(), sandbox, tmp_path) as python:
        assert python.run("1").value == 1


# Shows S25
def test_the_key_is_in_no_variable_argument_or_file(python: PythonSandbox) -> None:
    python.put("key", channel_of(python)._sealer._key.hex().encode())
    code = """
import os
with open("key") as file: text = file.read()
os.remove("key")
keys, found = [text.encode(), bytes.fromhex(text)], []

def look(path):
    try:
        if os.path.isfile(path):
            with open(path, "rb") as file: data = file.read(1 << 22)
            if any(key in data for key in keys): found.append(path)
    except OSError:
        pass

for pid in filter(str.isdecimal, os.listdir("/proc")):
    for name in ("environ", "cmdline", "comm"): look(f"/proc/{pid}/{name}")
for folder, _, names in os.walk(os.getcwd()):
    for name in names: look(os.path.join(folder, name))
for name in os.listdir("/dev/shm"):  # folders there are those of other tests
    look(os.path.join("/dev/shm", name))
found
"""
    assert python.run(code).value == []
