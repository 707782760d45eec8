"""`limits` of tools: the size of results, for the steps of a flow.

See docs/language.md: tools. tests/agents/test_limited_tools.py covers agents.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine, load
from flowengine.errors import FlowFileError

SERVER = Path(__file__).parents[1] / "envs" / "mcp" / "nasty_server.py"
TOOLS = """
import flowengine

def text(n: int) -> str:
    return "ä" * n

@flowengine.quick
def many(n: int) -> list[int]:
    return [7] * n

def told(n: int, key: str) -> str:
    return "x" * n + key
"""

MADE = """
def text(n: int) -> str:
    with open("made.txt", "a") as file:
        file.write("!")
    return "x" * n
"""
SERVED = """
flowengine: 1
id: f
tools:
  box: {mcp: {command: COMMAND}, limits: {output: 5}}
  say: {shell: [echo, hello], limits: {output: 5}}
steps:
  - {id: a, call: box.big, with: {size: 6}, on_error: [{output: "${{ error.type }}"}]}
  - {id: b, call: say, on_error: [{output: "${{ error.type }}"}]}
outputs: {o: "${{ [steps.a.output, steps.b.output] }}"}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KEY", "c4n4ry")
    Path("tools.py").write_text(TOOLS)


def run(tool: str, n: int, more: str = "") -> Any:
    Path("flow.yaml").write_text(
        f"flowengine: 1\nid: f\nsecrets: {{KEY: {{env: KEY}}}}\ntools: {{t: {tool}}}\n"
        f"steps: [{{id: a, call: t, with: {{n: {n}}}{more}}}]\n"
        "outputs: {o: '${{ steps.a.output }}'}\n"
    )
    with Engine("store") as engine:
        return engine.run("flow.yaml")


@pytest.mark.parametrize(
    ("tool", "fits", "size"),
    [
        ('{python: "tools:text", limits: {output: 100}}', 50, 2),
        ('{python: "tools:many", limits: {output: 0.1kB}}', 33, 2),
    ],
)
def test_what_fits_is_the_result_and_what_is_larger_fails_and_is_kept(
    tool: str, fits: int, size: int
) -> None:
    whole = run(tool, fits)
    assert whole.status == "succeeded"
    assert len(whole.outputs["o"]) == fits

    failed = run(tool, fits + 1)
    assert failed.error["type"] == "LimitExceeded"
    data = failed.error["data"]
    assert (data["limit"], data["value"]) == ("output", 100)
    assert data["size"] == 100 + size
    assert Path(data["file"]["path"]).stat().st_size == 100 + size
    assert "limits.output" in failed.error["message"]


def test_an_error_handler_finds_the_file() -> None:
    more = ", on_error: [{type: [LimitExceeded], output: '${{ error.data.file.size }}'}]"
    assert run('{python: "tools:text", limits: {output: 10B}}', 100, more).outputs == {"o": 200}


def test_the_kept_file_holds_no_secret_and_it_is_the_masked_text_that_counts() -> None:
    tool = '{python: "tools:told", bind: {key: "${{ secrets.KEY }}"}, limits: {output: 13}}'
    assert run(tool, 10).outputs == {"o": "x" * 10 + "***"}
    kept = Path(run(tool, 20).error["data"]["file"]["path"])
    assert kept.read_text() == "x" * 20 + "***"


def test_a_call_that_is_too_large_is_not_made_again() -> None:
    Path("tools.py").write_text(MADE)
    tool = '{python: "tools:text", effect: idempotent, retry: 3, limits: {output: 10}}'
    assert run(tool, 11).status == "failed"
    assert Path("made.txt").read_text() == "!"


def test_tools_of_a_server_and_commands_have_them_as_well() -> None:
    command = f"{[sys.executable, str(SERVER)]}"
    Path("flow.yaml").write_text(SERVED.replace("COMMAND", command))
    with Engine("store") as engine:
        result = engine.run("flow.yaml")
    assert result.outputs == {"o": ["LimitExceeded", "LimitExceeded"]}, result.error


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ("{output: many}", "expected a size such as 64KiB, got 'many'"),
        ("{output: 0}", "expected a size above 0, got the number 0"),
        ("{output: true}", "expected a size such as 64KiB, got the boolean true"),
        ("{output: 1.5}", "expected a size such as 64KiB, got the number 1.5"),
        ("{outputs: 1}", "unknown key 'outputs' in 'limits' of a tool"),
    ],
)
def test_what_is_no_limit_is_refused(limits: str, message: str) -> None:
    with pytest.raises(FlowFileError) as error:
        run(f'{{python: "tools:text", limits: {limits}}}', 1)
    [found] = error.value.diagnostics
    assert found.message == message
    assert found.line == 4


@pytest.mark.parametrize("what", ["flow: other", "agent: one"])
def test_what_runs_a_flow_has_none(what: str) -> None:
    Path("flow.yaml").write_text(
        "flowengine: 1\nid: f\ndefaults: {model: scripted/x}\n"
        "agents: {one: {instructions: x}}\n"
        "flows: {other: {steps: [{id: o, output: 1}]}}\n"
        f"tools: {{t: {{{what}, limits: {{output: 5}}}}}}\n"
        "steps: [{id: a, call: t}]\n"
    )
    with pytest.raises(FlowFileError) as error:
        load("flow.yaml")
    assert any("has no 'limits'" in one.message for one in error.value.diagnostics)
