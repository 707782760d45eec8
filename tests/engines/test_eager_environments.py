"""Environments with `eager`: opened early or in the background, and always released."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine, Update
from flowengine.errors import FlowFileError
from flowengine.execution_environment import register_provider, unregister_provider
from flowengine.sdk import EnvironmentStartFailed
from tests.execution_environment.toy import Gate, Thing, Toy, until

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
    """The hidden step has no side effect, so interrupted attempts are simply repeated."""
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


# In the background

BACKGROUND = "environments: {toy: {kind: toy, eager: background, on_wait: keep}}\n"
PLAIN_THEN_USED = """
steps:
  - {id: a, python: "things:plain"}
  - {id: b, python: "things:use", environments: [toy]}
"""
ASKED_THEN_USED = """
steps:
  - {id: a, approval: Go on?}
  - {id: b, python: "things:use", environments: [toy]}
"""

INNER = """
steps:
  - {id: a, approval: Go on?}
  - {id: b, when: "${{ 1 > 2 }}", python: "things:use", environments: [toy]}
"""


async def fails(_request: object) -> Thing:
    raise EnvironmentStartFailed("there is no such machine")


def told(updates: list[Update]) -> list[tuple[str, str]]:
    """Return the background states of environments as reported to subscribers."""
    return [
        (one.data["name"], one.data.get("error", {}).get("message", one.data["state"]))
        for one in updates
        if one.kind == "environment"
    ]


def test_steps_begin_while_it_opens_and_the_first_that_uses_it_waits(toy: Toy) -> None:
    gate = toy.open = Gate()
    seen: list[Update] = []

    def note(update: Update) -> None:
        seen.append(update)
        step = update.step
        if step is not None and (step.address, step.status) == ("b", "running"):
            assert toy.opens == 0
            gate.open()

    with Engine("store") as engine:
        engine.subscribe(note)
        result = engine.run(write(BACKGROUND + PLAIN_THEN_USED))

    assert result.status == "succeeded"
    assert (toy.opens, toy.releases) == (1, 1)
    assert told(seen) == [("toy", "ready")]


def test_what_cannot_be_opened_is_told_at_once_and_when_it_is_used(toy: Toy) -> None:
    toy.open = fails
    seen: list[Update] = []
    with Engine("store") as engine:
        engine.subscribe(seen.append)
        result = engine.run(write(BACKGROUND + ASKED_THEN_USED))
        until(lambda: told(seen))
        last = engine.approve(result.waits[0]["id"]).result

    assert told(seen) == [("toy", "there is no such machine")]
    assert (result.status, toy.tries) == ("waiting", 2)
    assert last is not None
    assert last.error is not None
    assert (last.error["step"], last.error["message"]) == ("b", "there is no such machine")


def test_what_came_up_meanwhile_is_opened_by_the_step_that_uses_it(toy: Toy) -> None:
    toy.open = fails
    seen: list[Update] = []
    with Engine("store") as engine:
        engine.subscribe(seen.append)
        [wait] = engine.run(write(BACKGROUND + ASKED_THEN_USED)).waits
        until(lambda: told(seen))
        toy.behave()
        last = engine.approve(wait["id"]).result

    assert last is not None
    assert (last.status, toy.tries, toy.opens, toy.releases) == ("succeeded", 2, 1, 1)


def test_a_subflow_that_begins_again_leaves_it_to_the_step_that_uses_it(toy: Toy) -> None:
    toy.open = fails
    seen: list[Update] = []
    write(BACKGROUND + INNER, "inner")
    with Engine("store") as engine:
        engine.subscribe(seen.append)
        twice = "steps: [{id: one, flow: ./inner.yaml}, {id: two, flow: ./inner.yaml}]\n"
        [wait] = engine.run(write(twice)).waits
        until(lambda: told(seen))
        second = engine.approve(wait["id"]).result
        assert second is not None
        assert [one["address"] for one in second.waits] == ["two/a"]
        last = engine.approve(second.waits[0]["id"]).result

    assert last is not None
    assert (last.status, toy.tries) == ("succeeded", 1)
    assert told(seen) == [("inner.toy", "there is no such machine")]


def test_one_that_has_to_be_open_comes_first(toy: Toy) -> None:
    other = Toy("other")
    other.open = fails
    register_provider(other)
    try:
        with Engine("store") as engine:
            result = engine.run(write(TWO.replace("toy, eager: true", "toy, eager: background")))
    finally:
        unregister_provider("other")

    assert (result.status, toy.tries) == ("failed", 0)


def test_people_are_asked_before_it_is_opened_in_the_background(toy: Toy) -> None:
    asks = "environments: {toy: {kind: toy, eager: background, approval: required}}\n"
    with Engine("store") as engine:
        [wait] = engine.run(write(asks + PLAIN_THEN_USED)).waits
        assert (wait["address"], toy.tries) == ("environments", 0)
        last = engine.approve(wait["id"]).result

    assert last is not None
    assert (last.status, toy.opens, toy.releases) == ("succeeded", 1, 1)


@pytest.mark.parametrize("how", ["end", "fail", "cancel", "close"])
def test_it_is_not_opened_any_more_when_nobody_can_use_it(toy: Toy, how: str) -> None:
    gate = toy.open = Gate()
    seen: list[Update] = []
    steps = {
        "end": "{id: a, python: 'things:plain'}",
        "fail": "{id: a, python: 'things:fail'}",
        "cancel": "{id: a, approval: Go on?}",
        "close": "{id: a, approval: Go on?}",
    }
    flow = f"""
steps:
  - {steps[how]}
  - {{id: b, python: "things:use", environments: [toy], when: "${{{{ 1 > 2 }}}}"}}
"""
    with Engine("store") as engine:
        engine.subscribe(seen.append)
        result = engine.run(write(BACKGROUND + flow))
        if how == "cancel":
            assert gate.reached.wait(60)
            engine.cancel(result.execution)
        if how != "close":
            assert engine.environments.list(scope="execution") == []

    assert (toy.opens, told(seen)) == (0, [])


@pytest.mark.parametrize("on_wait", ["keep", "release"])
def test_while_the_execution_waits_it_goes_on_opening_only_if_it_is_kept(
    toy: Toy, on_wait: str
) -> None:
    gate = toy.open = Gate()
    flow = write(BACKGROUND.replace("keep", on_wait) + ASKED_THEN_USED)
    with Engine("store") as engine:
        [wait] = engine.run(flow).waits
        opening = [one["state"] for one in engine.environments.list(scope="execution")]
        assert opening == (["ensuring"] if on_wait == "keep" else ["declared"])
        if on_wait == "keep":
            gate.open()
            until(lambda: engine.environments.list(scope="execution")[0]["state"] == "ready")
        else:
            toy.behave()
        last = engine.approve(wait["id"]).result

    assert last is not None
    assert (last.status, toy.opens, toy.releases) == ("succeeded", 1, 1)
    # A withdrawn attempt has possibly not tried to open it.
    assert toy.tries == 1 or (on_wait == "release" and toy.tries == 2)


def test_executions_of_a_session_share_it_while_it_opens(toy: Toy) -> None:
    gate = toy.open = Gate()
    session = BACKGROUND.replace("on_wait: keep", "scope: session, key: k")
    with Engine("store") as engine:
        waits = [
            engine.run(write(session + ASKED_THEN_USED)).waits[0]["id"],
            engine.run(write(session + ASKED_THEN_USED)).waits[0]["id"],
        ]
        gate.open()
        for wait in waits:
            last = engine.approve(wait).result
            assert last is not None
            assert last.status == "succeeded"
        assert (toy.opens, toy.releases) == (1, 0)

    assert (toy.opens, toy.releases) == (1, 1)


@pytest.mark.parametrize("eager", ["true", "background"])
@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("scope: step", "scope 'step' cannot be opened at the start"),
        ("scope: region", "scope 'region' cannot be opened at the start"),
        ("args: {type: object}", "'args' cannot be opened at the start"),
    ],
)
def test_what_cannot_be_opened_at_the_start_is_refused(
    toy: Toy, eager: str, more: str, message: str
) -> None:
    flow = f"environments: {{toy: {{kind: toy, eager: {eager}, {more}}}}}\n{AVOIDED}"

    with Engine("store") as engine, pytest.raises(FlowFileError, match=message):
        engine.load(write(flow))
