# Shows E26, G15
"""Environments, ready-made tools and MCP servers of agents that are Python objects.

No test here calls the environment manager: helpers and specs are sufficient for a program.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flowengine import Agent, Engine, Response
from flowengine.agents.models import using
from flowengine.agents.models.scripted import ScriptedModel
from flowengine.errors import UsageError
from flowengine.execution_environment import register_provider, unregister_provider
from flowengine.runner import MetaChain
from flowengine.sdk.texts.untrusted import unmarked
from flowengine.tool_environment import tool
from tests.execution_environment.toy import Toy
from tests.nodes.search_service import serving
from tests.stored_data import stored_in

ASK = [{"role": "user", "content": "Do it."}]
SERVER = Path(__file__).with_name("mcp_server.py")
SDK_SERVER = Path(__file__).parents[1] / "envs" / "mcp" / "sdk_server.py"
COMMAND = [sys.executable, str(SDK_SERVER), "stdio"]
pytestmark = pytest.mark.usefixtures("folder")


@pytest.fixture
def toy() -> Iterator[Toy]:
    provider = Toy()
    register_provider(provider)
    yield provider
    unregister_provider("toy")


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def run(agent: Agent, *calls: dict[str, Any], **how: Any) -> tuple[ScriptedModel, list[Any]]:
    """Run an agent whose model makes these calls in one reply. Return the model and the results."""
    model = ScriptedModel([{"calls": [*calls]}, {"text": "so"}])
    with using(model):
        response = MetaChain(**how).run(agent, ASK)
    assert response.termination == "resolved"
    return model, answers(response)


def answers(response: Response) -> list[Any]:
    return [_data(one["content"]) for one in response.messages if one["role"] == "tool"]


def _data(text: str) -> Any:
    try:
        return json.loads(unmarked(text))
    except ValueError:
        return unmarked(text)


def offered(model: ScriptedModel) -> list[str]:
    return [one.name for one in model.requests[0].tools]


def agent(**more: Any) -> Agent:
    return Agent(name="Worker", model="scripted/x", **more)


@pytest.mark.endurance
@pytest.mark.parametrize(
    ("enable", "name", "arguments"),
    [
        (lambda one: one.enable_python(), "run_python", {"code": "import os\nos.getpid()"}),
        (lambda one: one.enable_shell(), "run_command", {"command": "echo $$"}),
        (lambda one: one.enable_nodejs(), "run_javascript", {"code": "return process.pid"}),
    ],
)
# Shows E80
def test_each_helper_alone_adds_its_tool_which_runs_in_a_sandbox(
    enable: Callable[[Agent], Agent], name: str, arguments: dict[str, Any]
) -> None:
    model, [found] = run(enable(agent()), call(name, **arguments))

    assert offered(model) == [name]
    pid, end = found.split("\n")
    assert end == "[exit code 0]"
    assert int(pid.removeprefix("[value] ")) != os.getpid()
    [told] = model.requests[0].tools
    assert sorted(told.parameters["properties"]) == [*sorted({*arguments, "timeout"})]


def test_a_shell_on_a_folder_is_one_line(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "notes.txt").write_text("draft")
    write = call("run_command", command="cat /src/notes.txt; echo new > /src/more.txt")
    _, [found] = run(agent().enable_shell(folder=project), write)
    assert found == "draft\n[exit code 0]"
    assert (project / "more.txt").read_text() == "new\n"

    _, [found] = run(agent().enable_shell(folder=str(project), mode="ro"), write)
    assert found.endswith("\n[exit code 1]")


def test_a_database_is_queried_as_its_mode_says() -> None:
    made = agent().enable_sqlite("words.db", mode="rwc")
    run(made, call("query_database", sql="create table words (word text)"))
    query = "select count(*) as n from words"
    model, found = run(
        agent().enable_sqlite("words.db"),
        call("query_database", sql=query),
        call("query_database", sql="drop table words"),
    )

    assert offered(model) == ["query_database"]
    assert found[0] == {"n": 0}
    assert "readonly" in found[1] or "ToolError" in found[1]


# Shows E80
def test_an_explicit_host_runs_without_a_sandbox_and_the_events_say_so() -> None:
    code = call("run_python", code="import os\nos.getppid(), os.getpid()")
    with Engine("store") as engine:
        events: list[Any] = []
        engine.environments.subscribe(events.append)
        _, [found] = run(agent().enable_python(provider="host"), code, engine=engine)
        engine.environments.flush_events(60)

    value = json.loads(found.partition("[value] ")[2].partition("\n")[0])
    assert os.getpid() not in value[1:]
    assert [one.provider for one in events if one.event.endswith(".ready")] == ["host"]


# Shows E27
def test_a_tool_declares_its_environment_beside_its_function(toy: Toy) -> None:
    @tool(resources={"box": {"kind": "toy"}})
    def echo(box: Any, text: str) -> str:
        "Echo."
        return str(box.echo(text))

    def plain() -> int:
        "Plain."
        return 1

    model, found = run(agent(functions=[echo, plain]), call("echo", text="hi"), call("plain"))

    assert found == ["hi", 1]
    assert sorted(model.requests[0].tools[0].parameters["properties"]) == ["text"]
    assert (toy.opens, toy.releases) == (1, 1)


class Counter:
    """Tools that share a counter."""

    environments = ({"kind": "toy", "resource_key": "box"},)

    def __init__(self) -> None:
        self.count = 0

    @tool
    def raise_it(self, by: int, box: Any) -> int:
        "Raise the count."
        self.count += int(box.echo(by))
        return self.count

    def not_a_tool(self) -> None:
        raise AssertionError


def test_an_object_brings_its_methods_and_environments(toy: Toy) -> None:
    counter = Counter()
    model, found = run(agent().use_tools(counter), call("raise_it", by=2), call("raise_it", by=3))

    assert offered(model) == ["raise_it"]
    assert found == [2, 5]
    assert counter.count == 5
    assert toy.opens == 1


def test_what_is_no_tool_or_twice_there_is_refused() -> None:
    with pytest.raises(UsageError, match=r"agent 'Worker': .* is not a function"):
        agent().use_tools(object())
    with pytest.raises(UsageError, match="two tools named 'run_python'"):
        agent().enable_python().enable_python("other")
    with pytest.raises(UsageError, match="one server or a table of several"):
        agent().use_mcp()
    with pytest.raises(UsageError, match="two tools named 'mcp'"):
        agent().use_mcp(command=["a"]).use_mcp(command=["b"])
    with pytest.raises(UsageError, match="the scope 'session' and has no owner"):
        run(agent().enable_python(scope="session"), call("run_python", code="1"))
    with pytest.raises(UsageError, match="environment 'python': colour: unknown key"):
        run(agent().enable_python(colour="red"), call("run_python", code="1"))


@pytest.fixture
def address() -> Iterator[str]:
    with subprocess.Popen(
        [sys.executable, str(SDK_SERVER), "http"], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}/mcp"
        server.terminate()


@pytest.mark.endurance
# Shows E49
def test_a_server_over_http_and_a_table_of_it_and_one_on_standard_streams(address: str) -> None:
    over_http: dict[str, Any] = {"url": address}
    model, found = run(
        agent().use_mcp(name="sums", include=["add", "fail"], **over_http),
        call("sums.add", a=1, b=2),
        call("sums.fail"),
    )
    assert offered(model) == ["sums.add", "sums.fail"]
    assert found[0] == {"result": 3}
    assert found[1].startswith("Error: ToolError: fail: Error executing tool fail")

    table = {"left": {"command": COMMAND}, "right": over_http}
    model, found = run(
        agent().use_mcp(table, include=["add"]),
        call("left.add", a=1, b=2),
        call("right.add", a=3, b=4),
    )
    assert offered(model) == ["left.add", "right.add"]
    assert found == [{"result": 3}, {"result": 7}]


@pytest.mark.parametrize(
    ("use", "kept"),
    [
        ({"entry": {"exclude": ["delete_*"]}}, ["get", "list"]),
        ({"entry": {"exclude": ("delete_*", "list")}}, ["get"]),
        ({"entry": {"exclude": "delete_*"}}, ["get", "list"]),
        ({"entry": {"exclude": None}}, ["delete_all", "get", "list"]),
        ({"entry": {"exclude": ["list"]}, "exclude": ["delete_*"]}, ["get"]),
        ({"entry": {"include": ["*"], "exclude": ["get"]}, "exclude": "list"}, ["delete_all"]),
        ({"entry": {"exclude": ["delete_*"]}, "include": ["delete_all", "get"]}, ["get"]),
        ({"entry": {"include": "get"}}, ["get"]),
        ({"include": "g*", "entry": {}}, ["get"]),
        ({"exclude": "delete_*", "entry": {}}, ["get", "list"]),
    ],
)
def test_tools_of_a_server_are_withheld_wherever_that_is_said(
    use: dict[str, Any], kept: list[str]
) -> None:
    """In the entry of the server, for all servers, or both: a tool must pass each of them."""
    tools = Path("list.json").resolve()
    listed = [
        {"name": name, "inputSchema": {"type": "object"}} for name in ("get", "list", "delete_all")
    ]
    tools.write_text(json.dumps(listed))
    entry = {"command": [sys.executable, str(SERVER), str(tools)], **use.pop("entry")}
    model = ScriptedModel([{"calls": [call("box.delete_all")]}, {"text": "so"}])
    with using(model):
        MetaChain().run(agent().use_mcp({"box": entry}, **use), ASK)

    assert offered(model) == [f"box.{name}" for name in kept]
    assert tools.with_suffix(".called").exists() == ("delete_all" in kept)


def test_what_a_server_shall_offer_is_said_once() -> None:
    with pytest.raises(UsageError, match="entry of the server 'box' has an 'include'"):
        agent().use_mcp({"box": {"url": "http://x", "include": ["a"]}}, include=["b"])


# Shows E78
def test_a_search_service_is_asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY_OF_ADA", "s3cr3t-value")
    with serving() as service:
        made = (
            agent()
            .enable_python()
            .enable_web_search("tavily", url=service.url, api_key="secret:KEY_OF_ADA", count=1)
        )
        with Engine("store") as engine:
            model, [found] = run(made, call("web_search", query="cats"), engine=engine)

    assert offered(model) == ["run_python", "web_search"]
    assert found.split("\n")[1:2] == ["https://example.com/0"]
    assert service.asked[0]["key"] == "Bearer s3cr3t-value"
    stored = b"".join(stored_in("store").values())
    assert b"s3cr3t-value" not in stored


def test_secrets_of_a_server_are_references(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN_OF_ADA", "s3cr3t-value")
    nasty = Path(__file__).parents[1] / "envs" / "mcp" / "nasty_server.py"
    made = agent().use_mcp(
        name="box", command=[sys.executable, str(nasty)], env={"TOKEN": "secret:TOKEN_OF_ADA"}
    )
    with Engine("store") as engine:
        _, [found] = run(made, call("box.env"), engine=engine)

    assert "TOKEN" in json.dumps(found)
    assert "s3cr3t-value" not in json.dumps(found)
    stored = b"".join(stored_in("store").values())
    assert b"s3cr3t-value" not in stored


def test_examples_need_no_manager_but_the_one_about_health_and_reuse() -> None:
    examples = Path(__file__).parents[2] / "examples"
    naming = [one for one in examples.rglob("*.py") if "execution_environment" in one.read_text()]

    assert [str(one.relative_to(examples)) for one in naming] == ["environments/health.py"]
