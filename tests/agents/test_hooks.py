# Shows G6
"""Hooks of agents over crashes (G6). `hook_results.cases.yaml` has all that they may return."""

from __future__ import annotations

from pathlib import Path

from flowengine import Engine
from flowengine.agents.models.registry import register, unregister
from tests.agents.crashes import crashed, gone_on
from tests.agents.flows import BEGIN, NAME, Case, call, flow
from tests.testing.faulty_store import FaultyStore

HEAD = f"""{BEGIN}tools:
  add: {{python: "tools:add", effect: idempotent}}
  before: {{python: "tools:before", effect: pure}}
  after: {{python: "tools:after", effect: pure}}
  begin: {{python: "tools:begin", effect: pure}}
  reply: {{python: "tools:reply", effect: pure}}
"""
TOOLS = """
from pathlib import Path

def note(line):
    with open(Path(__file__).with_name("called.txt"), "a") as file:
        file.write(line + "\\n")

def add(a: int, b: int) -> int:
    "Add."
    note(f"add {a} {b}")
    return a + b

def before(tool: str, arguments: dict) -> object:
    note(f"before {tool} {arguments}")
    return {"arguments": {"a": 5, "b": 2}}

def after(tool: str, result: object, error: str | None) -> object:
    note(f"after {tool} {result!r} {error}")
    return {"answer": "seven"}

def begin(turn: int, tokens: int, prompt: str) -> None:
    note(f"begin {turn} {prompt}")

def reply(text: str, calls: list, turn: int) -> None:
    note(f"reply {turn} {text!r} {[one['tool'] for one in calls]}")
"""
AGENT = """
first:
  instructions: You add.
  tools: [add]
  hooks:
    - {before: turn, call: begin}
    - {after: turn, call: reply}
    - {before: call, call: before}
    - {after: call, call: after}
"""


def case(folder: Path) -> Case:
    folder.mkdir()
    (folder / "tools.py").write_text(TOOLS)
    script = [{"calls": [call("add", "c1", a=1, b=2)]}, {"text": "so"}]
    return Case(folder, flow(AGENT, head=HEAD), script, by_turn=True)


def test_a_crash_at_any_write_repeats_nothing_and_decides_nothing_anew(tmp_path: Path) -> None:
    calm = case(tmp_path / "calm")
    register(NAME, calm.model)
    try:
        store = FaultyStore()
        with Engine(store, workdir=calm.folder) as engine:
            assert engine.run(calm.path).status == "succeeded"
        for write in range(1, store.writes):
            one = case(tmp_path / str(write))
            register(NAME, one.model)
            there = crashed(one, write, "die before" if write % 2 else "die after")
            before = next((line for line in one.called if line.startswith("add")), None)
            result = gone_on(one, there)
            assert result.status == "succeeded", write
            assert one.sent(len(one.model.requests) - 1)[-1]["content"] == "seven"
            assert before in (None, "add 5 2")
            # a pure or idempotent step that was cut off may run again, one that ended may not
            for line in {*one.called}:
                assert one.called.count(line) <= 2, (write, line)
            assert sum(one.called.count(line) - 1 for line in {*one.called}) <= 1, write
    finally:
        unregister(NAME)
