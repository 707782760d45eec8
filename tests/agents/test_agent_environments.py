"""Environments of agents: used by their tools, and hidden from models (docs/agents.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine, check
from flowengine.errors import FlowFileError
from flowengine.flow.compile import compile_file
from tests.agents.flows import NAME, STEPS, Case, call, flow

TOOLS = '''
from flowengine_envs.kinds.sqlite import Database

def by_name(db, word: str) -> str:
    """Keep a word.

    Args:
        db: Where.
    """
    db.execute("insert into words values (?)", [word])
    return "kept"

def by_type(words: Database) -> int:
    """Count words."""
    return words.query("select count(*) as n from words")[0]["n"]

def every(runtime_resources: dict) -> list:
    """Name what there is."""
    return sorted(runtime_resources)

def other(db: str) -> str:
    """Take a text that happens to be called like an environment."""
    return db.upper()

def plain(a: int = 0) -> int:
    """Take nothing."""
    return a
'''
HEAD = f"""
flowengine: 1
id: f
inputs: {{q: {{type: string, default: Do it.}}, name: {{type: string, default: kept}}}}
defaults: {{model: {NAME}}}
environments:
  db: {{kind: sqlite, config: {{path: words.db, mode: rwc}}}}
  box: {{kind: bash, provider: host}}
tools:
  by_name: {{python: "tools:by_name"}}
  by_type: {{python: "tools:by_type"}}
  every: {{python: "tools:every"}}
  other: {{python: "tools:other"}}
  plain: {{python: "tools:plain"}}
  who: {{shell: {{command: [sh, -c, "echo $$ in $PWD"]}}}}
"""
MAKE = """
steps:
  - {id: make, run: create table words (word text), in: db}
  - {id: ask, agent: first, with: {prompt: "${{ inputs.q }}"}}
outputs: {answer: "${{ steps.ask.output }}"}
"""


def case(folder: Path, agent: str, script: list[Any], steps: str = MAKE, head: str = HEAD) -> Case:
    (folder / "tools.py").write_text(TOOLS)
    return Case(folder, flow(agent, steps, head), script)


def faults(folder: Path, agent: str, head: str = HEAD) -> list[str]:
    (folder / "tools.py").write_text(TOOLS)
    (folder / "flow.yaml").write_text(flow(agent, STEPS, head))
    with Engine(folder / "store.db") as engine, pytest.raises(FlowFileError) as error:
        engine.run(folder / "flow.yaml")
    return [f"{one.code} {one.line}: {one.message}; {one.hint}" for one in error.value.diagnostics]


def answers(case: Case, number: int) -> list[str]:
    return [one["content"] for one in case.sent(number) if one["role"] == "tool"]


# Shows E27, M21
def test_tools_get_them_by_name_by_type_or_all_and_no_model_sees_them(tmp_path: Path) -> None:
    agent = (
        "first: {instructions: Do., tools: [by_name, by_type, every, other], environments: [db]}"
    )
    script = [
        {"calls": [call("by_name", word="oak"), call("by_type"), call("every")]},
        {"calls": [call("other", db="x")]},
        {"text": "so"},
    ]
    one = case(tmp_path, agent, script)

    assert one.run().status == "succeeded"
    assert answers(one, 2) == ["kept", "1", '["db"]', "X"]
    offered = {tool.name: tool.parameters for tool in one.model.requests[0].tools}
    properties = {name: sorted(schema.get("properties", {})) for name, schema in offered.items()}
    assert properties == {"by_name": ["word"], "by_type": [], "every": [], "other": ["db"]}
    assert offered["by_name"]["required"] == ["word"]


# Shows E27
def test_a_model_cannot_give_one(tmp_path: Path) -> None:
    agent = "first: {instructions: Do., tools: [by_name], environments: [db]}"
    wrong = call("by_name", word="oak", db="/etc/passwd")
    one = case(tmp_path, agent, [{"calls": [wrong]}, {"text": "so"}])

    assert one.run().status == "succeeded"
    assert "db" in answers(one, 1)[0]
    assert not answers(one, 1)[0].startswith("kept")


def test_commands_run_in_the_one_environment_that_runs_programs(tmp_path: Path) -> None:
    agent = "first: {instructions: Do., tools: [who], environments: [db, box]}"
    one = case(tmp_path, agent, [{"calls": [call("who")]}, {"text": "so"}])

    assert one.run().status == "succeeded"
    assert answers(one, 1)[0].endswith("\n[exit code 0]")


@pytest.mark.parametrize("tool", ["std: run_command", 'python: "tools:by_type"'])
def test_a_tool_that_names_its_environment_keeps_it(tmp_path: Path, tool: str) -> None:
    (tmp_path / "tools.py").write_text(TOOLS)
    own = "den" if "std" in tool else "more"
    more = "  den: {kind: bash}\n  more: {kind: sqlite, config: {path: more.db, mode: rwc}}\n"
    head = HEAD.replace("  box:", f"{more}  box:").replace("  by_type:", "  # by_type:")
    head += f"  named: {{{tool}, environments: [{own}]}}\n"
    agent = "first: {instructions: Do., tools: [named, by_name], environments: [db, box]}"
    (tmp_path / "flow.yaml").write_text(flow(agent, STEPS, head))

    [step] = [
        one
        for one in compile_file(tmp_path / "flow.yaml").flow["steps"]
        if one.get("tool") == "named"
    ]
    places = step["input"][1]["environments"][1]

    specs = [use[1]["spec"][1]["resource_key"] for use in places.values()]
    assert specs
    assert {*specs} == {own}


# Shows E80
def test_a_command_without_a_place_is_refused(tmp_path: Path) -> None:
    agent = "first: {instructions: Do., tools: [who, by_name], environments: [db]}"

    [fault] = faults(tmp_path, agent)

    assert fault.startswith("E407 ")
    assert "'who' runs commands" in fault


def test_of_two_places_the_tool_has_to_say_which(tmp_path: Path) -> None:
    head = HEAD.replace("  box:", "  den: {kind: bash, provider: host}\n  box:")
    agent = "first: {instructions: Do., tools: [who], environments: [box, den]}"

    [fault] = [one for one in faults(tmp_path, agent, head) if one.startswith("E402")]

    assert "'who' works in one environment, and 'box' and 'den' would both do" in fault


def test_names_and_arguments_are_checked(tmp_path: Path) -> None:
    agent = "first: {instructions: Do., tools: [by_name], environments: [dbb]}"
    [fault] = faults(tmp_path, agent)
    assert "E401 " in fault
    assert "there is no environment 'dbb'" in fault
    assert "did you mean 'db'?" in fault

    agent = "first: {instructions: Do., tools: [by_name], environments: {db: {db: {x: 1}}}}"
    assert any("'db' takes no argument 'x'" in one for one in faults(tmp_path, agent))


def test_one_that_no_tool_works_in_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(TOOLS)
    agent = "first: {instructions: Do., tools: [who, plain], environments: [db, box]}"
    (tmp_path / "flow.yaml").write_text(flow(agent, STEPS, HEAD))

    found = [one for one in check(tmp_path / "flow.yaml") if "db" in one.message]

    assert [(one.code, one.message) for one in found] == [
        ("W105", "none of its tools works in the environment 'db'")
    ]


def test_rules_see_the_environments_of_a_call(tmp_path: Path) -> None:
    agent = "first: {instructions: Do., tools: [by_name, plain], environments: [db]}"
    head = HEAD + 'rules: [{deny: "python:*", in: db}]\n'
    script = [{"calls": [call("by_name", word="oak"), call("plain")]}, {"text": "so"}]
    one = case(tmp_path, agent, script, MAKE, head)

    assert one.run().status == "succeeded"
    denied, ran = answers(one, 1)
    assert "Refused" in denied
    assert ran == "0"
