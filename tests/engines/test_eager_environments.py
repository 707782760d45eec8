"""Environments with `eager: true`: open before the first step, given back on every way out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.errors import FlowFileError
from flowengine.execution_environment import register_provider, unregister_provider
from flowengine.sdk import EnvironmentStartFailed
from tests.execution_environment.toy import Thing, Toy

FUNCTIONS = """
def use(toy):
    return toy.echo("x")

def plain():
    return 1

def fail():
    raise ValueError("no")
"""
EAGER = "environments: {toy: {kind: toy, eager: true}}\n"
AVOIDED = """
steps:
  - {id: first, python: "things:plain", next: {first: [{when: "${{ 1 > 2 }}", to: b}, {else: end}]}}
  - {id: b, python: "things:use", environments: [toy]}
"""


def write(flow: str, name: str = "flow") -> str:
    Path(f"{name}.yaml").write_text(f"flowengine: 1\nid: {name}\n{flow}")
    return f"{name}.yaml"


def test_it_is_open_before_the_first_step_whether_or_not_a_step_comes_to_use_it(toy: Toy) -> None:
    opens: dict[str, int] = {}

    def note(update: Any) -> None:
        if update.kind == "step" and update.step.status == "running":
            opens.setdefault(update.step.address, toy.opens)

    with Engine("store") as engine:
        engine.subscribe(note)
        result = engine.run(write(EAGER + AVOIDED))

    assert result.status == "succeeded"
    assert opens == {"environments": 0, "first": 1}
    assert (toy.opens, toy.releases) == (1, 1)


def test_what_no_step_of_the_flow_names_is_not_opened(toy: Toy) -> None:
    with Engine("store") as engine:
        engine.run(write(EAGER + 'steps: [{id: a, python: "things:plain"}]\n'))

    assert toy.opens == 0


def test_people_are_asked_at_the_start(toy: Toy) -> None:
    asks = "environments: {toy: {kind: toy, eager: true, approval: required}}\n"
    with Engine("store") as engine:
        result = engine.run(write(asks + AVOIDED))
        [wait] = result.waits
        assert (wait["address"], result.status, toy.opens) == ("environments", "waiting", 0)

    with Engine("store") as engine:
        last = engine.approve(wait["id"]).result

    assert last is not None
    assert (last.status, toy.opens, toy.releases) == ("succeeded", 1, 1)


def test_a_rejection_at_the_start_fails_the_execution_before_any_step(toy: Toy) -> None:
    asks = "environments: {toy: {kind: toy, eager: true, approval: required}}\n"
    with Engine("store") as engine:
        [wait] = engine.run(write(asks + AVOIDED)).waits
        last = engine.reject(wait["id"]).result
        assert last is not None
        shown = engine.show(last.execution)

    assert last.error is not None
    assert (last.status, last.error["type"]) == ("failed", "Rejected")
    assert last.error["step"] == "environments"
    assert "first" not in {step["address"] for step in shown["steps"]}


TWO = """
environments: {toy: {kind: toy, eager: true}, other: {kind: other, eager: true}}
steps:
  - {id: a, python: "things:plain"}
  - {id: b, python: "things:use", environments: [toy, other]}
"""


def test_if_one_cannot_be_had_the_execution_fails_and_the_others_are_given_back(toy: Toy) -> None:
    async def fails(_request: object) -> Thing:
        raise EnvironmentStartFailed("there is no such machine")

    other = Toy("other")
    other.open = fails
    register_provider(other)
    try:
        with Engine("store") as engine:
            result = engine.run(write(TWO))
    finally:
        unregister_provider("other")

    assert result.error is not None
    assert (result.status, result.error["type"]) == ("failed", "EnvironmentStartFailed")
    assert "there is no such machine" in result.error["message"]
    assert (toy.opens, toy.releases) == (1, 1)


def test_the_flow_may_handle_that(toy: Toy) -> None:
    async def fails(_request: object) -> Thing:
        raise EnvironmentStartFailed("no")

    toy.open = fails
    handler = "on_error: [{type: EnvironmentStartFailed, output: {a: without}}]\n"
    outputs = 'outputs: {a: "${{ steps.first.output }}"}\n'
    with Engine("store") as engine:
        result = engine.run(write(EAGER + AVOIDED + handler + outputs))

    assert result.outputs == {"a": "without"}


@pytest.mark.parametrize("how", ["fail", "cancel"])
def test_it_is_given_back_on_the_other_ways_out(toy: Toy, how: str) -> None:
    step = "python: 'things:fail'" if how == "fail" else "approval: Go on?"
    flow = f"""
steps:
  - {{id: a, {step}}}
  - {{id: b, python: "things:use", environments: [toy]}}
"""
    with Engine("store") as engine:
        result = engine.run(write(EAGER + flow))
        if how == "cancel":
            engine.cancel(result.execution)

    assert (toy.opens, toy.releases) == (1, 1)


def test_after_a_wait_it_is_opened_again_by_the_first_step_that_uses_it(toy: Toy) -> None:
    flow = """
steps:
  - {id: w, approval: Go on?}
  - {id: v, approval: And on?}
  - {id: b, python: "things:use", environments: [toy]}
"""
    with Engine("store") as engine:
        [wait] = engine.run(write(EAGER + flow)).waits
        assert (toy.opens, toy.releases) == (1, 1)
        result = engine.approve(wait["id"]).result
        assert result is not None
        assert toy.opens == 1
        last = engine.approve(result.waits[0]["id"]).result

    assert last is not None
    assert (last.status, toy.opens, toy.releases) == ("succeeded", 2, 2)


def test_a_process_that_dies_while_it_opens_opens_again(toy: Toy) -> None:
    """The hidden step has no effect of its own: cut off, it is done again unasked."""
    with Engine("store") as engine:
        flow = engine.load(write(EAGER + AVOIDED))

    [hidden] = [step for step in flow.compiled["steps"] if step["body"] < 0]
    assert hidden["effect"] == "idempotent"


def test_of_a_subflow_it_is_opened_when_that_begins(toy: Toy) -> None:
    write(EAGER + AVOIDED, "inner")
    opens: dict[str, int] = {}

    def note(update: Any) -> None:
        if update.kind == "step" and update.step.status == "running":
            opens.setdefault(update.step.address, toy.opens)

    with Engine("store") as engine:
        engine.subscribe(note)
        engine.run(write('steps: [{id: a, python: "things:plain"}, {id: b, flow: ./inner.yaml}]\n'))

    assert opens == {"a": 0, "b": 0, "b/environments": 0, "b/first": 1}
    assert (toy.opens, toy.releases) == (1, 1)


def test_named_by_tools_only_it_is_shared_by_their_calls(toy: Toy) -> None:
    flow = """
tools: {use: {python: "things:use", environments: [toy]}}
steps: [{id: a, call: use}, {id: b, call: use}]
"""
    with Engine("store") as engine:
        engine.run(write(EAGER + flow))

    assert (toy.opens, toy.releases) == (1, 1)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("scope: step", "scope 'step' cannot be opened at the start"),
        ("scope: region", "scope 'region' cannot be opened at the start"),
        ("args: {type: object}", "'args' cannot be opened at the start"),
    ],
)
def test_what_cannot_be_opened_at_the_start_is_refused(toy: Toy, more: str, message: str) -> None:
    flow = f"environments: {{toy: {{kind: toy, eager: true, {more}}}}}\n{AVOIDED}"

    with Engine("store") as engine, pytest.raises(FlowFileError, match=message):
        engine.load(write(flow))
