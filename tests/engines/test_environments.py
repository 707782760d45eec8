"""Environments in flows, with several threads, loops and programs."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from flowengine import Engine
from flowengine.execution_environment import register_provider, unregister_provider
from flowengine.sdk import Command, StepContext
from flowengine.sdk.environments import background
from tests.execution_environment.toy import Thing, Toy

FUNCTIONS = """
import threading

both = threading.Barrier(2)

def use(toy):
    return toy.echo("x")

def meet(toy):
    both.wait(60)
    return toy.request.spec.owner_id.partition("@")[0]
"""


# Shows S53
def test_two_executions_at_once_have_one_each(toy: Toy) -> None:
    """Both are open at the same time, and each returns its own data."""
    Path("flow.yaml").write_text(
        "flowengine: 1\nid: it\nenvironments: {toy: {kind: toy}}\n"
        'steps: [{id: a, python: "things:meet", environments: [toy]}]\n'
        'outputs: {a: "${{ steps.a.output }}"}\n'
    )
    with Engine("store") as engine, ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(engine.run, "flow.yaml", id=id) for id in ("one", "two")]
        outputs = [run.result(60).outputs for run in runs]

    assert outputs == [{"a": "one"}, {"a": "two"}]
    assert (toy.opens, toy.releases) == (2, 2)
    assert toy.things[0] is not toy.things[1]


def test_an_engine_has_one_manager_whichever_thread_asks_first() -> None:
    """No engine would close a second one."""
    for _ in range(20):
        at_once = threading.Barrier(4)
        with Engine(None) as engine, ThreadPoolExecutor(4) as pool:

            def ask(engine: Engine = engine, at_once: threading.Barrier = at_once) -> str:
                at_once.wait(60)
                return engine.environments.id

            asked = [pool.submit(ask) for _ in range(4)]
            assert len({each.result(60) for each in asked}) == 1


class Runner(Toy):
    """Runs a command until it is stopped, then takes a while to end."""

    def __init__(self) -> None:
        super().__init__("runner")
        self.loop: asyncio.AbstractEventLoop | None = None
        self.began = threading.Event()
        self.ended = False

    async def run(self, resource: Thing, context: StepContext, command: Command) -> dict[str, Any]:
        self.loop = asyncio.get_running_loop()
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            self.ended = True
        raise AssertionError


def test_a_command_runs_on_the_loop_of_its_environment_and_has_ended_when_its_step_has(
    toy: Toy,
) -> None:
    """On another loop, it would share connections with the work on that loop."""
    Path("flow.yaml").write_text(
        "flowengine: 1\nid: it\nenvironments: {box: {kind: runner}}\n"
        "steps: [{id: a, run: {script: x}, in: box}]\n"
    )
    runner = Runner()

    async def cancelled() -> None:
        async with Engine("store") as engine:
            running = asyncio.ensure_future(engine.run_async("flow.yaml", id="it"))
            assert await asyncio.to_thread(runner.began.wait, 60)
            await engine.executions.cancel_async("it")
            assert (await running).status == "cancelled"
            assert runner.ended

    register_provider(runner)
    try:
        asyncio.run(cancelled())
    finally:
        unregister_provider(runner.kind)
    assert runner.loop is background().loop
