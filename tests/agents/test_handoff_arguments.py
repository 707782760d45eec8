# Shows G10
"""Handoffs with arguments, and with a filter of what the next agent sees (G10)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel

from flowengine import Agent, Handoff
from flowengine.testing import call as said
from flowengine.testing import scripted
from tests.agents.flows import HEAD, Case, call, flow, told

AGENTS = """
first:
  instructions: You are first.
  tools: [add]
  handoffs: [{agent: second, HOW}]
second:
  model: scripted/test
  instructions: You are second.
  tools: [add, seen]
  handoffs: [first]
"""
TOOLS = """
def add(a: int, b: int) -> int:
    "Add."
    return a + b

def seen(context_variables: dict) -> str:
    "See."
    return str(context_variables.get("handoff"))

def brief(messages: list) -> str:
    "Summarize."
    return f"{len(messages)} messages"
"""
TASK = ("user", "What is 1 + 2?")


def case(folder: Path, how: str, script: list[Any]) -> Case:
    (folder / "tools.py").write_text(TOOLS)
    head = HEAD.replace("  boom:", '  brief: {python: "tools:brief", effect: pure}\n  seen:')
    head = head.replace("tools:boom", "tools:seen")
    return Case(folder, flow(AGENTS.replace("HOW", how), head=head), script)


def test_what_a_handoff_withholds_is_not_shown_by_a_later_reduction(tmp_path: Path) -> None:
    adds = [{"calls": [call("add", f"a{n}", a=n, b=n)]} for n in range(40)]
    text = AGENTS.replace("HOW", "context: args").replace("max_turns: 30", "")
    text = text.replace("You are second.\n", "You are second.\n  context: {tokens: 600}\n")
    text = text.replace("You are first.\n", "You are first.\n  max_turns: 60\n")
    one = case(tmp_path, "context: args", [{"calls": [call("transfer_to_second")]}, *adds,
                                        {"text": "so"}])  # fmt: skip
    old, new = (
        flow(agents).partition("agents:")[2].partition("\nsteps")[0]
        for agents in (AGENTS.replace("HOW", "context: args"), text)
    )
    one.path.write_text(one.path.read_text().replace(old, new))

    assert one.run().outputs["answer"] == "so"
    reduced = [e["address"] for e in one.journal() if "left_out" in (e.get("value") or {})]
    assert any(address.startswith("ask/second@") for address in reduced)
    assert all(TASK not in told(one.sent(n)) for n in range(1, 42))


class Why(BaseModel):
    reason: str
    urgent: bool = False


def test_in_python_the_form_is_a_type_and_the_filter_a_function() -> None:
    texts: list[str] = []

    def brief(messages: list[dict[str, Any]]) -> str:
        "Summarize."
        return f"It is about {messages[0]['content']}"

    def instructions(context_variables: dict[str, Any]) -> str:
        texts.append(context_variables["handoff"]["reason"])
        return "You are billing."

    billing = Agent(name="Billing", instructions=instructions)
    triage = Agent(name="Triage", handoffs=[Handoff(billing, args=Why, context=brief)])
    with scripted(said("transfer_to_Billing", reason="refund"), "Done.") as model:
        assert triage.run("Order 7").output == "Done."

    assert texts == ["refund"]
    assert "It is about Order 7" in model.requests[1].messages[1]["content"]
    assert len(model.requests[1].messages) == 4


def test_a_hook_sees_and_changes_the_arguments() -> None:
    seen: list[Any] = []

    def lower(arguments: dict[str, Any]) -> dict[str, Any]:
        seen.append(dict(arguments))
        return {"arguments": {**arguments, "urgent": False}}

    def instructions(context_variables: dict[str, Any]) -> str:
        seen.append(context_variables["handoff"])
        return "You are billing."

    billing = Agent(name="Billing", instructions=instructions)
    hooks = [{"before": "call", "call": lower, "tools": ["transfer_to_*"]}]
    triage = Agent(name="Triage", handoffs=[Handoff(billing, args=Why)], hooks=hooks)
    with scripted(said("transfer_to_Billing", reason="refund", urgent=True), "Done."):
        assert triage.run("Order 7").output == "Done."

    assert seen == [{"reason": "refund", "urgent": True}, {"reason": "refund", "urgent": False}]
