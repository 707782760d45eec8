"""Environments passed to one execution by a program, beside those of its flow (E21)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.errors import UsageError
from flowengine.execution_environment import SpecInvalid
from tests.execution_environment.toy import Toy
from tests.own_environments import environments_in
from tests.stored_data import stored_in

FUNCTIONS = """
import flowengine
from flowengine.sdk import StepContext

def names(runtime_resources):
    return sorted(runtime_resources)

def echo(runtime_resources, text="hi"):
    return runtime_resources["box"].echo(text)

async def told(context: StepContext):
    had = context.environment("box")
    return [had.generation, had.fresh, await context.resources["box"].async_echo("x")]

@flowengine.quick
def quickly(runtime_resources):
    return sorted(runtime_resources)

def compute(runtime_resources):
    return runtime_resources["sandbox"].run("6 * 7").value

def plain():
    return 1
"""
FLOW = """
flowengine: 1
id: it
steps:
  - {id: a, python: "things:told"}
  - {id: ask, approval: Go on?}
  - {id: b, python: "things:told"}
outputs: {a: "${{ steps.a.output }}", b: "${{ steps.b.output }}"}
"""
BOX = {"kind": "toy", "scope": "execution", "resource_key": "box", "on_wait": "release"}


def write(steps: str) -> str:
    Path("flow.yaml").write_text(f"flowengine: 1\nid: it\n{steps}")
    return "flow.yaml"


def one(function: str) -> str:
    return write(
        f'steps: [{{id: a, python: "things:{function}"}}]\n'
        'outputs: {a: "${{ steps.a.output }}"}\n'
    )


def test_a_step_reads_it_from_the_runtime_resources_and_runs_code(toy: Toy) -> None:
    with Engine("store") as engine:
        ended: list[str] = []
        engine.environments.subscribe(lambda event: ended.append(event.event))
        result = engine.run(
            one("compute"),
            execution_environments=[
                {"kind": "python", "scope": "execution", "resource_key": "sandbox"}
            ],
        )
        assert result.outputs == {"a": 42}, result.error
        engine.environments.flush_events(60)

    assert ended.count("execution_environment.released") == 1


def test_another_process_goes_on_with_it(toy: Toy) -> None:
    """Even a process that passes none, since the spec is stored with the execution."""
    Path("flow.yaml").write_text(FLOW)
    with Engine("store") as engine:
        assert engine.run("flow.yaml", execution_environments=[BOX]).status == "waiting"
        assert (toy.opens, toy.releases) == (1, 1)
    with Engine("store") as engine:
        [wait] = engine.waits().items
        ended = engine.approve(wait["id"]).result

    assert ended is not None
    assert ended.outputs == {"a": [1, False, "x"], "b": [2, True, "x"]}, ended.error
    assert (toy.opens, toy.releases) == (2, 2)
    assert not list(environments_in(Path("store")).rglob("workspaces/*/*"))


def test_it_is_given_where_an_execution_is_recorded_and_on_a_loop(toy: Toy) -> None:
    async def run() -> Any:
        async with Engine("store") as engine:
            return await engine.run_async(one("names"), execution_environments=[BOX])

    with Engine("store") as engine:
        id = engine.start(one("names"), execution_environments=[BOX])
        assert engine.resume(id).outputs == {"a": ["box"]}

    assert asyncio.run(run()).outputs == {"a": ["box"]}


def test_who_takes_no_resources_opens_nothing_and_quick_functions_have_it_too(toy: Toy) -> None:
    with Engine("store") as engine:
        assert engine.run(one("plain"), execution_environments=[BOX]).outputs == {"a": 1}
        assert toy.opens == 0
        assert engine.run(one("quickly"), execution_environments=[BOX]).outputs == {"a": ["box"]}
        assert engine.run(one("quickly")).outputs == {"a": []}

    assert (toy.opens, toy.releases) == (1, 1)


def test_it_stands_beside_what_the_flow_declares(toy: Toy) -> None:
    flow = write(
        "environments: {mine: {kind: toy}}\n"
        'steps: [{id: a, python: "things:names", environments: [mine]}]\n'
        'outputs: {a: "${{ steps.a.output }}"}\n'
    )
    with Engine("store", runtime_resources={"other": 1}) as engine:
        result = engine.run(flow, execution_environments=[BOX])

    assert result.outputs == {"a": ["box", "mine", "other"]}
    assert (toy.opens, toy.releases) == (2, 2)


def test_a_fork_has_what_the_execution_had(toy: Toy) -> None:
    with Engine("store") as engine:
        first = engine.run(one("names"), execution_environments=[BOX])
        assert engine.fork(first.execution, from_step="a").outputs == {"a": ["box"]}


def test_a_secret_is_a_reference(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "SEKRET")
    spec = {**BOX, "config": {"token": "secret:API_KEY"}}
    with Engine("store") as engine:
        assert engine.run(one("echo"), execution_environments=[spec]).outputs == {"a": "hi"}

    assert toy.things[0].request.config.token.reveal() == "SEKRET"
    for name, data in stored_in("store").items():
        assert b"SEKRET" not in data, name


@pytest.mark.parametrize(
    ("specs", "error", "told"),
    [
        ([{"kind": "toyy"}], SpecInvalid, "did you mean 'toy'"),
        ([{**BOX, "scpe": 1}], SpecInvalid, "scpe"),
        ([{**BOX, "scope": "region"}], UsageError, "'box' with scope 'region'"),
        ([{**BOX, "approval": "required"}], UsageError, "'box' with an 'approval'"),
        ([{**BOX, "approval": {"reason": "why"}}], UsageError, "'box' with an 'approval'"),
        ([BOX, BOX], UsageError, "another one has this name"),
        ([{**BOX, "resource_key": "other"}], UsageError, "runtime_resources has an object"),
        ([{**BOX, "resource_key": "mine"}], UsageError, "step 'a' gets an environment"),
    ],
)
def test_what_is_wrong_with_it_is_told_before_anything_starts(
    toy: Toy, specs: list[Any], error: type[Exception], told: str
) -> None:
    flow = write(
        "environments: {mine: {kind: toy}}\n"
        'steps: [{id: a, python: "things:names", environments: [mine]}]\n'
    )
    with Engine("store", runtime_resources={"other": 1}) as engine:
        with pytest.raises(error, match=told):
            engine.run(flow, id="it", execution_environments=specs)
        assert not engine.executions().items

    assert toy.opens == 0
