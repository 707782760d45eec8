"""Objects passed to one execution by a program: steps receive them, the program keeps them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.errors import UsageError
from tests.execution_environment.toy import Toy
from tests.stored_data import stored_in

FUNCTIONS = """
import flowengine
from flowengine.sdk import StepContext

def use(runtime_resources):
    return runtime_resources["db"].add()

@flowengine.quick
def quickly(runtime_resources):
    return runtime_resources["db"].add()

def told(context: StepContext):
    return sorted(context.resources)

def plain():
    return 1

def look(q: str, db):
    return q

def fail_once(runtime_resources):
    if runtime_resources["db"].add() == 1:
        raise ValueError("first")
    return 2
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "things.py").write_text(FUNCTIONS)


class Db:
    """Counts calls, and detects attempts to store, copy or close it."""

    def __init__(self) -> None:
        self.n = 0
        self.closed = False

    def add(self) -> int:
        self.n += 1
        return self.n

    def close(self) -> None:
        self.closed = True

    def health_check(self) -> bool:
        raise AssertionError("nobody checks it")

    def __reduce__(self) -> Any:
        raise AssertionError("nobody stores it")


def write(*functions: str, ask_before_last: bool = False) -> str:
    steps = [f'  - {{id: s{i}, python: "things:{name}"}}' for i, name in enumerate(functions)]
    if ask_before_last:
        steps.insert(-1, "  - {id: ask, approval: Go on?}")
    outputs = ", ".join(f's{i}: "${{{{ steps.s{i}.output }}}}"' for i in range(len(functions)))
    text = "\n".join(["flowengine: 1", "id: it", "steps:", *steps, f"outputs: {{{outputs}}}\n"])
    Path("flow.yaml").write_text(text)
    return "flow.yaml"


def test_each_execution_has_its_own_and_nobody_closes_them() -> None:
    flow = write("use", "quickly", "told")
    first, second = Db(), Db()
    second.n = 10
    with Engine("store", runtime_resources={"common": 1, "db": Db()}) as engine:
        one = engine.run(flow, runtime_resources={"db": first})
        two = engine.run(flow, runtime_resources={"db": second})
        three = engine.run(flow)

    assert one.outputs == {"s0": 1, "s1": 2, "s2": ["common", "db"]}
    assert two.outputs == {"s0": 11, "s1": 12, "s2": ["common", "db"]}
    assert three.outputs == one.outputs, "the engine's own, where the execution has none"
    assert not first.closed
    assert not second.closed


def test_the_async_and_the_recorded_start_have_them_too() -> None:
    flow = write("use")

    async def run() -> Any:
        async with Engine("store") as engine:
            both = [Db(), Db()]
            both[1].n = 5
            given = [engine.run_async(flow, runtime_resources={"db": db}) for db in both]
            return [result.outputs for result in await asyncio.gather(*given)]

    assert asyncio.run(run()) == [{"s0": 1}, {"s0": 6}]
    with Engine("store") as engine:
        id = engine.start(flow, runtime_resources={"db": Db()})
        assert engine.resume(id).outputs == {"s0": 1}


def test_they_stay_over_a_wait_while_the_engine_lives() -> None:
    flow = write("use", "use", ask_before_last=True)
    with Engine("store") as engine:
        assert engine.run(flow, runtime_resources={"db": Db()}).status == "waiting"
        [wait] = engine.waits().items
        ended = engine.approve(wait["id"]).result

    assert ended is not None
    assert ended.outputs == {"s0": 1, "s1": 2}


def test_another_process_keeps_the_place_of_the_step_until_it_has_them() -> None:
    """Nothing fails or repeats: the decision is recorded, and the step has not started."""
    flow = write("use", "quickly", "plain", "use", ask_before_last=True)
    with Engine("store") as engine:
        id = engine.run(flow, runtime_resources={"db": Db()}).execution
    with Engine("store") as engine:
        [wait] = engine.waits().items
        stalled = engine.approve(wait["id"]).result
        assert stalled is not None
        assert stalled.status == "stalled"
        [question] = stalled.waits
        assert "runtime_resources={'db': …}" in question["title"]
        assert f"engine.resume('{id}'" in question["title"]
        assert engine.resume(id).status == "stalled"
        db = Db()
        db.n = 7
        assert engine.resume(id, runtime_resources={"db": db}).outputs == {
            "s0": 1,
            "s1": 2,
            "s2": 1,
            "s3": 8,
        }


def test_steps_that_take_none_go_on_without_them() -> None:
    flow = write("use", "plain", ask_before_last=True)
    with Engine("store") as engine:
        engine.run(flow, runtime_resources={"db": Db()})
    with Engine("store") as engine:
        [wait] = engine.waits().items
        ended = engine.approve(wait["id"]).result

    assert ended is not None
    assert ended.outputs == {"s0": 1, "s1": 1}


def test_one_that_lacks_them_can_be_cancelled() -> None:
    flow = write("use", "use", ask_before_last=True)
    with Engine("store") as engine:
        id = engine.run(flow, runtime_resources={"db": Db()}).execution
    with Engine("store") as engine:
        [wait] = engine.waits().items
        engine.approve(wait["id"])
        assert engine.cancel(id).status == "cancelled"


def test_the_engine_forgets_them_at_the_end_and_retry_and_fork_take_new_ones() -> None:
    flow = write("fail_once")
    db = Db()
    with Engine("store") as engine:
        failed = engine.run(flow, runtime_resources={"db": db})
        assert failed.status == "failed"
        assert engine._host.resources_of(failed.execution) == {}
        forked = engine.fork(failed.execution, from_step="s0", runtime_resources={"db": db})
        assert forked.outputs == {"s0": 2}
        again = engine.retry(failed.execution, runtime_resources={"db": db})
        assert again.outputs == {"s0": 2}


def test_the_same_start_again_brings_them_again() -> None:
    flow = write("use", "use", ask_before_last=True)
    with Engine("store") as engine:
        engine.run(flow, id="it", runtime_resources={"db": Db()})
    with Engine("store") as engine:
        assert engine.run(flow, id="it", runtime_resources={"db": Db()}).status == "waiting"
        [wait] = engine.waits().items
        ended = engine.approve(wait["id"]).result

    assert ended is not None
    assert ended.outputs == {"s0": 1, "s1": 1}


def test_nothing_of_them_is_stored() -> None:
    class Secret(str):
        pass

    with Engine("store") as engine:
        engine.run(write("told"), runtime_resources={"db": Secret("SEKRET")})

    for name, data in stored_in("store").items():
        assert b"SEKRET" not in data, name


def test_a_name_that_an_environment_has_starts_nothing(toy: Toy) -> None:
    box = {"kind": "toy", "scope": "execution", "resource_key": "db", "on_wait": "release"}
    with Engine("store") as engine:
        flow = write("told")
        with pytest.raises(UsageError, match="runtime_resources has an object of this name"):
            engine.run(flow, execution_environments=[box], runtime_resources={"db": 1})
        with pytest.raises(UsageError, match="is not text"):
            engine.run(flow, runtime_resources={1: 1})  # type: ignore[dict-item]
        Path("flow.yaml").write_text(
            "flowengine: 1\nid: it\nenvironments: {db: {kind: toy}}\n"
            'steps: [{id: a, python: "things:told", environments: [db]}]\n'
        )
        with pytest.raises(UsageError, match="runtime_resources has 'db', and step 'a'"):
            engine.run(flow, runtime_resources={"db": 1})
        assert not engine.executions().items
        asked = write("plain", "told", ask_before_last=True)
        id = engine.run(asked, execution_environments=[box]).execution
        with pytest.raises(UsageError, match="was given an environment of this name"):
            engine.resume(id, runtime_resources={"db": 1})
        [wait] = engine.waits().items
        ended = engine.approve(wait["id"]).result
        assert ended is not None
        assert ended.outputs == {"s0": 1, "s1": ["db"]}

    assert toy.opens == 1


def test_an_object_never_replaces_an_argument_of_the_flow_or_a_model() -> None:
    """A tool of an agent offered its model the parameter, and then received the object."""
    step = {
        "flowengine": 1,
        "id": "f",
        "steps": [{"id": "s", "python": "things:look", "with": {"q": "a", "db": "b"}}],
    }
    agent = {
        "flowengine": 1,
        "id": "f",
        "defaults": {"model": "scripted/x"},
        "agents": {"a": {"instructions": "Look.", "tools": ["look"]}},
        "tools": {"look": {"python": "things:look"}},
        "steps": [{"id": "s", "agent": "a", "with": {"prompt": "a"}}],
    }
    for flow, filler in ((step, "the flow"), (agent, "a model")):
        Path("f.yaml").write_text(json.dumps(flow))
        for given, of_engine in (({"db": Db()}, {}), ({}, {"db": Db()})):
            with Engine(None, runtime_resources=of_engine) as engine:
                with pytest.raises(UsageError, match=f"object 'db', .* which {filler}") as caught:
                    engine.run("f.yaml", runtime_resources=given)
                assert "runtime_resources['db']" in str(caught.value.hint)
                assert engine.executions().items == []
