"""Results of Python reducers are journaled, so each is called once per write (F25, F30)."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flowengine.engines.attempts.outcome import succeeded
from flowengine.engines.engine import Engine
from flowengine.engines.executions.linked_flows import LinkedFlows, read, walk
from flowengine.engines.flows import LANGUAGE, load
from flowengine.engines.running.recovery import recover
from flowengine.journal.encoding import pack
from flowengine.kernel.commands import Run
from tests.engines import world

Write = Callable[[str], None]

FLOW = """
state:
  amount: {type: integer, default: 0, reducer: {python: "ledger:book"}}
  notes: {type: array, default: [], reducer: {python: "ledger:note"}}
steps:
  - {id: first, set: {amount: 5, notes: a}}
  - {id: ask, approval: {title: "Pay ${{ state.amount }}?"}}
  - {id: second, set: {notes: b}}
  - {id: pay, output: "${{ state.amount }}"}
outputs: {paid: "${{ steps.pay.output }}", notes: "${{ state.notes }}"}
"""
LEDGER = """
import random

def book(old, new):
    with open({calls!r}, "a") as file:
        file.write("called ")
    return (old + new) * {factor}

def note(old, new):
    return [*old, new + str(random.random())]
"""
CHANGED = "def book(old, new): raise RuntimeError('changed')\nnote = book\n"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write the module with the flow's reducers."""

    def ledger(source: str) -> None:
        (tmp_path / "ledger.py").write_text(source)

    return ledger


def waiting(store: Path, tmp_path: Path, write: Write) -> tuple[str, str]:
    """Run the flow to its approval, and return the wait's ID and title."""
    write(LEDGER.format(calls=str(tmp_path / "calls"), factor=1))
    with Engine(store) as engine:
        [wait] = engine.run(world.make(tmp_path, FLOW), id="it").waits
    return wait["id"], wait["title"]


def forget_modules() -> None:
    """Forget imported modules of flows, so that they are imported again as in another process."""
    for name in [name for name in sys.modules if name.startswith("_flow_")]:
        del sys.modules[name]


def test_an_approval_goes_on_with_what_was_shown_whatever_became_of_the_module(
    store: Path, tmp_path: Path, write: Write
) -> None:
    wait, title = waiting(store, tmp_path, write)
    assert title == "Pay 5?"
    forget_modules()
    write(LEDGER.format(calls=str(tmp_path / "calls"), factor=100))

    with Engine(store) as engine:
        result = engine.approvals.approve(wait).result
        assert result is not None
        assert result.outputs is not None
        assert result.outputs["paid"] == 5
        assert (tmp_path / "calls").read_text().split() == ["called"]
        assert engine.executions.show("it")["outputs"] == result.outputs


# Shows F25
def test_a_replay_calls_no_reducer_and_gives_the_same_bytes(
    store: Path, tmp_path: Path, write: Write
) -> None:
    wait, _ = waiting(store, tmp_path, write)
    with Engine(store) as engine:
        engine.approvals.approve(wait)
    forget_modules()
    write(CHANGED)

    with Engine(store) as engine:
        journal = read(engine.store, "it")
        hash = engine.store.execution("it").hash
        *_, last = walk(LinkedFlows(engine.store, LANGUAGE), hash, journal)
        assert pack(last.state["outputs"]) == pack(engine.executions.show("it")["outputs"])
        assert len(last.state["outputs"]["notes"]) == 2  # type: ignore[index]
        assert engine.executions.fork("it", from_step="ask").waits[0]["title"] == "Pay 5?"
    assert not any(name.startswith("_flow_") for name in sys.modules)


def test_what_a_reducer_adds_is_journaled_and_not_all_that_is_there(
    store: Path, tmp_path: Path, write: Write
) -> None:
    write("def note(old, new): return [*old, new]\n")
    steps = "".join(
        f'  - {{id: s{n}, python: "effects:add", set: {{notes: "${{{{ inputs.text }}}}"}}}}\n'
        for n in range(50)
    )
    head = (
        "inputs: {text: {type: string}}\n"
        'state: {notes: {type: array, default: [], reducer: {python: "ledger:note"}}}\nsteps:\n'
    )
    flow = world.make(tmp_path, head + steps)
    with Engine(store) as engine:
        engine.run(flow, {"text": "x" * 1000}, id="it")
        size = sum(len(entry.payload) for entry in engine.store.events("it"))
    assert size < 60 * 1200


def test_a_reducer_that_failed_fails_again(store: Path, tmp_path: Path, write: Write) -> None:
    write("class Panic(BaseException): pass\ndef book(old, new): raise Panic('no')\nnote = book\n")
    with Engine(store) as engine:
        result = engine.run(world.make(tmp_path, FLOW), id="it")
        assert result.error is not None
        assert result.error["message"] == "state.amount: ledger:book: Panic: no"
        write("def book(old, new): return 1\nnote = book\n")
        forget_modules()
        journal = read(engine.store, "it")
        *_, last = walk(
            LinkedFlows(engine.store, LANGUAGE), engine.store.execution("it").hash, journal
        )
        assert last.state["error"] == result.error


def test_a_result_whose_commit_was_refused_is_reduced_anew(tmp_path: Path, write: Write) -> None:
    """The second attempt includes the write of the decision that came first."""
    write("def book(old, new): return old + new\ndef note(old, new): return old\n")
    text = """
state: {amount: {type: integer, default: 0, reducer: {python: "ledger:book"}}}
steps: [{id: work, python: "effects:act", set: {amount: 2}}]
"""
    with Engine(None) as engine:
        id = engine.start(world.make(tmp_path, text))
        host = world.host_of(engine)
        execution = host.stored(id, host.keeper.acquire(id))
        recover(host, execution)
        execution.apply_queue()
        host.journals.commit([execution.take(release=False)])
        [command] = execution.commands
        assert isinstance(command, Run)
        execution.queue.append(succeeded(command, 1, 2))
        execution.apply_queue()
        assert execution.state["vars"]["amount"][0] == 2

        execution.queue += execution.load_again(host.store.load(id))
        execution.state["vars"]["amount"][0] = 40
        execution.apply_queue()

        assert execution.state["vars"]["amount"][0] == 42


CALLERS = """
state: {notes: {type: array, default: [], reducer: {python: "callers:slowly"}}}
steps:
  - {id: write, set: {notes: a}}
  - {id: on_the_loop, call: quickly}
  - {id: pause, wait: 10ms}
  - {id: in_a_task, python: "callers:later"}
outputs: {seen: "${{ [steps.on_the_loop.output, steps.in_a_task.output] }}"}
tools: {quickly: {python: "callers:now", args: {type: object}, effect: pure}}
"""
WHO = """
import time
from contextvars import ContextVar
from flowengine import quick

WHO = ContextVar("who", default="nobody")

def slowly(old, new):
    time.sleep(0.2)
    return [*old, new]

@quick
def now() -> str:
    return WHO.get()

async def later() -> str:
    return WHO.get()
"""


def test_steps_after_a_reducer_or_a_pause_run_in_the_context_of_their_caller(
    tmp_path: Path,
) -> None:
    (tmp_path / "callers.py").write_text(WHO)
    flow = load(world.make(tmp_path, CALLERS))

    async def run(engine: Engine, who: str) -> Any:
        [module] = [
            one for name, one in sys.modules.items() if re.fullmatch(r"_flow_\w+\.callers", name)
        ]
        module.WHO.set(who)
        return (await engine.run_async(flow)).outputs

    async def all_at_once() -> list[Any]:
        with Engine(None) as engine:
            await engine.run_async(flow)  # imports the module
            return await asyncio.gather(*(run(engine, who) for who in "abc"))

    forget_modules()
    assert asyncio.run(all_at_once()) == [{"seen": [who, who]} for who in "abc"]
