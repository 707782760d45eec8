"""Functions for child processes that these tests kill."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowengine.engines.engine import Engine
from tests.engines import world

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.process import BaseProcess

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["tests.engines.child", "flowengine.engines.running.local", "flowengine_nodes.python"]
)


def start(target: Callable[..., None], *arguments: object) -> BaseProcess:
    """Start a child process, forked from a server that has imported everything it needs."""
    process = CONTEXT.Process(target=target, args=arguments, daemon=True)
    process.start()
    return process


def kill(process: BaseProcess) -> bool:
    """Kill a process with SIGKILL, and return whether it was still alive."""
    process.kill()
    process.join()
    return process.exitcode == -signal.SIGKILL


def send_at_once(store: str, barrier: Any, who: str, count: int) -> None:
    """Send a first message for each of many keys, at the same moment as another process."""
    with Engine(store) as engine:
        for number in range(count):
            barrier.wait(60)
            engine.signal("placed", {"customer": who}, key=f"k{number}", resume=False)


def begin(store: str, file: Path, id: str) -> None:
    """Run a new execution in this process, which waits for it for up to a minute."""
    with Engine(store) as engine:
        engine.run(file, id=id)


def finish(file: Path, id: str) -> None:
    """Drive an execution to its end in this process."""
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - the process ends with it
    with Engine(file.parent / "store", durability="process") as engine:
        world.finish(engine, file, id)
