"""Garbage collection is postponed for some milliseconds at most, and only if it was enabled."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

import flowengine
from flowengine import Engine
from flowengine.util.blocking import Either, blocking

MODULE = """\
import gc
from flowengine import quick

@quick
def look() -> bool:
    return gc.isenabled()

@quick
def stop() -> None:
    raise KeyboardInterrupt
"""


@pytest.fixture(autouse=True)
def enabled() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


def load(folder: Path, function: str) -> flowengine.LoadedFlow:
    (folder / "garbage_tools.py").write_text(MODULE)
    path = folder / "garbage.yaml"
    path.write_text(
        f'flowengine: 1\nid: it\nsteps: [{{id: a, python: "garbage_tools:{function}"}}]\n'
        "outputs: {found: '${{ steps.a.output }}'}\n"
    )
    return flowengine.load(path)


def test_it_waits_while_steps_run(tmp_path: Path) -> None:
    with Engine(None) as engine:
        assert engine.run(load(tmp_path, "look")).outputs == {"found": False}
    assert gc.isenabled()


def test_an_operation_that_fails_keeps_nothing_until_the_next_search() -> None:
    @blocking
    async def fails(given: set[int]) -> None:
        await Either(lambda: given.remove(2), asyncio.Future)

    given = {1}
    kept = weakref.ref(given)
    gc.disable()
    with pytest.raises(KeyError):
        fails(given)
    del given, fails
    assert kept() is None
