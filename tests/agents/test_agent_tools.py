"""Agents' tools: their arguments, their effects on the agent, and how calls run."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from tests.agents.flows import HEAD, Case, call, flow, told

AGENT = "first: {instructions: You count., tools: [put, get, plain]}"
COUNTING = """
flowengine: 1
id: f
inputs: {q: {type: string, default: Count.}}
defaults: {model: scripted/test}
tools:
  put: {python: "tools:put"}
  get: {python: "tools:get"}
  plain: {python: "tools:plain"}
"""
TOOLS = """
import socket
from flowengine.agents import Result

def put(k: int, live: bool = False) -> Result:
    "Put."
    value = socket.socket() if live else k
    try:
        return Result(value="put", context_variables={"k": value})
    finally:
        if live:
            value.close()

def get(context_variables: dict) -> str:
    "Get."
    context_variables["hidden"] = "changed in place"
    return f"{context_variables.get('k')} {context_variables.get('user')}"

def plain(a: int = 0) -> str:
    "Plain."
    return "plain"
"""
STEPS = """
steps:
  - {id: ask, agent: first, with: {prompt: "${{ inputs.q }}", context: {user: ada}}}
"""


def counting(folder: Path, script: list[object]) -> Case:
    (folder / "tools.py").write_text(TOOLS)
    return Case(folder, flow(AGENT, STEPS, COUNTING), script)


# Shows M16, M19, M20
def test_context_is_given_to_tools_that_ask_for_it_and_changed_by_results(tmp_path: Path) -> None:
    case = counting(
        tmp_path,
        [
            {"calls": [call("get"), call("put", k=1), call("plain")]},
            {"calls": [call("get")]},
            {"text": "so"},
        ],
    )

    assert case.run().status == "succeeded"
    assert [one["content"] for one in case.sent(1)[-3:]] == ["None ada", "put", "plain"]
    assert case.sent(2)[-1]["content"] == "1 ada"
    offered = {one.name: one.parameters for one in case.model.requests[0].tools}
    assert "context_variables" not in offered["get"].get("properties", {})


# Shows M19, M20
def test_changes_of_one_reply_are_merged_in_call_order(tmp_path: Path) -> None:
    script = [
        {"calls": [call("put", k=1), call("put", k=2)]},
        {"calls": [call("get")]},
        {"text": ""},
    ]
    case = counting(tmp_path, [*script[:2], {"text": "so"}])

    case.run()

    assert case.sent(2)[-1]["content"] == "2 ada"


# Shows M18
def test_a_model_cannot_give_the_context(tmp_path: Path) -> None:
    wrong = call("get", context_variables={"k": 9})
    case = counting(tmp_path, [{"calls": [wrong]}, {"text": "so"}])

    assert case.run().status == "succeeded"
    assert "context_variables" in case.sent(1)[-1]["content"]
    assert "9" not in case.sent(1)[-1]["content"].partition("\n")[0]


# Shows M21
def test_only_plain_data_is_kept_in_the_context(tmp_path: Path) -> None:
    script = [{"calls": [call("put", k=1, live=True)]}, {"calls": [call("get")]}, {"text": "so"}]
    case = counting(tmp_path, script)

    assert case.run().status == "succeeded"
    assert "'k' is a socket" in case.sent(1)[-1]["content"]
    assert case.sent(2)[-1]["content"] == "None ada"


# Shows M29
def test_an_image_is_a_message_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(
        "from flowengine.agents import Result\n"
        "def add(a: int):\n    'Add.'\n    return Result(value='drawn', image=b'\\x89PNG')\n"
        "def boom(): 'No.'\n"
    )
    agent = "first: {instructions: You draw., tools: [add]}"
    case = Case(tmp_path, flow(agent), [{"calls": [call("add", a=1)]}, {"text": "so"}])

    case.run()

    tool, image = case.sent(1)[-2:]
    assert tool["content"] == "drawn"
    assert image["content"][1]["image_url"]["url"] == "data:image/png;base64,iVBORw=="
    journal = "".join(str(each) for each in case.journal())
    assert "iVBORw" not in journal
    assert f"artifact:{sha256(bytes([0x89]) + b'PNG').hexdigest()}" in journal


# Shows M25
def test_a_tool_that_overruns_its_timeout_is_told(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(
        "import asyncio\nasync def add(a: int):\n    'Add.'\n    await asyncio.Event().wait()\n"
        "def boom(): 'No.'\n"
    )
    head = HEAD.replace('"tools:add"}', '"tools:add", timeout: 200ms}')
    agent = "first: {instructions: You wait., tools: [add]}"
    case = Case(tmp_path, flow(agent, head=head), [{"calls": [call("add", a=1)]}, {"text": "so"}])

    assert case.run().outputs["answer"] == "so"
    assert "Timeout" in case.sent(1)[-1]["content"]


@pytest.mark.parametrize("error", ["SystemExit(3)", "asyncio.CancelledError()"])
# Shows M25
def test_a_tool_that_ends_itself_is_told(tmp_path: Path, error: str) -> None:
    (tmp_path / "tools.py").write_text(
        f"import asyncio\ndef add(a: int):\n    'Add.'\n    raise {error}\ndef boom(): 'No.'\n"
    )
    agent = "first: {instructions: You end., tools: [add]}"
    case = Case(tmp_path, flow(agent), [{"calls": [call("add", a=1)]}, {"text": "so"}])

    assert case.run().outputs["answer"] == "so"
    assert error.partition("(")[0].rpartition(".")[2] in case.sent(1)[-1]["content"]


PARALLEL = """
import asyncio, threading
busy, most = 0, 0
async def add(a: int) -> int:
    "Add."
    global busy, most
    busy += 1
    most = max(most, busy)
    await asyncio.sleep(0)
    for _ in range(ROUNDS):
        if most > 1:
            break
        await asyncio.sleep(0.002)
    busy -= 1
    return a * 10 + most
def boom(): 'No.'
"""


@pytest.mark.parametrize(
    ("tool", "agent", "together"),
    [(", parallel: true", "", 2), ("", "", 1),
     (", parallel: true", ", parallel_tool_calls: false", 1)],
)  # fmt: skip
# Shows M23
def test_calls_run_together_where_their_tools_may(
    tmp_path: Path, tool: str, agent: str, together: int
) -> None:
    rounds = 10_000 if together > 1 else 50  # waits for the other call, if there is one
    (tmp_path / "tools.py").write_text(PARALLEL.replace("ROUNDS", f"{rounds}"))
    head = HEAD.replace('"tools:add"}', f'"tools:add"{tool}}}')
    agents = f"first: {{instructions: You add., tools: [add]{agent}}}"
    calls = [call("add", "c1", a=1), call("add", "c2", a=2)]
    case = Case(tmp_path, flow(agents, head=head), [{"calls": calls}, {"text": "so"}])

    case.run()

    assert told(case.sent(1))[-2:] == [("tool", f"{10 + together}"), ("tool", f"{20 + together}")]


FLOW_TOOL = """
flowengine: 1
id: f
inputs: {q: {type: string, default: Greet Ana.}}
defaults: {model: scripted/test}
tools:
  greet: {flow: hello, description: Greets somebody}
flows:
  hello:
    inputs: {who: {type: string}}
    steps: [{id: say, output: "Hello, ${{ inputs.who }}"}]
    outputs: {text: "${{ steps.say.output }}"}
"""


def test_a_flow_is_a_tool_also_one_in_which_nothing_can_fail(tmp_path: Path) -> None:
    agents = "first: {instructions: You greet., tools: [greet]}"
    calls = [call("greet", "c1", who="Ana"), call("greet", "c2")]
    case = Case(tmp_path, flow(agents, head=FLOW_TOOL), [{"calls": calls}, {"text": "so"}])

    case.run()

    greeted, refused = told(case.sent(1))[-2:]
    assert greeted == ("tool", '{"text":"Hello, Ana"}')
    assert "required" in refused[1]


DOLLARS = """
flowengine: 1
id: f
defaults: {model: scripted/test}
tools:
  add: {python: "tools:add", description: "Add: $${{ a }} and $${{ b }}"}
  list:
    shell: {argv: [ls], in: host}
    args: {properties: {where: {type: string, description: "As in $${{ here }}"}}}
  ask: {agent: second}
  doc: {python: "documented:doc"}
agents:
  first:
    instructions: Say $${{ x }}.
    tools: [add, list, ask, doc]
    handoffs: [second]
  second: {instructions: Do., description: "Knows $${{ y }}"}
steps: [{id: ask, agent: first, with: {prompt: hi}}]
outputs: {a: "${{ steps.ask.output }}"}
"""


def test_models_are_told_of_expressions_as_they_are_meant(tmp_path: Path) -> None:
    (tmp_path / "documented.py").write_text(
        "def doc(a: str) -> str:\n"
        '    """Fill in ${{ a }}; $${{ is how to write it."""\n'
        "    return a\n"
    )
    case = Case(tmp_path, DOLLARS, [{"text": "so"}])
    assert case.run().status == "succeeded"
    [request] = case.model.requests
    tools = {one.name: one for one in request.tools}
    assert tools["add"].description == "Add: ${{ a }} and ${{ b }}"
    assert tools["list"].parameters["properties"]["where"]["description"] == "As in ${{ here }}"
    assert tools["ask"].description == "Knows ${{ y }}"
    assert "Knows ${{ y }}" in tools["transfer_to_second"].description
    assert tools["doc"].description == "Fill in ${{ a }}; $${{ is how to write it."
    assert "Say ${{ x }}." in str(request.messages[0]["content"])


@pytest.mark.parametrize("tool", ["plus", "add", "plu*", "tools:add"])
def test_a_tool_with_another_name_is_known_by_both_to_rules(tmp_path: Path, tool: str) -> None:
    agent = "first: {instructions: You add., tools: [{tool: add, as: plus}]}"
    head = f"{HEAD.strip()}\npolicies: [{{ask: '{tool}'}}]\n"
    script = [{"calls": [call("plus", "c1", a=1, b=2)]}, {"text": "3"}]
    case = Case(tmp_path, flow(agent, head=head), script)

    [wait] = case.run().waits

    assert case.offered(0) == ["plus"]
    assert (wait["tool"], case.called) == ("plus", [])
    with case.engine_open() as engine:
        engine.approvals.approve(wait["id"])
    assert case.called == ["add 1 2"]
    assert told(case.sent(1))[-1] == ("tool", "3")
