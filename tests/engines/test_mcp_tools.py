"""MCP tools in flows: called by name, in one session per execution.

See docs/language.md: tools.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine, load
from flowengine.errors import FlowFileError
from flowengine.sdk.environments import VARIABLE
from flowengine.sdk.processes import marked
from flowengine.telemetry.spans import trace_of
from flowengine_envs.sandboxes.processes import has
from tests.received import RECEIVED
from tests.stored_data import stored_in

SERVER = Path(__file__).parents[1] / "envs" / "mcp" / "nasty_server.py"
COMMAND = f"{[sys.executable, str(SERVER), 'more']}"
TOOLS = f"tools: {{box: {{mcp: {{command: {COMMAND}}}}}}}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(flow: str, name: str = "flow") -> None:
    Path(f"{name}.yaml").write_text(f"flowengine: 1\nid: {name}\n{flow}")


def run(flow: str) -> Any:
    """Run a flow in a new engine, and check that no server process survives it."""
    write(flow)
    with Engine("store") as engine:
        result = engine.run("flow.yaml", id="it")
        assert engine.environments.written() == []
    assert [pid for pid in marked(VARIABLE) if _works_here(pid)] == []
    return result


def _works_here(pid: int) -> bool:
    """Return whether a process works in this test's folder, as other tests run servers too."""
    try:
        return Path(f"/proc/{pid}/cwd").resolve() == Path.cwd()
    except OSError:
        return False


def check(flow: str) -> list[str]:
    """Return the diagnostics of the flow. No server is started."""
    write(flow)
    with Engine("store") as engine, pytest.raises(FlowFileError) as error:
        engine.run("flow.yaml")
    assert all(one.line for one in error.value.diagnostics)
    return [f"{one.message}; {one.hint}" for one in error.value.diagnostics]


def test_steps_of_an_execution_share_one_session() -> None:
    """The server counts its calls, and text, data and binary parts are returned."""
    result = run(
        TOOLS
        + """
steps:
  - {id: one, call: box.data, with: {a: 1, b: [x]}}
  - {id: picture, call: box.picture}
  - id: inner
    group: [{id: count, call: box.count}]
outputs:
  data: "${{ steps.one.output }}"
  picture: "${{ steps.picture.output }}"
  count: "${{ steps.inner.output }}"
"""
    )

    assert result.outputs["data"] == {"a": 1, "b": ["x"]}
    assert result.outputs["count"] == "3"
    text, image = result.outputs["picture"]
    assert text == {"type": "text", "text": "UE5H"}
    assert (image["mimeType"], image["file"]["size"]) == ("image/png", 3)
    assert Path(image["file"]["path"]).read_bytes() == b"PNG"


def test_what_a_tool_says_of_its_failure_is_an_error_to_route() -> None:
    result = run(
        TOOLS
        + """
steps:
  - {id: bad, call: box.fail, on_error: [{type: ToolError, output: "${{ error }}"}]}
  - {id: typo, call: box.cuont, on_error: [{output: "${{ error }}"}]}
outputs: {bad: "${{ steps.bad.output }}", typo: "${{ steps.typo.output.message }}"}
"""
    )

    bad = result.outputs["bad"]
    assert (bad["type"], bad["message"]) == ("ToolError", "fail: hang")
    assert bad["data"]["content"] == [{"type": "text", "text": "hang"}]
    assert "there is no tool 'cuont'; did you mean 'count'?" in result.outputs["typo"]


def test_a_server_that_is_lost_fails_the_step_and_the_next_one_has_another() -> None:
    result = run(
        TOOLS
        + """
steps:
  - {id: die, call: box.die, on_error: [{type: EnvironmentLost, output: lost}]}
  - {id: count, call: box.count}
outputs: {how: "${{ steps.die.output }}", count: "${{ steps.count.output }}"}
"""
    )

    assert result.outputs == {"how": "lost", "count": "1"}


def test_nothing_is_started_that_no_step_calls() -> None:
    result = run(
        """
tools: {box: {mcp: {command: [no-such-program]}}}
steps:
  - {id: a, next: {first: [{when: "${{ 1 > 2 }}", to: b}, {else: end}]}}
  - {id: b, call: box.count}
"""
    )

    assert result.status == "succeeded"


def test_what_the_flow_fixes_and_secrets_reach_the_server_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TOKEN", "SEKRET")
    result = run(
        f"""
secrets: {{TOKEN: {{env: TOKEN}}}}
tools:
  box:
    mcp: {{command: {COMMAND}, env: {{KEY: "k-${{{{ secrets.TOKEN }}}}"}}}}
    bind: {{who: "${{{{ secrets.TOKEN }}}}", size: 2}}
steps:
  - {{id: env, call: box.env}}
  - {{id: data, call: box.data, with: {{a: 1}}}}
outputs: {{env: "${{{{ steps.env.output }}}}", data: "${{{{ steps.data.output }}}}"}}
"""
    )

    assert '"KEY": "k-***"' in result.outputs["env"]
    assert result.outputs["data"] == {"a": 1, "who": "***", "size": 2}
    for name, data in stored_in("store").items():
        assert b"SEKRET" not in data, name


def test_a_server_may_be_a_declared_environment() -> None:
    """The declaration then sets its scope: here each item of a map has its own."""
    result = run(
        f"""
environments: {{server: {{kind: mcp, scope: region, config: {{command: {COMMAND}}}}}}}
tools:
  safe: {{mcp: {{in: server, include: [count]}}, effect: pure}}
  other: {{mcp: {{in: server, exclude: [count]}}}}
steps:
  - id: each
    map: {{over: [1, 2]}}
    group: [{{id: a, call: safe.count}}, {{id: b, call: other.data}}, {{id: c, call: safe.count}}]
outputs: {{counts: "${{{{ steps.each.output }}}}"}}
"""
    )

    assert result.outputs["counts"] == ["3", "3"]


def test_several_servers_are_one_tool() -> None:
    servers = f"{{a: {{command: {COMMAND}}}, b: {{command: {COMMAND}}}}}"
    result = run(
        f"""
tools: {{both: {{mcp: {{servers: {servers}}}}}}}
steps:
  - {{id: one, call: both.a.count}}
  - {{id: two, call: both.b.count}}
outputs: {{counts: ["${{{{ steps.one.output }}}}", "${{{{ steps.two.output }}}}"]}}
"""
    )

    assert result.outputs["counts"] == ["1", "1"]


def test_a_server_of_an_imported_file_is_shared_with_its_flows() -> None:
    write(
        TOOLS
        + "flows:\n  child:\n    steps: [{id: a, call: box.count}]\n"
        + '    outputs: {n: "${{ steps.a.output }}"}\n',
        "lib",
    )
    result = run(
        """
imports: {lib: ./lib.yaml}
steps:
  - {id: mine, call: lib.box.count}
  - {id: theirs, flow: lib.child}
outputs: {mine: "${{ steps.mine.output }}", theirs: "${{ steps.theirs.output.n }}"}
"""
    )

    assert result.outputs == {"mine": "1", "theirs": "2"}


STEP = "steps: [{id: a, call: %s}]\n"


@pytest.mark.parametrize(
    ("tool", "call", "said"),
    [
        ("{mcp: {command: x}}", "box", "name one of its tools: box.TOOL"),
        ("{mcp: {command: x}}", "bxo.count", "there is no tool 'bxo.count'"),
        ("{mcp: {command: x, include: ['get_*']}}", "box.count", "'include' has get_*"),
        ("{mcp: {command: x, exclude: ['c*']}}", "box.count", "ruled out by 'exclude'"),
        ("{mcp: {comand: x}}", "box.count", "did you mean 'command'"),
        ("{mcp: {command: x, url: 'http://a'}}", "box.count", "but only one is allowed"),
        ("{mcp: {url: 'ftp://a'}}", "box.count", "must be text that matches"),
        ("{mcp: {servers: {a: {urll: x}}}}", "box.a.count", "did you mean 'url'"),
        ("{mcp: {command: x}, args: {type: object}}", "box.count", "has no 'args'"),
        ("{mcp: {in: db}}", "box.count", "a server of tools is of kind 'mcp'"),
        ("{mcp: {in: bd}}", "box.count", "there is no environment 'bd'"),
        ("{mcp: {command: x}, retry: 3}", "box.count", "its effect is once"),
    ],
)
def test_faults_are_told_without_a_server(tool: str, call: str, said: str) -> None:
    told = check(
        f"environments: {{db: {{kind: sqlite, config: {{path: a.db}}}}}}\n"
        f"tools: {{box: {tool}}}\n" + STEP % call
    )

    assert any(said in one for one in told), told


def test_it_may_be_repeated_only_if_the_flow_says_so() -> None:
    """The server's annotations arrive late and are untrusted, so a crash leads to a question."""
    write(
        TOOLS.replace("}}}\n", "}, effect: pure}}\n")
        + "steps: [{id: a, call: box.count}, {id: b, call: box.count, effect: once}]\n"
    )
    assert effects() == ["pure", "once"]
    write(TOOLS + "steps: [{id: a, call: box.count}]\n")
    assert effects() == ["once"]


def effects() -> list[str]:
    return [step["effect"] for step in load("flow.yaml").compiled["steps"]]


@pytest.mark.parametrize(
    ("server", "place"),
    [
        ("{command: [npx, -y, some-server]}", ""),
        ("{command: npx, args: [some-server]}", ""),
        ("{command: [/opt/node/bin/npx, some-server]}", ""),
        ("{command: [npm, exec, --yes, some-server]}", ""),
        ("{command: [uv, --quiet, tool, run, some-server]}", ""),
        ("{command: [deno, run, 'npm:some-server']}", ""),
        ("{command: [env, A=1, uvx, some-server]}", ""),
        ("{command: [sh, -c, 'cd / && exec bunx some-server']}", ""),
        ("{command: ['${{ inputs.program }}']}", ""),
        ("{command: [sh, -c, '${{ inputs.program }}']}", ""),
        ("{servers: {a: {command: mine}, b: {command: [uvx, some-server]}}}", ""),
        ("{servers: {a: {url: 'http://a.example'}}}", ""),
        ("{url: 'http://a.example'}", ""),
        ("{command: mine, provider: docker}", ""),
        ("{command: mine}", "server box"),
        ("{command: [mine, '${{ inputs.program }}']}", "server box"),
        ("{command: [uv, run, mine]}", "server box"),
        ("{command: [npx, some-server], provider: host}", "server box"),
        ("{command: mine, provider: [docker, host]}", "server box (if no sandbox starts)"),
    ],
)
def test_fetched_servers_run_in_a_sandbox_and_those_on_the_host_are_named(
    server: str, place: str
) -> None:
    write(
        "inputs: {program: {type: string, default: mine}}\n"
        f"tools: {{box: {{mcp: {server}}}}}\nsteps: [{{id: a, call: box.count}}]\n"
    )

    assert load("flow.yaml").on_host == place


@pytest.mark.skipif(not has("bwrap"), reason="no bubblewrap")
def test_a_server_in_a_sandbox_sees_the_folders_that_its_tool_mounts(folder: Path) -> None:
    (folder / "own").mkdir()
    shutil.copy(SERVER, folder / "own")
    result = run(
        """
environments: {own: {kind: files, config: {path: own, mode: ro}}}
tools:
  box:
    mcp: {command: [python3, /srv/nasty_server.py], mounts: {own: /srv}, provider: namespace}
steps: [{id: a, call: box.env}]
outputs: {variables: "${{ steps.a.output }}"}
"""
    )

    assert json.loads(result.outputs["variables"])["HOME"] == "/home/flow"


@pytest.mark.parametrize(
    ("server", "told"),
    [
        ("{url: 'http://a.example', provider: docker}", "there is no provider 'docker' for 'mcp'"),
        ("{command: x, provider: dokcer}", "did you mean 'docker'"),
        ("{command: x, provider: '${{ inputs.p }}'}", "'provider' takes no expression"),
        ("{command: x, policy: {netwrok: none}}", "did you mean 'network'"),
        ("{command: x, mounts: {none: /srv}}", "there is no environment 'none'"),
        ("{in: own, provider: docker}", "'provider' belongs to the environment that 'in'"),
        ("{in: own, env: {A: '1'}}", "'env' belongs to the environment that 'in' names"),
    ],
)
def test_what_is_wrong_with_the_sandbox_of_a_server_is_reported(server: str, told: str) -> None:
    own = "environments: {own: {kind: mcp, config: {command: x}}}\n"
    inputs = "inputs: {p: {type: string, default: host}}\n"
    tools = f"tools: {{box: {{mcp: {server}}}}}\n"
    found = check(f"{inputs}{own}{tools}steps: [{{id: a, call: box.count}}]")

    assert any(re.search(told, one) for one in found), found


def test_a_call_continues_the_trace() -> None:
    """In `_meta`, as the protocol's own conventions for OpenTelemetry name it."""
    write(f"""{TOOLS}steps: [{{id: one, call: box.data, with: {{show_meta: true}}}}]
outputs: {{meta: "${{{{ steps.one.output.meta }}}}"}}
""")
    with Engine(None) as engine:
        engine.carry_traces(True)
        outputs = engine.run("flow.yaml", id="it").outputs
    assert outputs is not None
    _, trace, span, _ = outputs["meta"]["traceparent"].split("-")
    assert (trace, len(span)) == (trace_of("it", {}), 16)


RAW = """
import json, sys

def say(text):
    sys.stdout.buffer.write(text.encode("utf-8") + b"\\n")
    sys.stdout.flush()

tools = [{"name": "raw", "inputSchema": {"type": "object"}}]
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    head = '{"jsonrpc": "2.0", "id": %s, "result": ' % json.dumps(asked["id"])
    if asked["method"] == "initialize":
        about = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
        say(head + json.dumps({**about, "serverInfo": {"name": "raw", "version": "1"}}) + "}")
    elif asked["method"] == "tools/list":
        say(head + json.dumps({"tools": tools}) + "}")
    elif asked["method"] != "tools/call":
        error = {"code": -32601, "message": "no such method"}
        say(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": error}))
    else:
        given = asked["params"]["arguments"]
        text = json.dumps({"type": "text", "text": "done"})
        start = "\\ufeff" if given["marked"] else ""
        say(start + head + '{"content": [%s], "structuredContent": %s}}' % (text, given["body"]))
"""


def test_answers_are_read_as_they_are_meant(folder: Path) -> None:
    (folder / "raw.py").write_text(RAW)
    command = [sys.executable, str(folder / "raw.py")]
    flow = {
        "flowengine": 1,
        "id": "flow",
        "tools": {"box": {"mcp": {"command": command}}},
        "steps": [
            {
                "id": name,
                "call": "box.raw",
                "with": {"body": case.text, "marked": case.encoding == "utf-8-sig"},
            }
            for name, case in RECEIVED.items()
            if "utf_" not in name
        ],
    }
    Path("flow.yaml").write_text(json.dumps(flow))
    with Engine("store") as engine:
        result = engine.run("flow.yaml", id="it")
        assert result.error is None
        for step in engine.show("it")["steps"]:
            case = RECEIVED[step["address"]]
            output = engine.show("it", step=step["address"])["steps"][0]["output"]
            assert output == {"v": case.value}, step["address"]
