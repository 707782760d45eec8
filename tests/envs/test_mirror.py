"""Live terminal views: their connections are closed however the view ends."""

from __future__ import annotations

import asyncio
import gc
import socket
import warnings
from typing import Any

import pytest

from flowengine_envs.kinds.shell.viewer import Mirror
from flowengine_envs.link.channel import OnAnswer

TURNS = 10
"""Loop iterations between two ends: more than either of them takes."""


@pytest.mark.parametrize("what", ["arrives", "leaves", "sees the end"])
def test_no_connection_is_left_open_when_two_ends_meet(what: str) -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", ResourceWarning)
        for turns in range(TURNS):
            asyncio.run(closed_meanwhile(what, turns))
        gc.collect()

    assert [str(warning.message) for warning in warned] == []


async def closed_meanwhile(what: str, turns: int) -> None:
    """Close a mirror some loop iterations after an event at a viewer."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    async def watch(on_answer: OnAnswer) -> Any:
        on_answer({"cursor": [0, 0]}, b"text")
        await ended.wait()

    mirror = Mirror(watch, loop)
    with socket.socket(socket.AF_UNIX) as viewer:
        viewer.setblocking(False)
        viewer.connect(str(mirror.path))
        if what != "arrives":
            await loop.sock_recv(viewer, 4096)
        if what == "leaves":
            viewer.shutdown(socket.SHUT_RDWR)
        if what == "sees the end":
            ended.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        mirror.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)
        assert not mirror.path.exists()
