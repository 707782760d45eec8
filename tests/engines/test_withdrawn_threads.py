"""A function on a thread that had returned when it was withdrawn is no open question."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from flowengine.engines.engine import Engine
from flowengine.sdk.threads import on_thread
from tests.engines import world

MODULE = '''
import asyncio
import threading

may_end, undone = threading.Event(), []


def pay() -> int:
    assert may_end.wait(60)
    return 7


async def refuse() -> None:
    """Hold the loop until the other function has returned, so that it is withdrawn after that."""
    loop, ended = asyncio.get_running_loop(), threading.Event()
    tell = loop.call_soon_threadsafe
    loop.call_soon_threadsafe = lambda *words: (tell(*words), ended.set())
    may_end.set()
    assert ended.wait(60)
    loop.call_soon_threadsafe = tell
    raise ValueError("refused")


def give_back(amount: int) -> None:
    undone.append(amount)
'''
SAGA = """
steps:
  - id: both
    parallel:
      - {id: paid, python: "saga:pay", compensate: {python: "saga:give_back", with: {amount: "${{ output }}"}}}
      - {id: refused, python: "saga:refuse"}
    on_error: [{compensate: true}]
"""  # noqa: E501


def test_what_a_withdrawn_function_returned_is_undone_and_nobody_is_asked(tmp_path: Path) -> None:
    flow = world.make(tmp_path, SAGA)
    (tmp_path / "saga.py").write_text(MODULE)
    with Engine(None, user="user:me") as engine:
        result = engine.run(flow)
        history = engine.show(result.execution)["steps"]

    assert result.status == "failed"
    assert result.error is not None
    assert result.error["message"] == "refused"
    assert ("both/paid/compensate", "succeeded") in [(s["address"], s["status"]) for s in history]


def test_what_runs_on_is_withdrawn() -> None:
    may_end = threading.Event()

    async def withdrawn() -> None:
        task = asyncio.get_running_loop().create_task(on_thread(lambda: may_end.wait(60)))
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(withdrawn())
    may_end.set()
