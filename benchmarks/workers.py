"""A worker with nothing to do, and one that is given something by another process."""

from __future__ import annotations

import asyncio
import multiprocessing
import tempfile
import time
from pathlib import Path

from flowengine import Engine
from flowengine.journal.records import Append, ExecutionHead, NewExecution
from flowengine.journal.store import Durability
from flowengine.worker.backlog import CONCURRENCY
from flowengine.worker.loop import TakenExecution, Worker

WAITING = 10_000
SECONDS = 20.0
DECISIONS = 100
DUE = 1000
NAPPING = "flowengine: 1\nid: napping\nsteps: [{id: nap, wait: 1s}, {id: after, output: 1}]\n"
ASKING = "flowengine: 1\nid: asking\nsteps: [{id: ask, approval: {title: Go?}}]\n"


def idle(folder: Path) -> float:
    """Return the part of a core that a worker uses while 10,000 executions wait."""
    with Engine(folder / "idle", durability="process", linger=0) as engine:
        _let_wait(engine, folder)
        return asyncio.run(_idle(engine))


def _let_wait(engine: Engine, folder: Path) -> None:
    """Let many executions wait for times that are far away."""
    (folder / "asking.yaml").write_text(ASKING)
    flow = engine.load(folder / "asking.yaml")
    now = time.time_ns() // 1_000_000
    appends = [
        Append(
            f"waiting{number}", 0, 0, [(now, b"started")], (),
            NewExecution("asking", "", flow.form, now),
            ExecutionHead("waiting", now, now + 86_400_000 + number),
        )
        for number in range(WAITING)
    ]  # fmt: skip
    engine._host.journals.commit(appends)


async def _idle(engine: Engine) -> float:
    worker, stopping = Worker(engine), asyncio.Event()
    working = asyncio.create_task(worker.work(stopping, drain=0))
    await asyncio.sleep(1)
    began, used = time.monotonic(), time.process_time()
    await asyncio.sleep(SECONDS)
    part = (time.process_time() - used) / (time.monotonic() - began)
    stopping.set()
    await working
    return part


def taking(folder: Path, durability: Durability, *, by_worker: bool) -> float:
    """Return the processor seconds in which 1,000 executions with a due timer are driven."""
    (folder / "napping.yaml").write_text(NAPPING)
    with tempfile.TemporaryDirectory(dir=folder) as store:
        with Engine(store, durability=durability, linger=0) as engine:
            flow = engine.load(folder / "napping.yaml")
            for number in range(DUE):
                engine.run(flow, id=f"e{number}")
        time.sleep(1.1)
        drive = _by_worker if by_worker else _by_hand
        began = time.process_time()
        asyncio.run(drive(Path(store), durability))
        return time.process_time() - began


async def _by_worker(store: Path, durability: Durability) -> None:
    stopping = asyncio.Event()
    left = DUE

    def tell(taken: TakenExecution) -> None:
        nonlocal left
        left -= taken.result is not None
        if not left:
            stopping.set()

    async with Engine(store, durability=durability, linger=0) as engine:
        await Worker(engine, tell=tell).work(stopping, drain=10)


async def _by_hand(store: Path, durability: Durability) -> None:
    """Resume all, sixteen at once."""
    async with Engine(store, durability=durability, linger=0) as engine:
        ids = [one.execution for one in engine.due()]
        for first in range(0, len(ids), CONCURRENCY):
            some = ids[first : first + CONCURRENCY]
            await asyncio.gather(*(engine.resume_async(id) for id in some))


def woken(folder: Path, durability: Durability) -> list[float]:
    """Return the seconds from each decision of another process until a worker takes it."""
    (folder / "asking.yaml").write_text(ASKING)
    store = folder / f"woken-{durability}"
    with Engine(store, durability=durability, linger=0) as engine:
        flow = engine.load(folder / "asking.yaml")
        for number in range(DECISIONS):
            engine.run(flow, id=f"e{number}")
    context = multiprocessing.get_context("spawn")
    told = context.Queue()
    process = context.Process(target=_decide, args=(store, durability, told))
    process.start()
    taken = asyncio.run(_take(store, durability))
    decided = dict(told.get() for _ in range(DECISIONS))
    process.join()
    return sorted(taken[id] - at for id, at in decided.items())


def _decide(store: Path, durability: Durability, told: multiprocessing.Queue) -> None:  # type: ignore[type-arg]
    with Engine(store, durability=durability) as engine:
        waits = engine.approvals.list(limit=DECISIONS).items
        time.sleep(1)
        for wait in waits:
            engine.approvals.approve(wait["id"], resume=False)
            told.put((wait["execution"], time.monotonic()))
            time.sleep(0.03)


async def _take(store: Path, durability: Durability) -> dict[str, float]:
    taken: dict[str, float] = {}
    stopping = asyncio.Event()

    def tell(one: TakenExecution) -> None:
        taken.setdefault(one.due.execution, time.monotonic())
        if len(taken) == DECISIONS and one.result is not None:
            stopping.set()

    async with Engine(store, durability=durability, linger=0) as engine:
        await Worker(engine, tell=tell).work(stopping, drain=10)
    return taken
