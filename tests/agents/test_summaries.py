"""Summaries of turns and calls for users: in lists of steps, in progress, and in pictures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from flowengine import registry
from flowengine.agents.actions import TURN, summary
from flowengine.drawing.dot import dot
from flowengine.drawing.mermaid import mermaid
from flowengine.drawing.picture import draw
from flowengine.drawing.svg import svg
from flowengine.engines.stream_parts import ModelReplied
from flowengine.flow.compile import compile_text
from flowengine.flow.structural_hash import structural_hash
from flowengine.sdk import Plain
from flowengine.sdk.texts.untrusted import marked
from tests.agents.flows import HEAD, Case, call, flow
from tests.command_line import flowengine
from tests.rows import each_row

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
        steps = {
            one["address"]: one.get("summary") for one in engine.executions.show(case.id)["steps"]
        }

    assert steps == {
        "ask": None,
        "ask/first@1": "Let me see.  calls add(a=1, b=2), add(a=3, b=4)",
        "ask/first@1/add": "3",
        "ask/first@1/add#2": "7",
        "ask/first@2": "3\n7",
        "ask/first": None,
    }


@each_row(
    ("output", "line"),
    [
        ({"message": {"content": None, "tool_calls": []}}, ""),
        ({"message": {"content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}},
         "a [image_url]"),
        ({"message": {"tool_calls": [{"function": {"name": "f", "arguments": "{bro"}}]}},
         "calls f({bro)"),
        ({"message": {"tool_calls": [{"function": {"name": "f", "arguments": "[1]"}}]}},
         "calls f([1])"),
        ({"message": {"content": "x"}, "refused": ["'fly' was not called: gone"]},
         "'fly' was not called: gone  x"),
        ({"left_out": 2}, "leaves out 2 messages"),
        ("text", None),
        ({"offer": {}}, ""),
        ({"calls": [{"callee": "f"}, {"callee": "g"}]}, "calls f, g"),
        ({"state": {}, "outcome": "second"}, "hands over to second"),
        ({"state": {"outcome": "max_turns"}}, "ends: max_turns"),
    ],
)  # fmt: skip
def test_one_line_about_an_output(output: Plain, line: str | None) -> None:
    assert summary(TURN, output) == line


def result(content: str) -> Plain:
    return {"envelope": {"content": content, "more": [], "context": {}, "handoff": ""}}


def test_data_in_the_form_of_a_reply_is_shown_as_it_is() -> None:
    assert summary("std", {"message": {"content": "x"}}) is None
    assert summary("std", result("x")) == "x"


@each_row(
    ("kind", "text", "why"),
    [
        ("std", "[stderr]\nls: no such file\n[exit code 2]", "exit code 2: ls: no such file"),
        ("std", "5\n[exit code 3]", "exit code 3: 5"),
        ("std", "[exit code 3]", "exit code 3"),
        ("std", "[value] 42\n[exit code 0]", None),
        ("std", "it ends\n[exited, exit code 1, in /tmp]", "exit code 1: it ends"),
        ("std", "[exited, exit code 0, in /tmp]", None),
        ("std", "[running, in /tmp]", None),
        ("std", "[exit code 1]\n[exit code 0]", None),
        ("std", marked("no\n[exit code 1]", "run_python"), "exit code 1: no"),
        ("std", "[Who approved the call says: ok]\n\n[exit code 1]", "exit code 1"),
        ("std", "", None),
        ("http", "gone\n[exit code 1]", None),
        ("python", "gone\n[exit code 1]", None),
    ],
)
def test_failed_code_is_told_by_its_exit_code(kind: str, text: str, why: str | None) -> None:
    assert registry.failure_of("agent", kind, result(text)) == why


def test_notes_of_approvers_are_not_the_result_of_a_call() -> None:
    notes = "[Before the call was made, a person changed these arguments: []]\n\n"
    notes += "[Who approved the call says: fine\nby me]\n\n"
    assert summary("std", result(f"{notes}3")) == "3"


def test_failed_code_is_shown_as_failed_and_its_step_goes_on(tmp_path: Path) -> None:
    head = HEAD.replace("tools:", "environments: {box: {kind: bash, provider: host}}\ntools:", 1)
    agent = "first: {instructions: Work., tools: [std.run_command], environments: {shell: box}}"
    commands = ["ls nowhere", "echo fine", "exit 3"]
    calls = [call("std.run_command", command=command) for command in commands]
    case = Case(tmp_path, flow(agent, head=head), [{"calls": calls}, {"text": "so"}])
    assert case.run().status == "succeeded"

    with case.engine_open() as engine:
        steps = {one["address"]: one for one in engine.executions.show(case.id)["steps"]}
    made = [steps[f"ask/first@1/std.run_command{at}"] for at in ("", "#2", "#3")]
    assert [one["status"] for one in made] == ["failed", "succeeded", "failed"]
    assert [one["error"] for one in made] == [None, None, None]
    shown = flowengine("--store", tmp_path / "store.db", "show", case.id).out
    assert re.search(r"failed +[\d.]+s +exit code 2: ls: .*nowhere", shown)
    assert re.search(r"succeeded +[\d.]+s +fine", shown)
    assert re.search(r"failed +[\d.]+s +exit code 3\n", shown)


@each_row(
    ("output", "text", "calls"),
    [
        ({"message": {"content": "so"}}, "so", []),
        ({"message": {"content": [{"type": "text", "text": "s"}, {"text": "o"}]}}, "so", []),
        ({"message": {"content": None, "tool_calls": [
            {"id": "c1", "function": {"name": "add", "arguments": '{"a": 1}'}},
            {"id": "c2", "function": {"name": "add", "arguments": "not JSON"}},
            {"id": "c3", "function": {"name": "add"}}, {"id": "c4"},
        ]}}, "", [("c1", "add", {"a": 1}), ("c2", "add", "not JSON"), ("c3", "add", "")]),
        ({}, "", []), ("text", "", []), (None, "", []),
    ],
)  # fmt: skip
def test_a_reply_is_read_in_whatever_form_it_is(output: Any, text: str, calls: list[Any]) -> None:
    reply = ModelReplied(output).reply
    assert reply.text == text
    assert [(call.id, call.tool, call.arguments) for call in reply.calls] == calls


@each_row("teller", ["agent", "no_longer_installed"])
def test_what_a_kind_cannot_tell_is_shown_as_it_is(teller: str) -> None:
    """An output may come from another version of the kind, but executions can always be shown."""
    assert registry.summary(teller, TURN, {"message": {"tool_calls": [{"what": 1}]}}) is None


def test_a_picture_shows_agents_tools_and_handoffs_without_what_holds_them(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("def add(a: int, b: int) -> int: return 1\n"
                                       "def boom(why: str) -> str: return why\n")  # fmt: skip
    compiled = compile_text(flow(TWO), folder=tmp_path).flow
    drawn = mermaid(draw(compiled))

    for part in (
        '["first<br/>model scripted/test"]',
        '["second<br/>model scripted/other"]',
        'flow_1_step_add["add<br/>python tools:add"]',
        "flow_1_step_first --o flow_1_step_add",
        "flow_1_step_first --> flow_1_step_second",
        "flow_1_step_first --> end_1",
        "flow_1_step_second --> end_1",
    ):
        assert part in drawn
    assert len(re.findall(r"^ *flow_1_step_\w+\[", drawn, re.M)) == 3
    picture = draw(compiled)
    for shown in (drawn, dot(picture), svg(picture)):
        for part in ("state.", "call.args", "lock", "continue"):
            assert part not in shown, part


def test_what_is_for_people_does_not_change_what_a_flow_means(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("def add(a: int, b: int) -> int: return 1\n"
                                       "def boom(why: str) -> str: return why\n")  # fmt: skip
    compiled = compile_text(flow(TWO), folder=tmp_path).flow
    before = structural_hash(compiled)
    told = [step for step in compiled["steps"] if "teller" in step]
    for step in told:
        for key in ("teller", "says"):
            step.pop(key, None)  # type: ignore[misc]

    assert [step["id"] for step in told] == ["first", "add", "second"]
    assert structural_hash(compiled) == before
