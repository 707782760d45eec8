"""Agents declared in a step or tool, including single model calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.agents.models import using
from flowengine.agents.models.scripted import ScriptedModel
from flowengine.errors import FlowFileError
from flowengine.flow.compile import Compiled, compile_text
from tests.agents.flows import call
from tests.rows import each_row

HEAD = "flowengine: 1\nid: f\ninputs: {q: {type: string, default: Hello}}\n"
NUMBER = "{type: object, properties: {n: {type: integer}}, required: [n]}"


def compiled(text: str) -> Compiled:
    return compile_text(HEAD + text, "f.yaml")


def test_a_call_of_a_model_is_one_step(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(
        f"{HEAD}steps:\n  - id: x\n    agent: {{model: scripted/m, prompt: '${{{{ inputs.q }}}}', "
        f"returns: {NUMBER}}}\noutputs: {{n: '${{{{ steps.x.output.n }}}}'}}\n"
    )
    model = ScriptedModel([{"text": '{"n": 3}'}])
    with using(model), Engine(None, workdir=tmp_path) as engine:
        assert engine.run(path).outputs == {"n": 3}
    [request] = model.requests
    assert list(request.messages) == [{"role": "user", "content": "Hello"}]
    assert (request.tools, request.agent) == ((), "x")


@each_row(
    ("inline", "named"),
    [
        (
            "steps: [{id: a, agent: {model: p/m, instructions: Help., prompt: Hi}}]",
            "agents: {a: {model: p/m, instructions: Help.}}\n"
            "steps: [{id: a, agent: a, with: {prompt: Hi}}]",
        ),
        (
            "steps: [{id: g, group: [{id: b, agent: {model: p/m, chat: true}}]}]",
            "agents: {b: {model: p/m, instructions: ''}}\n"
            "steps: [{id: g, group: [{id: b, agent: {name: b, chat: true}}]}]",
        ),
        (
            "tools: {judge: {agent: {model: p/m, description: Judges.}}}\n"
            "steps: [{id: a, agent: {model: p/m, tools: [judge], prompt: Hi}}]",
            "tools: {judge: {agent: judge}}\n"
            "agents: {judge: {model: p/m, description: Judges., instructions: ''},"
            " a: {model: p/m, tools: [judge], instructions: ''}}\n"
            "steps: [{id: a, agent: a, with: {prompt: Hi}}]",
        ),
        (
            "agents: {a: {model: p/x, instructions: Other.}}\n"
            "flows: {inner: {steps: [{id: c, agent: {model: p/m}, with: {prompt: Hi}}]}}\n"
            "steps: [{id: a, agent: {model: p/m, handoffs: [a]}}, {id: i, flow: inner}]",
            "agents: {a: {model: p/x, instructions: Other.},"
            " a_: {model: p/m, instructions: '', handoffs: [a]},"
            " c: {model: p/m, instructions: ''}}\n"
            "flows: {inner: {steps: [{id: c, agent: c, with: {prompt: Hi}}]}}\n"
            "steps: [{id: a, agent: a_}, {id: i, flow: inner}]",
        ),
    ],
)
def test_it_is_an_entry_of_agents(inline: str, named: str) -> None:
    assert compiled(inline).hash == compiled(named).hash


@each_row(
    ("step", "told"),
    [
        ("{model: p/m, tolls: [a]}", ":4:37: error[E102]: unknown key 'tolls' in an agent"),
        ("{model: p/m, prompt: '${{ inputs.x }}'}", ":4:50: error[E301]: 'inputs.x'"),
        ("{model: p/m, tools: [nope]}", ":4:45: error[E401]: there is no tool 'nope'"),
        ("{model: nope}", ":4:32: error[E103]: expected a model such as openai/gpt-4o"),
        ("{chat: true}", ":4:17: error[E104]"),
        ("{model: p/m, prompt: a}, with: {prompt: b}", ":4:37: error[E102]: unknown key 'prompt'"),
    ],
)
def test_what_is_wrong_is_told_where_it_stands(step: str, told: str) -> None:
    with pytest.raises(FlowFileError) as refused:
        compiled(f"steps: [{{id: a, agent: {step}}}]")
    assert told in refused.value.message


def test_one_that_is_a_tool_answers_its_caller(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(
        f"{HEAD}tools: {{judge: {{agent: {{model: scripted/m, description: Judges.}}}}}}\n"
        "steps: [{id: a, agent: {model: scripted/m, tools: [judge], prompt: Hi}}]\n"
        "outputs: {o: '${{ steps.a.output }}'}\n"
    )
    script: list[Any] = [
        {"calls": [call("judge", prompt="Is it?")]},
        {"when": {"agent": "judge"}, "text": "It is."},
        {"text": "yes"},
    ]
    with using(ScriptedModel(script)), Engine(None, workdir=tmp_path) as engine:
        assert engine.run(path).outputs == {"o": "yes"}
