# Shows F15, F96
"""Handoffs to agents of imported files, which use the declarations in that file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.errors import FlowFileError
from tests.agents.flows import NAME, Case, call
from tests.stored_data import stored_in

SERVER = Path(__file__).with_name("mcp_server.py")
TOOLS = """
def search(q: str) -> str:
    "Search."
    return f"{__name__} found {q}"

def keep(db, word: str, key: str = "") -> str:
    "Keep."
    db.execute("create table if not exists words (word text)")
    db.execute("insert into words values (?)", [word])
    return f"kept with {len(key)}"
"""
MAIN = f"""
flowengine: 1
id: main
inputs: {{q: {{type: string, default: Do it.}}}}
imports: {{lib: ./lib.yaml}}
defaults: {{model: {NAME}}}
tools: {{search: {{python: "tools:search"}}}}
agents:
  first:
    instructions: "You ask about ${{{{ inputs.q }}}}"
    tools: [search]
    handoffs: [lib.second]
steps:
  - {{id: ask, agent: first, with: {{prompt: "${{{{ inputs.q }}}}"}}}}
outputs: {{answer: "${{{{ steps.ask.output }}}}", agent: "${{{{ steps.ask.agent }}}}"}}
"""
LIB = f"""
flowengine: 1
id: lib
imports: {{deep: ./deep.yaml}}
defaults: {{model: {NAME}}}
secrets: {{KEY: {{env: KEY_OF_LIB}}}}
environments: {{db: {{kind: sqlite, config: {{path: lib.db, mode: rwc}}}}}}
tools:
  search: {{python: "tools_of_lib:search"}}
  keep: {{python: "tools:keep", with: {{key: "${{{{ secrets.KEY }}}}"}}}}
agents:
  second:
    description: Knows more
    instructions: You are second.
    settings: {{user: "${{{{ secrets.KEY }}}}"}}
    tools: [search, keep]
    environments: [db]
    handoffs: [third, deep.fourth]
  third: {{instructions: You are third., tools: [search]}}
"""
DEEP = f"""
flowengine: 1
id: deep
defaults: {{model: {NAME}}}
agents: {{fourth: {{instructions: You are fourth.}}}}
"""


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KEY_OF_LIB", "s3cr3t-of-lib")
    (tmp_path / "tools_of_lib.py").write_text(TOOLS)
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "lib.yaml").write_text(LIB)
    (tmp_path / "deep.yaml").write_text(DEEP)
    return tmp_path


def faults(case: Case) -> list[str]:
    with Engine(case.folder / "store.db") as engine, pytest.raises(FlowFileError) as error:
        engine.run(case.path)
    return [f"{one.code} {one.file}: {one.message}" for one in error.value.diagnostics]


def test_each_uses_its_own_files_tools_secrets_and_environments(files: Path) -> None:
    script = [
        {"calls": [call("search", q="a"), call("transfer_to_lib.second")]},
        {"calls": [call("search", q="b"), call("keep", word="oak")]},
        {"calls": [call("transfer_to_lib.third")]},
        {"calls": [call("search", q="c")]},
        {"text": "so"},
    ]
    case = Case(files, MAIN, script)
    result = case.run()

    assert result.status == "succeeded", result.error
    assert result.outputs == {"answer": "so", "agent": "lib.third"}
    assert case.offered(0) == ["search", "transfer_to_lib.second"]
    assert "Knows more" in case.model.requests[0].tools[1].description
    assert case.offered(1) == [
        "search", "keep", "transfer_to_lib.third", "transfer_to_lib.deep.fourth"
    ]  # fmt: skip
    assert sorted(case.model.requests[1].tools[1].parameters["properties"]) == ["word"]
    assert case.sent(1)[0]["content"] == "You are second."
    found = case.results(4)
    assert "tools found a" in found[0]
    assert "tools_of_lib found b" in found[2]
    assert found[3] == "kept with 13"
    assert "tools_of_lib found c" in found[-1]
    assert case.model.requests[1].settings == {"user": "s3cr3t-of-lib"}
    stored = stored_in(files / "store.db").values()
    assert stored
    assert not any(b"s3cr3t-of-lib" in one for one in stored)
    with case.engine_open() as engine:
        steps = [one["address"] for one in engine.executions.show(case.id)["steps"]]
    assert "ask/lib.second@1" in steps
    assert "ask/lib.second@1/keep" in steps
    assert (files / "lib.db").exists()


def test_a_handoff_leads_through_the_files_between(files: Path) -> None:
    script = [
        {"calls": [call("transfer_to_lib.second")]},
        {"calls": [call("transfer_to_lib.deep.fourth")]},
        {"text": "so"},
    ]
    case = Case(files, MAIN, script)

    assert case.run().outputs == {"answer": "so", "agent": "lib.deep.fourth"}
    assert case.sent(2)[0]["content"] == "You are fourth."


def test_what_names_inputs_of_its_file_is_refused_elsewhere(files: Path) -> None:
    steps = "inputs: {who: {type: string, default: x}}\nsteps: [{id: a, agent: second}]\n"
    asks = LIB.replace("You are second.", '"You are ${{ inputs.who }}."') + steps
    (files / "lib.yaml").write_text(asks)
    assert any("E301" in one and "second" in one for one in faults(Case(files, MAIN, [])))

    of_main = MAIN.replace("agent: first", "agent: lib.second")
    assert any("E301" in one for one in faults(Case(files, of_main, [])))

    binds = LIB.replace('${{ secrets.KEY }}"}}', '${{ inputs.who }}"}}') + steps
    (files / "lib.yaml").write_text(binds)
    assert any("E301" in one and "keep" in one for one in faults(Case(files, MAIN, [])))


@pytest.mark.parametrize(
    ("file", "rule"),
    [
        ("main", "{deny: lib.search}"),
        ("main", "{deny: lib.*, agent: lib.second}"),
        ("lib", "{deny: search}"),
        ("lib", "{deny: search, agent: second}"),
    ],
)
def test_rules_of_both_files_hold_by_the_names_that_they_know(
    files: Path, file: str, rule: str
) -> None:
    text = MAIN
    if file == "main":
        text += f"rules: [{rule}]\n"
    else:
        (files / "lib.yaml").write_text(LIB + f"rules: [{rule}]\n")
    script = [
        {"calls": [call("search", q="a"), call("transfer_to_lib.second")]},
        {"calls": [call("search", q="b")]},
        {"text": "so"},
    ]
    case = Case(files, text, script)

    assert case.run().status == "succeeded"
    assert "found a" in case.results(2)[0]
    assert "Refused" in case.results(2)[2]


def test_each_has_the_server_of_its_own_file(files: Path) -> None:
    def server(name: str) -> str:
        listed = [{"name": name, "description": name, "inputSchema": {"type": "object"}}]
        (files / f"{name}.json").write_text(json.dumps(listed))
        command = json.dumps([sys.executable, str(SERVER), str(files / f"{name}.json")])
        return f"  github: {{mcp: {{command: {command}}}}}\n"

    lib = LIB.replace("tools:\n", "tools:\n" + server("inner"))
    (files / "lib.yaml").write_text(lib.replace("tools: [search, keep]", "tools: ['github.*']"))
    text = MAIN.replace('tools: {search: {python: "tools:search"}}', "tools:\n" + server("outer"))
    text = text.replace("tools: [search]", "tools: ['github.*']")
    script: list[dict[str, Any]] = [
        {"calls": [call("github.outer"), call("transfer_to_lib.second")]},
        {"calls": [call("github.inner")]},
        {"text": "so"},
    ]
    case = Case(files, text, script)

    assert case.run().status == "succeeded"
    assert case.offered(0) == ["github.outer", "transfer_to_lib.second"]
    assert case.offered(1)[0] == "github.inner"
    assert [one for one in case.results(2) if "given" in one] == [
        "outer was given {}", "inner was given {}"
    ]  # fmt: skip


def test_tools_of_another_file_are_used_by_their_names(files: Path) -> None:
    """Functions, agents as tools, and servers of a library."""
    (files / "list.json").write_text(
        json.dumps([{"name": "get", "description": "", "inputSchema": {"type": "object"}}])
    )
    command = json.dumps([sys.executable, str(SERVER), str(files / "list.json")])
    lib = LIB.replace("tools:\n", f"tools:\n  hub: {{mcp: {{command: {command}}}}}\n")
    (files / "lib.yaml").write_text(lib.replace("tools:\n", "tools:\n  ask: {agent: third}\n"))
    tools = "    tools: [lib.search, lib.ask, 'lib.hub.*']\n"
    text = MAIN.replace("    tools: [search]\n    handoffs: [lib.second]\n", tools)
    script = [
        {"calls": [call("lib.search", q="a"), call("lib.ask", prompt="b"), call("lib.hub.get")]},
        {"text": "third says", "when": {"agent": "third"}},
        {"text": "so"},
    ]
    case = Case(files, text, script)

    assert case.run().status == "succeeded"
    found = case.results(2)
    assert "tools_of_lib found a" in found[0]
    assert found[1:] == ["third says", "get was given {}"]


def test_the_servers_of_an_imported_tool_are_those_of_its_own_environment(files: Path) -> None:
    """Its secret goes to listed servers only, also if the agent's file declares others."""
    wide = (
        "flowengine: 1\nid: lib\nsecrets: {KEY: {env: KEY_OF_LIB}}\n"
        "environments: {web: {kind: http, policy: {network: public}}}\n"
        'tools: {wide: {std: http, with: {headers: {Authorization: "${{ secrets.KEY }}"}},'
        " environments: {web: web}}}\n"
    )
    (files / "lib.yaml").write_text(wide)
    main = (
        f"flowengine: 1\nid: f\ndefaults: {{model: {NAME}}}\nimports: {{lib: ./lib.yaml}}\n"
        "agents: {first: {instructions: Look., tools: [lib.wide]}}\n"
        "steps: [{id: ask, agent: first, with: {prompt: go}}]\n"
    )
    [fault] = faults(Case(files, main, []))
    assert fault.startswith("E410")
    assert "'lib.wide' sends requests to any server" in fault

    (files / "lib.yaml").write_text(wide.replace("network: public", "network: [x.example.com]"))
    case = Case(files, main, [{"text": "so"}])
    assert case.run().status == "succeeded"
