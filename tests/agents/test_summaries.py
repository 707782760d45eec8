"""Summaries of turns and calls for users: in lists of steps, in progress, and in pictures."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowengine import registry
from flowengine.agents.summaries import summary
from flowengine.drawing.mermaid import mermaid
from flowengine.drawing.picture import draw
from flowengine.flow.compile import compile_text
from flowengine.flow.structural_hash import structural_hash
from flowengine.sdk import Plain
from tests.agents.flows import Case, call, flow

TWO = """
first:
  instructions: You add.
  tools: [add]
  handoffs: [second]
second:
  model: scripted/other
  instructions: You tell.
"""


def test_a_turn_is_told_by_what_was_said_and_called_a_call_by_its_answer(tmp_path: Path) -> None:
    calls = [call("add", a=1, b=2), call("add", a=3, b=4)]
    case = Case(tmp_path, flow(TWO), [{"text": "Let me see.", "calls": calls}, {"text": "3\n7"}])
    case.run()

    with case.engine_open() as engine:
        steps = {one["address"]: one.get("summary") for one in engine.show(case.id)["steps"]}

    assert steps == {
        "ask": None,
        "ask/first": "Let me see.  calls add(a=1, b=2), add(a=3, b=4)",
        "ask/first#2": "3\n7",
        "ask/first.calls[1]/add": "3",
        "ask/first.calls[2]/add": "7",
    }


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ({"message": {"content": None, "tool_calls": []}}, ""),
        ({"message": {"content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}},
         "a [image_url]"),
        ({"message": {"tool_calls": [{"function": {"name": "f", "arguments": "{bro"}}]}},
         "calls f({bro)"),
        ({"message": {"tool_calls": [{"function": {"name": "f", "arguments": "[1]"}}]}},
         "calls f([1])"),
        ({"messages": []}, None),
        ({"messages": [{"content": "x"}, {"content": "y"}]}, "x"),
        ("text", None),
        ({"offer": {}}, None),
    ],
)  # fmt: skip
def test_one_line_about_an_output(output: Plain, line: str | None) -> None:
    assert summary(output) == line


@pytest.mark.parametrize("teller", ["agent", "no_longer_installed"])
def test_what_a_kind_cannot_tell_is_shown_as_it_is(teller: str) -> None:
    """An output may come from another version of the kind, but executions can always be shown."""
    assert registry.summary(teller, {"message": {"tool_calls": [{"what": 1}]}}) is None


def test_a_picture_shows_agents_tools_and_handoffs_without_what_holds_them(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("def add(a: int, b: int) -> int: return 1\n"
                                       "def boom(why: str) -> str: return why\n")  # fmt: skip
    compiled = compile_text(flow(TWO), folder=tmp_path).flow
    drawn = mermaid(draw(compiled))

    for part in (
        '["first<br/>model scripted/test"]',
        '["second<br/>model scripted/other"]',
        '-->|"calls"| flow_1_step_first.calls',
        'flow_1_step_first -->|"answers"|',
        'flow_1_step_first.calls -->|"hands over"| flow_1_step_second',
        'flow_1_step_first.calls -->|"next turn"| flow_1_step_first',
        "flow_1_step_add",
    ):
        assert part in drawn
    for part in ("state.", "dispatch", "_offer", "told"):
        assert part not in drawn
    assert "dispatch" in mermaid(draw(compiled, plumbing=True))


def test_what_is_for_people_does_not_change_what_a_flow_means(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("def add(a: int, b: int) -> int: return 1\n"
                                       "def boom(why: str) -> str: return why\n")  # fmt: skip
    compiled = compile_text(flow(TWO), folder=tmp_path).flow
    before = structural_hash(compiled)
    told = [step for step in compiled["steps"] if "ways" in step or "teller" in step]
    for step in told:
        for key in ("teller", "says", "ways"):
            step.pop(key, None)  # type: ignore[misc]

    assert len(told) >= 4
    assert structural_hash(compiled) == before
