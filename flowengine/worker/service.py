"""A worker as a process: the signals that stop it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable

from flowengine.telemetry.worker_log import WorkerLog

STOP = (signal.SIGTERM, signal.SIGINT)


async def until_stopped(work: Callable[[asyncio.Event], Awaitable[None]], log: WorkerLog) -> None:
    """Run a worker until SIGTERM or SIGINT. A second signal ends the process at once.

    Args:
        work: Runs it, and returns some time after the event is set.
        log: Receives the signals.
    """
    stopping = asyncio.Event()

    def stop(number: int) -> None:
        if stopping.is_set():
            os._exit(128 + number)
        stopping.set()
        log("draining", signal=signal.Signals(number).name, hint="a second signal stops at once")

    loop = asyncio.get_running_loop()
    for number in STOP:
        loop.add_signal_handler(number, stop, number)
    try:
        await work(stopping)
    finally:
        for number in STOP:
            loop.remove_signal_handler(number)
    log("stopped")
