"""Agents in flow files and in Python are equivalent: each key has its spelling in both.

An agent in Python runs alone, and as a step of a flow that is written out as a file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from flowengine import Agent, Engine, Flow, case_not_resolved, case_resolved
from flowengine.agents.models import using
from flowengine.agents.models.scripted import ScriptedModel
from flowengine.flow.compile import compile_file
from flowengine.flow.models.agent import Agent as Declaration
from flowengine.runner import MetaChain
from flowengine.sdk.python.live_types import schema_of
from tests.agents import door_tools as tools
from tests.agents.flows import call

QUESTION = "What is 1 + 2?"
HEAD = """
flowengine: 1
id: f
inputs: {q: {type: string}}
secrets: {DOOR_KEY: {env: DOOR_KEY}}
environments:
  db: {kind: sqlite, config: {path: words.db, mode: rwc}}
  work: {kind: files, config: {path: .}}
  box: {kind: python, provider: host}
tools:
  add: {python: "tests.agents.door_tools:add"}
  boom: {python: "tests.agents.door_tools:boom"}
  polite: {python: "tests.agents.door_tools:polite"}
  transfer_to_second: {python: "tests.agents.door_tools:transfer_to_second"}
  short: {python: "tests.agents.door_tools:short"}
  shorten: {python: "tests.agents.door_tools:shorten"}
  doubled: {python: "tests.agents.door_tools:doubled"}
  withheld: {python: "tests.agents.door_tools:withheld"}
  hurried: {python: "tests.agents.door_tools:hurried"}
  no_calls: {python: "tests.agents.door_tools:no_calls"}
  page: {python: "tests.agents.door_tools:page"}
  count: {python: "tests.agents.door_tools:count"}
  ask_expert: {agent: expert}
agents:
  second: {model: scripted/test, instructions: You end it.}
  expert: {model: scripted/test, description: Knows sums., instructions: You know.}
"""
STEPS = """
steps:
  - id: ask
    agent: first
    with: {prompt: "${{ inputs.q }}"}
    next: {outcome: {resolved: told, not_resolved: told, max_turns: told, budget: told}}
  - id: told
    join: {need: each}
    output: {result: "${{ steps.ask.output }}", outcome: "${{ steps.ask.outcome }}"}
outputs: {result: "${{ steps.told.output.result }}", outcome: "${{ steps.told.output.outcome }}"}
"""
WAYS = {"outcome": dict.fromkeys(("resolved", "not_resolved", "max_turns", "budget"), "told")}
SKILL = "---\nname: sums\ndescription: How to ${{ add }}.\n---\nAdd $${{ a }} to ${{ b }}.\n"
NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
ADD = {"calls": [call("add", a=1, b=2)]}


@dataclass(frozen=True)
class Door:
    """One key: its spelling in a flow file and in a program, and a script that shows its effect."""

    file: str
    """YAML added to the agent in the file."""
    program: Callable[[], Mapping[str, Any]]
    """Arguments for `Agent`."""
    script: Sequence[Any] = ({"text": "3"},)
    run: Mapping[str, Any] = field(default_factory=dict)
    """Arguments for `MetaChain.run`."""
    use: Callable[[Agent], Any] = lambda agent: agent
    """Further changes to the agent."""
    question: str = QUESTION


def _spec(name: str, kind: str, config: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "kind": kind,
        "resource_key": name,
        **({"config": dict(config)} if config else {}),
        **more,
    }


RETRY = {"attempts": 2, "delay": "10ms"}
DOORS: dict[str, Sequence[Door]] = {
    "model": [
        Door("model: scripted/test", dict),
        Door(
            "model: [scripted/test, scripted/other]",
            lambda: {"model": ["scripted/test", "scripted/other"]},
            [{"raise": "ModelError", "retryable": False}, {"text": "3"}],
        ),
    ],
    "instructions": [Door("", dict)],
    "description": [Door("description: Adds", lambda: {"description": "Adds"})],
    "tools": [
        Door("tools: [add]", lambda: {"functions": [tools.add]}, [ADD, {"text": "3"}]),
        Door(
            "tools: [ask_expert]",
            lambda: {"functions": [tools.expert.as_tool("ask_expert")]},
            [
                {"calls": [call("ask_expert", prompt="1 + 2?", context={"a": 1})]},
                {"when": {"agent": "expert"}, "text": "It is 3."},
                {"text": "3"},
            ],
        ),
        Door(
            "tools: [std.read_file]\n    environments: [work]",
            lambda: {"environments": [_spec("work", "files", {"path": "."})]},
            [{"calls": [call("std.read_file", path="a.txt")]}, {"text": "3"}],
            use=lambda agent: agent.use_tools("std.read_file"),
        ),
    ],
    "skills": [
        Door(
            "skills: ['./skills/*']",
            lambda: {"skills": ["./skills/*"]},
            [{"calls": [call("read_skill", name="sums")]}, {"text": "3"}],
        )
    ],
    "handoffs": [
        Door(
            "handoffs: [second]",
            lambda: {"handoffs": [tools.second]},
            [{"calls": [call("transfer_to_second")]}, {"text": "3"}],
        ),
        Door(
            "tools: [transfer_to_second]\n    handoffs: [{agent: second, tool: false}]",
            lambda: {"functions": [tools.transfer_to_second]},
            [{"calls": [call("transfer_to_second")]}, {"text": "3"}],
        ),
    ],
    "title": [Door("title: first!", dict, use=lambda agent: setattr(agent, "name", "first!"))],
    "returns": [
        Door(
            f"returns: {NUMBER}",
            lambda: {"returns": NUMBER},
            [{"text": "three"}, {"text": '{"n": 3}'}],
        ),
        *(
            Door(
                f'returns: {{python: "tests.agents.door_tools:Even"{beside}}}',
                lambda: {"returns": tools.Even},
                [{"text": '{"n": 3}'}, {"text": '{"n": 4}'}],
            )
            for beside in ("", f", {json.dumps(schema_of(tools.Even))[1:-1]}")
        ),
    ],
    "max_turns": [
        Door(
            "max_turns: 2\n    tools: [add]",
            lambda: {"functions": [tools.add]},
            [ADD, ADD],
            {"max_turns": 2},
        ),
        Door(
            "max_turns: {count: 2, then: answer}\n    tools: [add]",
            lambda: {"functions": [tools.add]},
            [ADD, {"text": "3, I think"}],
            {"max_turns": {"count": 2, "then": "answer"}},
        ),
    ],
    "repeats": [
        Door(
            "repeats: 1\n    tools: [boom]",
            lambda: {"repeats": 1, "functions": [tools.boom]},
            [{"calls": [call("boom", why="so")]}] * 3,
        )
    ],
    "limits": [
        Door(
            "limits: {calls: 1}\n    tools: [add]",
            lambda: {"limits": {"calls": 1}, "functions": [tools.add]},
            [ADD, ADD, {"text": "3"}],
        )
    ],
    "retry": [
        Door(
            f"retry: {RETRY}",
            lambda: {"retry": RETRY},
            [{"raise": "ModelError", "retryable": True}, {"text": "3"}],
        )
    ],
    "on_crash": [Door("on_crash: ask", lambda: {"on_crash": "ask"})],
    "function_calling": [Door("function_calling: text", lambda: {"function_calling": "text"})],
    "settings": [
        Door(
            'settings: {temperature: 0, api_key: "${{ secrets.DOOR_KEY }}"}',
            lambda: {"settings": {"temperature": 0, "api_key": "secret:DOOR_KEY"}},
        ),
        Door(
            "settings: {tool_choice: add}\n    tools: [add]",
            lambda: {"tool_choice": "add", "functions": [tools.add]},
        ),
        Door("settings: {parallel_tool_calls: false}", lambda: {"parallel_tool_calls": False}),
    ],
    "context": [
        Door(
            f"context: {{tokens: 5000, reduce: {how}}}\n    tools: [page]",
            partial(dict, context={"tokens": 5000, "reduce": said}, functions=[tools.page]),
            [
                *({"calls": [call("page", n=n)]} for n in range(8)),
                {"text": "3"},
                {"when": {"contains": "ummar"}, "text": "Pages were read.", "repeat": True},
            ],
        )
        for how, said in (("drop", "drop"), ("summarize", "summarize"), ("shorten", tools.shorten))
    ],
    "checks": [
        Door(
            "checks: [{before: polite}]",
            lambda: {"checks": [{"before": tools.polite}]},
            question="Add, damn it",
        ),
        Door(
            "checks: [{before: polite, then: tell}, {after: short}]",
            lambda: {"checks": [{"before": tools.polite, "then": "tell"}, {"after": tools.short}]},
            [{"text": "It is certainly 3, no doubt about it."}, {"text": "3"}],
            question="Add, damn it",
        ),
        Door(
            "checks: [{after: short, then: end}]",
            lambda: {"checks": [{"after": tools.short, "then": "end"}]},
            [{"text": "It is certainly 3, no doubt."}],
        ),
    ],
    "defer": [
        Door(
            "tools: [add]\n    defer: [a*]",
            lambda: {"functions": [tools.add], "defer": ["a*"]},
            [{"calls": [call("find_tools", query="add")]}, ADD, {"text": "3"}],
        )
    ],
    "code": [
        Door(
            f"code: {said}\n    tools: [add]\n    environments: [box]",
            partial(
                dict,
                code=given,
                functions=[tools.add],
                environments=[_spec("box", "python", {}, provider="host")],
            ),
            [{"calls": [call("run_program", code="1 + 2")]}, {"text": "3"}],
        )
        for said, given in (
            ("box", "box"),
            ("{in: box, direct: [add]}", {"in": "box", "direct": ["add"]}),
        )
    ],
    "hooks": [
        Door(
            f"hooks: [{{{side}: {when}, call: {said}}}]\n    tools: [add]",
            partial(
                dict, hooks=[{side: when, "call": getattr(tools, said)}], functions=[tools.add]
            ),
        )
        for side, when, said in (
            ("before", "call", "doubled"),
            ("after", "call", "withheld"),
            ("before", "turn", "hurried"),
            ("after", "turn", "no_calls"),
        )
    ],
    "finish": [
        Door(
            "finish: tools",
            lambda: {"functions": [case_resolved, case_not_resolved]},
            [{"text": "3"}, {"calls": [call("case_resolved", result="3")]}],
        )
    ],
    "environments": [
        Door(
            "environments: [db]\n    tools: [count]",
            lambda: {
                "environments": [_spec("db", "sqlite", {"path": "words.db", "mode": "rwc"})],
                "functions": [tools.count],
            },
            [{"calls": [call("count", word="one")]}, {"text": "3"}],
        )
    ],
}
CASES = [
    pytest.param(door, id=f"{key}-{number}", marks=pytest.mark.endurance if number else ())
    for key, doors in DOORS.items()
    for number, door in enumerate(doors)
]


def test_each_key_of_a_flow_file_has_its_spelling_in_python() -> None:
    assert {*DOORS} == {*Declaration.fields_by_key()}


@pytest.mark.endurance
@pytest.mark.parametrize("door", CASES)
def test_an_agent_does_the_same_through_both_doors(
    door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOOR_KEY", "k3y")
    seen = []
    for name, run in (("file", _of_file), ("program", _of_program), ("step", _of_step)):
        folder = tmp_path / name
        (folder / "skills" / "sums").mkdir(parents=True)
        (folder / "skills" / "sums" / "SKILL.md").write_text(SKILL)
        (folder / "a.txt").write_text("three")
        monkeypatch.chdir(folder)
        model = ScriptedModel(door.script)
        with using(model), Engine(None, workdir=folder) as engine:
            outcome, result = run(door, folder, engine)
            journal = _journal(engine)
        seen.append((_asked(model.requests), outcome, result, journal))

    assert seen[1] == seen[0]
    assert seen[2] == seen[0]
    assert seen[0][0] or seen[0][1] == "not_resolved"


def _of_file(door: Door, folder: Path, engine: Engine) -> tuple[str, Any]:
    path = folder / "flow.yaml"
    model = "" if door.file.startswith("model:") else "    model: scripted/test\n"
    agent = f"  first:\n{model}    instructions: You add.\n    {door.file}\n"
    path.write_text(f"{HEAD}{agent}{STEPS}")
    outputs = engine.run(path, {"q": door.question}).outputs
    assert outputs is not None
    return outputs["outcome"], outputs["result"]


def _of_step(door: Door, folder: Path, engine: Engine) -> tuple[str, Any]:
    flow = Flow("built", inputs={"q": str}, folder=folder)
    with_ = {"prompt": "${{ inputs.q }}"}
    flow.step("ask", agent={"name": _agent(door), **door.run}, with_=with_, next=WAYS)
    ended = {"result": "${{ steps.ask.output }}", "outcome": "${{ steps.ask.outcome }}"}
    flow.step("told", join={"need": "each"}, output=ended)
    for name in ended:
        flow.output(name, f"${{{{ steps.told.output.{name} }}}}")
    path = folder / "written.yaml"
    path.write_text(flow.to_yaml())
    assert flow.compile().hash == compile_file(path).hash
    outputs = engine.run(path, {"q": door.question}).outputs
    assert outputs is not None
    return outputs["outcome"], outputs["result"]


def _agent(door: Door) -> Agent:
    given = {"model": "scripted/test", **door.program()}
    agent = Agent(name="first", instructions="You add.", **given)
    door.use(agent)
    return agent


def _of_program(door: Door, folder: Path, engine: Engine) -> tuple[str, Any]:
    agent = _agent(door)
    asked = [{"role": "user", "content": door.question}]
    response = MetaChain(engine).run(agent, asked, **door.run)
    outcome = "not_resolved" if response.termination == "no_progress" else response.termination
    return outcome, response.output


def _journal(engine: Engine) -> list[str]:
    """Return all events except the first of each execution, without times and flow names."""
    told = []
    for execution in engine.executions.list().items:
        began, *events = engine.executions.events(execution["execution"])
        assert began["type"] == "started"
        for event in events:
            address = event.get("address", "").removeprefix("ask/").removeprefix("run/")
            kept = {**event, "at": None, "address": address}
            told.append(json.dumps(kept, sort_keys=True))
    whole = "\n".join(told)
    ids = dict.fromkeys(re.findall(r'"id": ("[^"]+")', whole))
    for number, id in enumerate(ids):
        whole = whole.replace(id, f'"call {number}"')
    whole = re.sub(r'("asked"|"ready"): "[^"]*"', r"\1: null", whole)  # of an environment
    return re.sub(r"\b[0-9a-f]{32}\b", "mark", whole).splitlines()


_OF_THE_RUN = ("conversation",)


def _asked(requests: Sequence[Any]) -> list[str]:
    """Return requests as text, with generated IDs of calls numbered and marks made equal."""
    told = []
    for one in requests:
        said = {name: getattr(one, name) for name in one.__slots__ if name not in _OF_THE_RUN}
        told.append(json.dumps(said, default=_as_data, sort_keys=True))
    whole = re.sub(r"\b[0-9a-f]{32}\b", "mark", "\n".join(told))
    ids = dict.fromkeys(re.findall(r'"tool_call_id": ("[^"]+")', whole))
    for number, id in enumerate(ids):
        whole = whole.replace(id, f'"call {number}"')
    return whole.splitlines()


def _as_data(value: Any) -> Any:
    return list(value) if isinstance(value, Sequence) else asdict(value)
