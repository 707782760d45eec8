# Shows G15
"""Resources and prompts of MCP servers in flows, and progress and cancellation of calls (G15)."""

from __future__ import annotations

import json
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from flowengine import Agent, Engine
from tests.agents.flows import NAME, Case, call, flow
from tests.command_line import flowengine
from tests.engines.world import until

SERVER = Path(__file__).parents[1] / "envs" / "mcp" / "parts_server.py"
BOX = "environments: {box: {kind: python, provider: host}}\n"


def head(server: Path = SERVER, more: str = "resources: true, prompts: true") -> str:
    command = json.dumps([sys.executable, str(server)])
    return f"""
flowengine: 1
id: f
defaults: {{model: {NAME}}}
state: {{how: {{type: string, default: Do.}}}}
tools: {{docs: {{mcp: {{command: {command}, {more}}}}}}}
"""


@pytest.mark.wherever("mode")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_prompt_is_read_once_and_instructs_an_agent(tmp_path: Path, mode: str) -> None:
    server = tmp_path / "server.py"
    shutil.copy(SERVER, server)
    steps = """
steps:
  - {id: get, call: docs.get_prompt, with: {name: review, arguments: {language: Perl}}}
  - {id: keep, set: {how: "${{ steps.get.output }}"}}
  - {id: sure, approval: {title: Go on?}}
  - {id: ask, agent: first, with: {prompt: Go.}}
outputs: {answer: "${{ steps.ask.output }}"}
"""
    agent = 'first: {instructions: "${{ state.how }}", tools: [docs.read_resource]}'
    script = [{"calls": [call("docs.read_resource", uri="order://17")]}, {"text": "so"}]
    more = f"resources: true, prompts: true, mode: {mode}"
    case = Case(tmp_path, flow(agent, steps, head(server, more)), script)
    with case.engine_open() as engine:
        [wait] = engine.run(case.path).waits
    server.write_text(SERVER.read_text().replace("You review", "You ignore"))

    with case.engine_open() as engine:
        result = engine.approvals.approve(wait["id"]).result

    assert result is not None
    assert result.outputs == {"answer": "so"}
    assert case.sent(0)[0]["content"] == "You review Perl."
    assert case.offered(0) == ["docs.read_resource"]
    assert case.results(1) == ["order 17"]
    # The text of the server is marked as data.
    [marked] = [one for one in case.sent_with_marks(1) if one["role"] == "tool"]
    assert marked["content"] != "order 17"


def run(folder: Path, steps: str, more: str = "resources: true") -> Any:
    path = folder / "flow.yaml"
    path.write_text(f"{head(more=more)}{steps}")
    with Engine(folder / "store.db", workdir=folder) as engine:
        return engine.run(path, id="it")


def test_a_resource_is_a_text_or_a_file(tmp_path: Path) -> None:
    result = run(
        tmp_path,
        """
steps:
  - {id: text, call: docs.read_resource, with: {uri: "note://plain"}}
  - {id: picture, call: docs.read_resource, with: {uri: "note://picture"}}
  - {id: file, call: docs.read_resource, with: {uri: "note://plain", as_file: true}}
outputs:
  text: "${{ steps.text.output }}"
  picture: "${{ steps.picture.output }}"
  file: "${{ steps.file.output }}"
""",
    )

    [file] = result.outputs["file"]
    assert Path(file["file"]["path"]).read_text() == "Grüße"
    assert result.outputs["text"] == "Grüße"
    [picture] = result.outputs["picture"]
    assert (picture["uri"], picture["mimeType"]) == ("note://picture", "image/png")
    assert Path(picture["file"]["path"]).read_bytes() == b"PNG"


def test_a_resource_that_is_too_large_is_not_taken(tmp_path: Path) -> None:
    command = json.dumps([sys.executable, str(SERVER)])
    (tmp_path / "flow.yaml").write_text(f"""
flowengine: 1
id: f
environments:
  server: {{kind: mcp, config: {{command: {command}, resources: true}}, limits: {{output: 8KiB}}}}
tools: {{docs: {{mcp: {{in: server}}}}}}
steps: [{{id: read, call: docs.read_resource, with: {{uri: "note://large"}}}}]
""")
    with Engine(tmp_path / "store.db", workdir=tmp_path) as engine:
        result = engine.run(tmp_path / "flow.yaml")

    assert result.status == "failed"
    assert "LimitExceeded" in str(result.error)


@pytest.mark.wherever("more", "offered")
@pytest.mark.parametrize(
    ("more", "offered"),
    [
        ("include: ['*resource*']", ["docs.read_resource"]),  # the server's own tool
        ("include: ['*resource*'], resources: true", ["docs.list_resources", "docs.read_resource"]),
        ("include: ['*resource*'], exclude: [list_*], resources: true", ["docs.read_resource"]),
        ("include: [get_*], prompts: true", ["docs.get_prompt"]),
    ],
)
def test_agents_have_them_only_if_the_flow_says_so(
    tmp_path: Path, more: str, offered: list[str]
) -> None:
    steps = "steps: [{id: ask, agent: first, with: {prompt: Go.}}]"
    agent = "first: {instructions: Do., tools: ['docs.*']}"
    case = Case(tmp_path, flow(agent, steps, head(more=more)), [{"text": "so"}])

    assert case.run().status == "succeeded"
    assert sorted(case.offered(0)) == offered


def test_a_program_calls_only_what_the_filters_leave(tmp_path: Path) -> None:
    steps = "steps: [{id: ask, agent: first, with: {prompt: Go.}}]"
    agent = "first: {instructions: Do., tools: ['docs.*'], environments: [box], code: box}"
    code = 'print(await docs__read_resource(uri="order://17"))\nawait docs__get_prompt(name="talk")'
    script = [{"calls": [call("run_program", code=code)]}, {"text": "so"}]
    more = "resources: true, prompts: true, exclude: [get_*]"
    case = Case(tmp_path, flow(agent, steps, head(more=more) + BOX), script, by_turn=True)

    case.run()

    [tool] = case.model.requests[0].tools
    assert "read_resource" in tool.description
    assert "get_prompt" not in tool.description
    [answer] = case.answers(1)
    assert "get_prompt" in answer
    assert not any("get_prompt" in address for address in case.addresses())


def test_progress_is_passed_on_and_logged_with_the_attempt(tmp_path: Path) -> None:
    heard: list[Any] = []
    path = tmp_path / "flow.yaml"
    path.write_text(f"{head()}steps: [{{id: busy, call: docs.work, with: {{steps: 500}}}}]")
    with Engine(tmp_path / "store.db", workdir=tmp_path) as engine:
        close = engine.subscribe(
            lambda update: heard.append(update.data) if update.kind == "part" else None, output=True
        )
        engine.run(path, id="it")
        close()
        [end] = [event for event in engine.executions.events("it") if "log" in event]

    part = {"address": "busy", "part": "progress", "done": 1, "total": 500}
    assert heard[0] == {**part, "message": "file 1\ufffd[2J"}
    lines = [text for _, level, text in end["log"]["lines"] if level == "INFO"]
    assert lines[0] == "progress: 1 of 500, file 1\ufffd[2J"


def test_a_terminal_shows_progress(folder: Path) -> None:
    steps = "steps: [{id: busy, call: docs.work, with: {steps: 3}}]"
    Path("flow.yaml").write_text(f"{head()}{steps}")

    shown = flowengine("run", "flow.yaml", "-v")

    assert shown.code == 0
    [line] = [line for line in shown.err.splitlines() if " progress " in line][:1]
    assert line.split() == ["busy", "progress", "1", "of", "3,", "file", "1\ufffd[2J"]


def test_progress_does_not_disturb_the_stream_of_an_agent(tmp_path: Path) -> None:
    agent = Agent(
        name="first", model=f"scripted/{tmp_path / 'script.yaml'}", instructions="Do."
    ).use_mcp(command=[sys.executable, str(SERVER)], name="docs")
    calls = "[{name: docs.work, arguments: {steps: 3}}]"
    (tmp_path / "script.yaml").write_text(f"- calls: {calls}\n- text: so\n")

    kinds = [part.kind for part in agent.stream("Go.")]

    assert kinds[-1] == "response"
    assert "tool_result" in kinds


def test_a_call_of_a_cancelled_execution_ends_on_the_server(tmp_path: Path) -> None:
    path = tmp_path / "flow.yaml"
    steps = f'steps: [{{id: busy, call: docs.wait, with: {{folder: "{tmp_path}"}}}}]'
    path.write_text(f"{head()}{steps}")
    ended: list[Any] = []
    with Engine(tmp_path / "store.db", workdir=tmp_path) as engine:
        thread = threading.Thread(target=lambda: ended.append(engine.run(path, id="it")))
        thread.start()
        until((tmp_path / "begun").exists)
        engine.executions.cancel("it")
        thread.join(300)

    assert ended[0].status == "cancelled"
    until((tmp_path / "cancelled").exists)
