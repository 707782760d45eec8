# Shows F75
"""Agents that change while a call waits: nothing is lost, and nothing is done twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from flowengine import Engine
from flowengine.agents.models.failures import ModelError
from flowengine.agents.models.registry import register, unregister
from flowengine.agents.models.scripted import ScriptedModel
from tests.agents.flows import call

TOOLS = """
from pathlib import Path

def note(line: str) -> None:
    with Path(__file__).with_name("called.txt").open("a") as file:
        print(line, file=file)

def look(q: str) -> str:
    "Look."
    note(f"look {q}")
    return f"found {q}"

def pay(amount: int) -> str:
    "Pay."
    note(f"pay {amount}")
    return f"paid {amount}"

def pay_in(amount: int, currency: str) -> str:
    "Pay."
    note(f"pay {amount} {currency}")
    return f"paid {amount}"

def pay_more(amount: int, currency: str = "EUR") -> str:
    "Pay."
    note(f"pay {amount} {currency}")
    return f"paid {amount}"
"""
FLOW = """
flowengine: 1
id: shop
version: "1"
tools:
  look: {python: "tools:look"}
  pay: {python: "tools:pay", approval: ask}
agents:
  first: {model: scripted/one, instructions: You help., tools: [look, pay], handoffs: [second]}
  second: {model: scripted/one, instructions: You wait., tools: [look, pay]}
steps:
  - {id: ask, agent: first, with: {prompt: hi}}
outputs: {answer: "${{ steps.ask.output }}", agent: "${{ steps.ask.agent }}"}
"""
DONE = {"text": "done"}
PAYS: list[Any] = [{"calls": [call("look", q="a"), call("pay", amount=5)]}]
HANDED: list[Any] = [{"calls": [call("transfer_to_second")]}, *PAYS]
PAID = ["look a", "pay 5"]
WAITING = "agents.first:first.pay"


class Edit(NamedTuple):
    """A change of the file, and what follows from it."""

    changes: Sequence[tuple[str, str]]
    then: Sequence[Any] = (DONE,)
    """The replies after the approval."""
    called: Sequence[str] = PAID
    agent: str = "first"
    before: Sequence[Any] = PAYS
    mapping: Mapping[str, Any] = {}
    asks: bool = True
    """Whether the call still waits for an approval."""
    other: bool = False
    """Whether another model replies after the change."""


MODEL = ("first: {model: scripted/one", "first: {model: scripted/other")
FALLBACK = (
    "first: {model: scripted/one",
    "first: {model: [scripted/other, scripted/one]",
)
THIRD = ("handoffs: [second]", "handoffs: [second, third]")
ADDED = ("  second: {", "  third: {model: scripted/other, instructions: You end.}\n  second: {")
DEPUTY = [("  second: {", "  deputy: {"), ("handoffs: [second]", "handoffs: [deputy]")]
RENAMED = [("tools: [look, pay]", "tools: [look, move]"), ("  pay: {", "  move: {")]
TOOL = ("tools: [look, pay], handoffs", "tools: [more, look, pay], handoffs")
MORE = ("  pay: {", '  more: {python: "tools:pay_more"}\n  pay: {')
EDITS = {
    "instructions": Edit([("You help.", "You help a lot.")]),
    "model": Edit([MODEL], other=True),
    "model with fallbacks": Edit([FALLBACK], other=True),
    "model of another agent": Edit(
        [("second: {model: scripted/one", "second: {model: scripted/other")],
        [{"calls": [call("transfer_to_second")]}, DONE],
        agent="second",
        other=True,
    ),
    "an agent is added": Edit(
        [THIRD, ADDED],
        [{"calls": [call("transfer_to_third")]}, DONE],
        agent="third",
        other=True,
    ),
    "another agent is renamed": Edit(
        DEPUTY, [{"calls": [call("transfer_to_deputy")]}, DONE], agent="deputy"
    ),
    "the active agent is renamed": Edit(
        DEPUTY,
        [{"calls": [call("look", q="b")]}, DONE],
        [*PAID, "look b"],
        "deputy",
        HANDED,
        {
            "steps": {
                "agents.first:second": "deputy",
                "agents.first:second.pay": "deputy.pay",
            }
        },
    ),
    "a tool is added": Edit(
        [TOOL, MORE], [{"calls": [call("more", amount=7)]}, DONE], [*PAID, "pay 7 EUR"]
    ),
    "another tool is removed": Edit([("tools: [look, pay], handoffs", "tools: [pay], handoffs")]),
    "the tool is renamed": Edit(RENAMED, mapping={"steps": {WAITING: "first.move"}}),
    "an argument is added": Edit([("tools:pay", "tools:pay_in")], called=["look a"], asks=False),
    "an argument with a default is added": Edit(
        [("tools:pay", "tools:pay_more")], called=["look a", "pay 5 EUR"]
    ),
    "the approval is removed": Edit([(", approval: ask", "")], asks=False),
    "the handoff is removed": Edit(
        [(", handoffs: [second]", "")], mapping={"steps": {WAITING: "pay"}}
    ),
}
REMOVED = [("tools: [look, pay], handoffs", "tools: [look], handoffs")]
LATER: list[Any] = [{"calls": [call("look", q="a")]}, {"calls": [call("pay", amount=5)]}]
REFUSED: dict[str, tuple[Sequence[Any], Sequence[tuple[str, str]], str, str | None]] = {
    "the tool is removed": (PAYS, REMOVED, "the new flow has no such step", "ask/first@1"),
    "the tool is removed later": (LATER, REMOVED, "the new flow has no such step", "ask/first@2"),
    "the tool is renamed": (PAYS, RENAMED, "the new flow has no such step", None),
    "the agent is renamed": (
        PAYS,
        [("  first: {", "  boss: {"), ("agent: first", "agent: boss")],
        "runs another subflow",
        "ask",
    ),
}


class Shop:
    """The flow in a folder, with two scripted models."""

    def __init__(self, folder: Path, before: Sequence[Any], then: Sequence[Any] = ()) -> None:
        self.folder = folder
        self.path = folder / "flow.yaml"
        self.path.write_text(FLOW)
        (folder / "tools.py").write_text(TOOLS)
        self.one, self.other = ScriptedModel([*before, *then]), ScriptedModel([DONE])

    def change(self, changes: Sequence[tuple[str, str]]) -> None:
        text = FLOW
        for old, new in (('version: "1"', 'version: "2"'), *changes):
            assert old in text, old
            text = text.replace(old, new)
        self.path.write_text(text)

    @property
    def called(self) -> list[str]:
        return (self.folder / "called.txt").read_text().splitlines()

    def engine(self) -> Engine:
        return Engine(self.folder / "store.db", workdir=self.folder)

    def begun(self, engine: Engine) -> str:
        """Run the flow until the call waits, and return the execution."""
        result = engine.run(self.path)
        assert result.status == "waiting", result.error
        return result.execution

    def __enter__(self) -> Shop:
        register("scripted/one", self.one)
        register("scripted/other", self.other)
        return self

    def __exit__(self, *_: object) -> None:
        unregister("scripted/one")
        unregister("scripted/other")


@pytest.mark.parametrize("name", EDITS)
def test_the_changed_agent_continues_where_it_was(name: str, tmp_path: Path) -> None:
    edit = EDITS[name]
    with Shop(tmp_path, edit.before, edit.then) as shop, shop.engine() as engine:
        id = shop.begun(engine)
        shop.change(edit.changes)
        (info,) = engine.executions.upgrade(shop.path, mapping=edit.mapping)
        assert info["moved"], info
        waits = engine.approvals.list().items
        assert [wait["subject"] for wait in waits] == [{"amount": 5}] * edit.asks
        for wait in waits:
            engine.approvals.approve(wait["id"])
        shown = engine.executions.show(id)
        assert (shown["status"], shown.get("error")) == ("succeeded", None)
        assert shown["outputs"] == {"answer": "done", "agent": edit.agent}
        assert shop.called == [*edit.called]
        assert bool(shop.other.requests) == edit.other
        requests = len(shop.one.requests) + len(shop.other.requests)
        assert requests == len(edit.before) + len(edit.then)


@pytest.mark.parametrize("name", REFUSED)
def test_a_change_that_loses_the_call_is_refused_with_a_way_out(name: str, tmp_path: Path) -> None:
    before, changes, why, fork = REFUSED[name]
    with Shop(tmp_path, before, [DONE, DONE]) as shop, shop.engine() as engine:
        id = shop.begun(engine)
        shop.change(changes)
        (info,) = engine.executions.upgrade(shop.path)
        assert not info["moved"]
        assert any(why in each["why"] for each in info["obstacles"])
        assert info["fork"] == fork
        assert bool(info["write"]) != bool(fork)
        if fork:
            forked = engine.executions.fork(id, from_step=fork, flow=shop.path)
            assert forked.outputs is not None, forked.error
            assert forked.outputs["answer"] == "done"
            assert shop.called == ["look a"]  # before the fork
        wait = engine.approvals.list().items[0]
        engine.approvals.approve(wait["id"])
        assert engine.executions.show(id)["outputs"] == {"answer": "done", "agent": "first"}
        assert shop.called == PAID


def test_a_failed_agent_is_tried_again_with_another_model(tmp_path: Path) -> None:
    with Shop(tmp_path, PAYS, [ModelError("down", retryable=False)]) as shop:
        with shop.engine() as engine:
            id = shop.begun(engine)
            engine.approvals.approve(engine.approvals.list().items[0]["id"])
            assert engine.executions.show(id)["status"] == "failed"
            shop.change([MODEL])
            again = engine.executions.retry(id, flow=shop.path)
        assert again.outputs == {"answer": "done", "agent": "first"}
        assert (len(shop.one.requests), len(shop.other.requests)) == (2, 1)
        assert shop.called == PAID


def test_a_model_named_for_the_execution_stays(tmp_path: Path) -> None:
    with Shop(tmp_path, PAYS, [DONE]) as shop, shop.engine() as engine:
        started = engine.run(shop.path, labels={"model": "scripted/one"})
        shop.change([("model: scripted/one", "model: scripted/none"), THIRD, ADDED])
        (info,) = engine.executions.upgrade(shop.path)
        assert info["moved"], info
        (wait,) = engine.approvals.list().items
        engine.approvals.approve(wait["id"])
        assert engine.executions.show(started.execution)["status"] == "succeeded"
        assert len(shop.one.requests) == 2
