"""Executions in Temporal against the same steps in a workflow written by hand, on one server.

Both have one activity a step, the same options, and a value of 1 KB in and out. The worker and the
caller are this process, so its processor time is that of both.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

from temporalio.client import Client
from temporalio.worker import Worker

from benchmarks.temporal_by_hand import STEPS, ByHand, by_hand
from flowengine import Engine, LoadedFlow
from flowengine.engines.temporal.connection import connect, read_address
from flowengine.engines.temporal.objects import VARIABLE, objects
from flowengine.engines.temporal.worker import runner_of_workflows, work

AT_ONCE = 20
VALUE = "x" * 1000


MESSAGES = 5_000
ATTEMPTS = 100_000
CALLS = 9
"""Calls of each turn of an agent."""
_ITEMS = 100
_AGENT = """\
flowengine: 1
id: reader
defaults: {model: scripted/script.json}
tools: {page: {python: "pages:page", effect: pure, parallel: true}}
agents: {reader: {instructions: You read., tools: [page], max_turns: 10000}}
steps: [{id: ask, agent: reader, with: {prompt: Read.}}]
"""


class Long(NamedTuple):
    """Of one long execution."""

    seconds: float
    runs: int
    bytes: int
    """Bytes of the histories of all runs."""
    longest: int
    """Events of the longest history."""
    kept: int
    """Bytes in the object store."""


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


def agent(folder: Path) -> Path:
    """Write an agent whose conversation has `MESSAGES` messages of about 500 bytes."""
    (folder / "pages.py").write_text(
        "def page(n: int) -> str:\n    'Read.'\n    return f'{n} ' + 'x' * 400\n"
    )
    turns = range(MESSAGES // (CALLS + 1))
    script: list[Any] = [{"calls": [_page(turn, call) for call in range(CALLS)]} for turn in turns]
    (folder / "script.json").write_text(json.dumps([*script, {"text": "read"}]))
    path = folder / "agent.yaml"
    path.write_text(_AGENT)
    return path


def _page(turn: int, call: int) -> dict[str, Any]:
    return {"name": "page", "arguments": {"n": turn}, "id": f"c{turn}-{call}"}


def many(folder: Path) -> Path:
    """Write a flow of `ATTEMPTS` attempts: a map of chains."""
    (folder / "chained.py").write_text("def same(value):\n    return value\n")
    steps = "".join(
        f'      - {{id: s{n}, call: same, with: {{value: "${{{{ item }}}}"}}}}\n'
        for n in range(ATTEMPTS // (10 * _ITEMS))
    )
    head = 'flowengine: 1\nid: many\ntools: {same: {python: "chained:same", effect: idempotent}}\n'
    path = folder / "many.yaml"
    path.write_text(
        f"{head}steps:\n  - id: each\n    map: {{over: {_ITEMS * 10}, concurrency: 50}}\n"
        f"    group:\n{steps}"
    )
    return path


async def long(address: str, path: Path) -> Long:
    """Run a flow to its end."""
    stopping, ready = asyncio.Event(), asyncio.Event()
    worker = asyncio.create_task(_work(address, stopping, ready))
    await ready.wait()
    client = await connect(read_address(address), objects())
    with Engine(address, workdir=path.parent) as engine:
        began = time.perf_counter()
        id = await asyncio.to_thread(engine.start, path)
        await client.get_workflow_handle(id).result()
        took = time.perf_counter() - began
    stopping.set()
    await worker
    found = [row async for row in client.list_workflows(f"WorkflowId = '{id}'")]
    handles = [client.get_workflow_handle(id, run_id=row.run_id) for row in found]
    infos = [
        (await handle.describe()).raw_description.workflow_execution_info for handle in handles
    ]
    kept = await asyncio.to_thread(_kept)
    size = sum(info.history_size_bytes for info in infos)
    return Long(took, len(infos), size, max(info.history_length for info in infos), kept)


def _kept() -> int:
    return sum(file.stat().st_size for file in Path(os.environ[VARIABLE]).rglob("*/*"))


async def _work(address: str, stopping: asyncio.Event, ready: asyncio.Event) -> None:
    """Run a worker in this process."""
    await work(
        read_address(address),
        drain=1,
        heartbeat=10,
        log_format="text",
        strict=False,
        stopping=stopping,
        on_ready=ready.set,
    )


async def costs(address: str, folder: Path, rounds: int) -> tuple[Cost, Cost, Cost]:
    """Return the least of some rounds: of the engine, of its `run`, and of a workflow by hand."""
    stopping, ready = asyncio.Event(), asyncio.Event()
    worker = asyncio.create_task(_work(address, stopping, ready))
    await ready.wait()
    client = await connect(read_address(address))
    ours, run, theirs = [], [], []
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
                ours.append(await _cost(client, lambda: _started(client, engine, loaded)))
                run.append(await _cost(client, lambda: _run(engine, loaded)))
                theirs.append(await _cost(client, lambda: _run_by_hand(client)))
    stopping.set()
    await worker
    return min(ours), min(run), min(theirs)


async def _started(client: Client, engine: Engine, loaded: LoadedFlow) -> str:
    id = await asyncio.to_thread(engine.start, loaded, {"value": VALUE})
    await client.get_workflow_handle(id).result()
    return id


async def _run(engine: Engine, loaded: LoadedFlow) -> str:
    return (await engine.run_async(loaded, {"value": VALUE})).execution


async def _run_by_hand(client: Client) -> str:
    id = f"by-hand-{time.time_ns()}"
    await client.execute_workflow(ByHand.run, VALUE, id=id, task_queue="by-hand")
    return id


async def _cost(client: Client, run: Any) -> Cost:
    began, processor = time.perf_counter(), time.process_time()
    ids = await asyncio.gather(*(run() for _ in range(AT_ONCE)))
    processor, took = time.process_time() - processor, time.perf_counter() - began
    found = await client.get_workflow_handle(ids[0]).describe()
    size = found.raw_description.workflow_execution_info.history_size_bytes
    steps = AT_ONCE * STEPS
    return Cost(processor / steps, steps / took, found.history_length, size)
