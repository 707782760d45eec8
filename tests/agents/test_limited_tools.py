# Shows T88
"""`limits` of agents' tools: the amount of a result shown to the model."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from flowengine import Agent, load
from flowengine.agents.models import using
from flowengine.agents.models.scripted import ScriptedModel
from flowengine.errors import FlowFileError
from flowengine.runner import MetaChain
from flowengine.sdk.texts.untrusted import unmarked
from flowengine.tool_environment import tool
from tests.agents.flows import NAME, Case, call, flow, without_marks
from tests.rows import each_row

SERVER = Path(__file__).with_name("mcp_server.py")
READER = """
first:
  instructions: You read.
  tools: [read, box.get]
"""


def head(folder: Path, limits: str) -> str:
    taken = {"type": "object", "properties": {"text": {"type": "string"}}}
    listed = folder / "list.json"
    listed.write_text(json.dumps([{"name": "get", "description": "Get.", "inputSchema": taken}]))
    command = [sys.executable, str(SERVER), str(listed)]
    return f"""
flowengine: 1
id: f
inputs: {{q: {{type: string, default: Read.}}}}
defaults: {{model: {NAME}}}
secrets: {{KEY: {{env: KEY}}}}
tools:
  read: {{python: "tools:read", with: {{key: "${{{{ secrets.KEY }}}}"}}, limits: {limits}}}
  box: {{mcp: {{command: {command}}}, limits: {limits}}}
"""


def test_a_model_is_shown_so_much_of_a_result_and_all_of_it_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This includes a secret right at the cut."""
    monkeypatch.setenv("KEY", "c4n4ry")
    (tmp_path / "tools.py").write_text(
        "def read(key: str) -> str:\n    'Read.'\n    return 'ä' * 18 + key + 'ö' * 40\n"
    )
    calls = [call("read", "c1"), call("box.get", "c2", text="a" * 100)]
    text = flow(READER, head=head(tmp_path, "{output: 60B}"))
    case = Case(tmp_path, text, [{"calls": calls}, {"text": "."}])

    assert case.run().status == "succeeded"

    read, got = (unmarked(one["content"]) for one in case.sent(1)[-2:])
    assert read.startswith("ä" * 18 + "***")
    assert "c4n" not in read
    assert read.endswith("…]\n" + "ö" * 10)
    whole = 'get was given {"text": "' + "a" * 100 + '"}'
    assert got.startswith(whole[:40] + f"\n[… {len(whole) - 60} characters left out")
    assert got.endswith(whole[-20:])
    digest = got.partition("kept as ")[2][:64]
    with case.engine_open() as engine:
        assert engine.store.fetch_artifact(digest).read_text() == whole


ASK = [{"role": "user", "content": "Do it."}]


def long() -> str:
    """Give much."""
    return "a" * 50 + "z"


@tool(approval="none", limits={"output": "0.02kB"})
def marked() -> str:
    """Give much."""
    return "a" * 50 + "z"


@each_row(
    ("function", "limits", "begin"),
    [
        (long, {"long": {"output": 20}}, 14),
        (marked, {}, 14),
        (marked, {"marked": {"output": 30}}, 20),
    ],
)
def test_functions_of_python_agents_have_them(function: Any, limits: Any, begin: int) -> None:
    model = ScriptedModel([{"calls": [call(function.__name__)]}, {"text": "so"}])
    agent = Agent(name="Worker", model="scripted/x", functions=[function], limits=limits)
    with using(model):
        response = MetaChain().run(agent, ASK)
    messages = without_marks(response.messages)
    [told] = [one["content"] for one in messages if one["role"] == "tool"]
    assert told.startswith("a" * begin + "\n[…")
    assert told.endswith("z")


EVERYTHING = """
  find:
    python: "tools:find"
    description: Finds a word.
    with: {key: "${{ secrets.KEY }}"}
    approval: "${{ args.word == 'secret' }}"
    effect: idempotent
    idempotency_key: find
    timeout: 10s
    retry: 2
    parallel: true
    environments: {db: words}
    limits: {output: 40}
environments: {words: {kind: sqlite, config: {path: words.db, mode: rwc}}}
"""
FIND = """
def read(key: str) -> str:
    "Read."
    return key

from flowengine_envs.kinds.sqlite import Database

def find(word: str, db: Database, key: str) -> str:
    "Find."
    return f"{word} {key} {db.query('select 1 as one')} " + "z" * 40
"""


def test_a_flow_that_uses_every_field_of_a_tool_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model receives a truncated result, while a step requires one that fits."""
    monkeypatch.setenv("KEY", "c4n4ry")
    (tmp_path / "tools.py").write_text(FIND)
    agent = "first: {instructions: You find., tools: [find]}"
    steps = """
steps:
  - {id: ask, agent: first, with: {prompt: "${{ inputs.q }}"}}
  - {id: again, call: find, with: {word: b}, on_error: [{output: "${{ error.type }}"}]}
outputs: {answer: "${{ steps.again.output }}"}
"""
    top = head(tmp_path, "{output: 60B}").rstrip() + EVERYTHING
    case = Case(
        tmp_path, flow(agent, steps, top), [{"calls": [call("find", word="a")]}, {"text": "."}]
    )

    assert case.run().outputs == {"answer": "LimitExceeded"}

    content = case.sent(1)[-1]["content"]
    assert content.startswith("a *** ")
    assert content.endswith("z" * 13)
    assert "left out" in content
    [offer] = case.model.requests[0].tools
    assert list(offer.parameters["properties"]) == ["word"]


@pytest.mark.parametrize(("right", "wrong"), [("limits", "limit"), ("approval", "aproval")])
def test_an_unknown_field_of_a_tool_is_reported_with_its_place(
    tmp_path: Path, right: str, wrong: str
) -> None:
    (tmp_path / "tools.py").write_text(FIND)
    steps = "steps: [{id: one, call: fin, with: {word: b}}]"
    top = head(tmp_path, "{output: 60B}").rstrip() + EVERYTHING.replace(
        f"    {right}:", f"    {wrong}:"
    )
    text = flow("first: {instructions: You find., tools: [find]}", steps, top)
    (tmp_path / "flow.yaml").write_text(text)
    with pytest.raises(FlowFileError) as error:
        load(tmp_path / "flow.yaml")
    unknown, missing = error.value.diagnostics
    assert unknown.message == f"unknown key {wrong!r} in a tool"
    assert unknown.hint == f"did you mean {right!r}?"
    assert text.splitlines()[unknown.line - 1].startswith(f"    {wrong}:")
    assert missing.message == "there is no tool 'fin'"
    assert "find" in (missing.hint or "")
