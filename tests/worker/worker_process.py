"""A worker in a child process, which may be killed."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

from flowengine.engines.engine import Engine
from flowengine.telemetry.worker_log import WorkerLog
from flowengine.worker import backlog
from flowengine.worker.loop import Worker
from flowengine.worker.service import until_stopped
from tests.engines import child


def start(
    store: Path, at_once: int = 8, probation: float = backlog.PROBATION, offers: Sequence[str] = ()
) -> BaseProcess:
    """Start a worker."""
    return child.start(work, str(store), at_once, probation, offers)


def work(store: str, at_once: int, probation: float, offers: Sequence[str]) -> None:
    """Work until stopped."""
    backlog.PROBATION = probation
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - the process ends with it
    asyncio.run(_work(store, at_once, offers))


async def _work(store: str, at_once: int, offers: Sequence[str]) -> None:
    async with Engine(store, durability="process", linger=0, offers=offers) as engine:
        worker = Worker(engine, concurrency=at_once)
        await until_stopped(
            lambda stopping: worker.work(stopping, drain=60), WorkerLog("json", lambda: 0)
        )
