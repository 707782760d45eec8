# Shows F7
"""Agents in flows built in Python: always the same graph as in a file (F7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flowengine import Engine, Flow, cel
from flowengine.agents.models import using
from flowengine.agents.models.scripted import ScriptedModel
from flowengine.flow.compile import compile_text

TOOLS = '''
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b

def short(answer: str) -> None:
    """Refuse a long answer."""
    assert len(answer) < 20
'''
FILE = """
flowengine: 1
id: sums
inputs: {question: {type: string}}
defaults: {model: scripted/x}
environments: {work: {kind: files, config: {path: .}}}
tools:
  add: {python: "sums_tools:add", approval: {when: "${{ args.a > 100 }}"}}
  short: {python: "sums_tools:short"}
  ask_expert: {agent: expert}
agents:
  expert: {description: Knows sums., instructions: You know.}
  clerk:
    instructions: "Answer ${{ inputs.question }}"
    tools: [add, ask_expert, std.read_file]
    environments: [work]
    handoffs: [expert]
    checks: [{after: short}]
    max_turns: {count: 5, last: answer}
steps:
  - {id: work, agent: clerk, with: {prompt: "${{ inputs.question }}"}}
outputs: {answer: "${{ steps.work.output }}", by: "${{ steps.work.agent }}"}
"""


def built(folder: Path) -> Flow:
    flow = Flow("sums", inputs={"question": str})
    flow.folder = str(folder)
    flow.head["defaults"] = {"model": "scripted/x"}
    flow.declare("environments", "work", {"kind": "files", "config": {"path": "."}})
    asked = {"python": "sums_tools:add", "approval": {"when": "${{ args.a > 100 }}"}}
    flow.declare("tools", "add", asked)
    flow.declare("tools", "short", {"python": "sums_tools:short"})
    flow.declare("tools", "ask_expert", {"agent": "expert"})
    expert = {"description": "Knows sums.", "instructions": "You know."}
    flow.declare("agents", "expert", expert)
    clerk = {
        "instructions": "Answer ${{ inputs.question }}",
        "tools": ["add", "ask_expert", "std.read_file"],
        "environments": ["work"],
        "handoffs": ["expert"],
        "checks": [{"after": "short"}],
        "max_turns": {"count": 5, "last": "answer"},
    }
    flow.declare("agents", "clerk", clerk)
    work = flow.step("work", agent="clerk", with_={"prompt": cel.inputs.question})
    flow.output("answer", work.output)
    flow.output("by", "${{ steps.work.agent }}")
    return flow


def test_agents_that_are_declared_in_python_give_the_same_graph(tmp_path: Path) -> None:
    (tmp_path / "sums_tools.py").write_text(TOOLS)
    flow = built(tmp_path)
    wanted = compile_text(FILE, folder=tmp_path).hash

    found: dict[str, Any] = {}
    exec(flow.to_python(), found)
    again: Flow = found["flow"]
    again.folder = str(tmp_path)

    assert flow.compile().hash == wanted
    assert compile_text(flow.to_yaml(), folder=tmp_path).hash == wanted
    assert again.compile().hash == wanted


def test_they_run(tmp_path: Path) -> None:
    (tmp_path / "sums_tools.py").write_text(TOOLS)
    script: list[dict[str, Any]] = [
        {"calls": [{"name": "add", "arguments": {"a": 1, "b": 2}}]},
        {"calls": [{"name": "ask_expert", "arguments": {"prompt": "Is it 3?"}}]},
        {"text": "Yes."},
        {"calls": [{"name": "transfer_to_expert"}]},
        {"text": "3"},
    ]
    with using(ScriptedModel(script)), Engine(None, workdir=tmp_path) as engine:
        result = engine.run(built(tmp_path), {"question": "1 + 2?"})

    assert (result.error, result.outputs) == (None, {"answer": "3", "by": "expert"})
