# Shows S26, S86
"""Requests and answers between the engine and its supervisor, in every sandbox."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from flowengine.sdk.environments import Sandbox
from flowengine_envs.kinds.bash import BashProvider
from flowengine_envs.kinds.python import PythonSandbox
from flowengine_envs.link import channel
from tests.envs.opening import opened
from tests.replacing import Limits


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


@pytest.mark.endurance
@pytest.mark.wherever
def test_a_long_silent_call_is_not_lost_however_late_the_engine_looks(
    sandbox: type[Sandbox], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: Limits
) -> None:
    """On a busy machine, the answer to a ping may have arrived long before the engine reads it."""
    looks, sleep, pings = 0, asyncio.sleep, channel.PINGS

    async def late(seconds: float) -> None:
        nonlocal looks
        await sleep(2 * seconds if seconds == channel.QUIET else seconds)
        looks += seconds == channel.QUIET
        if looks == 4 * pings:
            (tmp_path / "go").touch()

    limits(channel, QUIET=0.1, PINGS=10_000)  # its start may take long
    monkeypatch.setattr(asyncio, "sleep", late)
    with opened(BashProvider(), sandbox, tmp_path) as bash:
        limits(channel, PINGS=pings)
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
