"""Executions in Temporal against the same steps in a workflow written by hand, on one server.

Both have one activity a step, the same options, and a value of 1 KB in and out. The worker and the
caller are this process, so its processor time is that of both.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, NamedTuple

from temporalio.client import Client
from temporalio.worker import Worker

from benchmarks.temporal_by_hand import STEPS, ByHand, by_hand
from flowengine import Engine, LoadedFlow
from flowengine.engines.temporal.address import read_address
from flowengine.engines.temporal.connection import connect
from flowengine.engines.temporal.worker import runner_of_workflows, work

AT_ONCE = 20
VALUE = "x" * 1000


class Cost(NamedTuple):
    """Of executions at once."""

    processor: float
    """Seconds of processor time for a step."""
    steps: float
    """Steps in a second, of all executions together."""
    events: int
    """Events of one history."""
    bytes: int
    """Bytes of one history."""


def flow(folder: Path) -> Path:
    """Write the same chain as a flow."""
    (folder / "chained.py").write_text("def same(value):\n    return value\n")
    tool = 'tools: {same: {python: "chained:same", effect: idempotent}}\n'
    text = "flowengine: 1\nid: chained\ninputs: {value: {type: string}}\n" + tool + "steps:\n"
    for number in range(STEPS):
        last = f"steps.s{number - 1}.output" if number else "inputs.value"
        text += f'  - {{id: s{number}, call: same, with: {{value: "${{{{ {last} }}}}"}}}}\n'
    path = folder / "chained.yaml"
    path.write_text(text)
    return path


async def costs(address: str, folder: Path, rounds: int) -> tuple[Cost, Cost]:
    """Return the least of some rounds: of the engine, and of the workflow written by hand."""
    stopping, ready = asyncio.Event(), asyncio.Event()
    worker = asyncio.create_task(
        work(
            read_address(address),
            drain=1,
            heartbeat=10,
            strict=False,
            stopping=stopping,
            on_ready=ready.set,
        )
    )
    await ready.wait()
    client = await connect(read_address(address))
    ours, theirs = [], []
    with Engine(address, workdir=folder) as engine:
        loaded = engine.load(flow(folder))
        async with Worker(
            client,
            task_queue="by-hand",
            workflows=[ByHand],
            activities=[by_hand],
            workflow_runner=runner_of_workflows(),
        ):
            for _ in range(rounds):
                ours.append(await _cost(client, lambda: _start(engine, loaded)))
                theirs.append(await _cost(client, lambda: _start_by_hand(client)))
    stopping.set()
    await worker
    return min(ours), min(theirs)


async def _start(engine: Engine, loaded: LoadedFlow) -> str:
    return await asyncio.to_thread(engine.start, loaded, {"value": VALUE})


async def _start_by_hand(client: Client) -> str:
    id = f"by-hand-{time.time_ns()}"
    await client.start_workflow(ByHand.run, VALUE, id=id, task_queue="by-hand")
    return id


async def _cost(client: Client, start: Any) -> Cost:
    began, processor = time.perf_counter(), time.process_time()
    handles = [client.get_workflow_handle(await start()) for _ in range(AT_ONCE)]
    await asyncio.gather(*(handle.result() for handle in handles))
    processor, took = time.process_time() - processor, time.perf_counter() - began
    found = await handles[0].describe()
    size = found.raw_description.workflow_execution_info.history_size_bytes
    steps = AT_ONCE * STEPS
    return Cost(processor / steps, steps / took, found.history_length, size)
