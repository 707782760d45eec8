# Shows G11
"""Checks beside the request to a model (G11): what overlaps, and what a tripwire stops."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flowengine import Agent, Engine, Runner, TextPart
from flowengine.agents.models.registry import register, unregister
from flowengine.errors import FlowFileError
from flowengine.telemetry.spans import recorded_spans
from flowengine.testing import scripted
from tests.agents.crashes import crashed, gone_on
from tests.agents.flows import BEGIN, NAME, STEPS, Case, call, flow, told
from tests.agents.models.wire import Answer, Wire, replied, streamed
from tests.rows import each_row
from tests.testing.faulty_store import FaultyStore

HEAD = f"""{BEGIN}tools:
  add: {{python: "tools:add", effect: idempotent}}
  polite: {{python: "tools:polite", effect: pure}}
  begin: {{python: "tools:begin"}}
  brief: {{python: "tools:brief", effect: pure}}
"""
TOOLS = """
import time
from pathlib import Path

HERE = Path(__file__).parent

def brief(answer: str) -> None:
    pass

def note(line):
    with open(HERE / "called.txt", "a") as file:
        file.write(line + "\\n")

def until(name):
    for _ in range(6000):
        if (HERE / name).exists():
            return
        time.sleep(0.01)
    raise TimeoutError(name)

def add(a: int, b: int) -> int:
    "Add."
    note(f"add {a} {b}")
    return a + b

def polite(prompt: str) -> None:
    note("check begins")
    if (HERE / "waits").exists():
        until((HERE / "waits").read_text())
    note("check ends")
    if "damn" in prompt:
        raise ValueError("mind your words")

def begin(turn: int) -> None:
    pass
"""
CALLS = {"calls": [call("add", "c1", a=1, b=2)]}
BESIDE = "[{before: polite, parallel: true}]"


def agent(checks: str = BESIDE, more: str = "") -> str:
    return f"first:\n  instructions: You add.\n  tools: [add]\n  checks: {checks}\n{more}"


def case(
    folder: Path,
    script: list[Any],
    text: str = agent(),
    head: str = HEAD,
    steps: str = STEPS,
    *,
    by_turn: bool = False,
) -> Case:
    folder.mkdir(exist_ok=True)
    (folder / "tools.py").write_text(TOOLS)
    return Case(folder, flow(text, steps, head), script, by_turn=by_turn)


@pytest.fixture
def slow(tmp_path: Path) -> Case:
    """Return a flow whose check waits until the provider has received the request."""
    one = case(tmp_path, [], head=HEAD.replace(NAME, "openai/gpt-4o"))
    (tmp_path / "waits").write_text("asked")
    return one


def asked(case: Case, answer: Answer) -> Any:
    """Return an answer of the provider that notes its request."""

    def answering(_body: Any) -> Answer:
        (case.folder / "asked").touch()
        return answer

    return answering


def wanting(answer: Any) -> Answer:
    """Return a reply with a call."""
    function = {"name": "add", "arguments": '{"a": 1, "b": 2}'}
    calls = [{"id": "c1", "type": "function", "function": function}]
    return replied(answer, message={"tool_calls": calls}, finish="tool_calls")


def test_the_model_is_asked_while_the_check_runs_and_its_calls_wait(wire: Wire, slow: Case) -> None:
    wire.answer(asked(slow, wanting(None)), replied("3"))

    assert slow.run().outputs["answer"] == "3"
    assert slow.called == ["check begins", "check ends", "add 1 2"]
    assert len(wire.requests) == 2


def test_a_tripwire_closes_the_request(wire: Wire, slow: Case) -> None:
    wire.answer(asked(slow, streamed({"content": "1"}, finish=None, then="hold")))

    result = slow.run({"q": "damn it"})

    assert "polite refused what was asked" in result.error["message"]
    assert wire.closed.wait(60)
    assert slow.called == ["check begins", "check ends"]


@each_row("q, adds", [("Add.", True), ("damn", False)])
def test_a_crash_at_any_write_repeats_no_known_request_and_uses_no_stopped_one(
    tmp_path: Path, q: str, adds: bool
) -> None:
    def one(name: str) -> Case:
        head = HEAD.replace("What is 1 + 2?", q)
        return case(tmp_path / f"{q}{name}", [CALLS, {"text": "so"}], head=head, by_turn=True)

    calm, store = one("calm"), FaultyStore()
    register(NAME, calm.model)
    try:
        with Engine(store, workdir=calm.folder) as engine:
            engine.run(calm.path)
        for write in range(1, store.writes):
            case_ = one(str(write))
            register(NAME, case_.model)
            there = crashed(case_, write, "die before" if write % 2 else "die after")
            result = gone_on(case_, there)
            assert (result.status == "succeeded") == adds, write
            assert any("add" in line for line in case_.called) == adds, write
            # a request that was cut off may be repeated, one with a known reply may not
            assert len(case_.model.requests) <= (3 if adds else 2), write
            with Engine(there, workdir=case_.folder) as engine:
                ended = [e for e in engine.executions.events("it") if e["type"] == "succeeded"]
            assert sum("ahead" in str(event["address"]) for event in ended) <= 1
    finally:
        unregister(NAME)


def test_a_request_that_fails_beside_is_repeated_after_the_check(tmp_path: Path) -> None:
    script = [{"raise": "RateLimited"}, CALLS, {"text": "3"}]
    more = f"  retry: {{attempts: 1}}\n  model: [{NAME}, scripted/other]\n"
    one = case(tmp_path, script, agent(more=more))
    register("scripted/other", one.model)
    try:
        result = one.run()
    finally:
        unregister("scripted/other")

    assert result.outputs["answer"] == "3"
    assert one.called == ["check begins", "check ends", "add 1 2"]


def test_in_a_chat_a_refused_message_and_its_reply_are_not_part_of_it(tmp_path: Path) -> None:
    steps = """
steps:
  - {id: ask, agent: {name: first, chat: true}, with: {prompt: "${{ inputs.q }}"}}
outputs: {answer: "${{ steps.ask.output }}"}
"""
    one = case(tmp_path, [{"text": "3"}, {"text": "never"}, {"text": "5"}], steps=steps)
    result = one.run()
    for text in ("damn", "2 + 3?", ""):
        with one.engine_open() as engine:
            [wait] = result.waits
            result = engine.approvals.decide(wait["id"], "answer", form={"answer": text}).result

    assert result.outputs == {"answer": "5"}
    assert told(one.sent(1))[1:] == [
        ("user", "What is 1 + 2?"), ("assistant", "3"), ("user", "damn"),
    ]  # fmt: skip
    assert told(one.sent(2))[1:] == [
        ("user", "What is 1 + 2?"), ("assistant", "3"), ("user", "2 + 3?"),
    ]  # fmt: skip


def test_an_agent_that_takes_over_is_not_asked_beside_the_checks_of_the_first(
    tmp_path: Path,
) -> None:
    steps = """
steps:
  - {id: ask, agent: {name: first, chat: true}, with: {prompt: "${{ inputs.q }}"}}
outputs: {answer: "${{ steps.ask.output }}"}
"""
    script = [{"calls": [call("transfer_to_second")]}, {"text": "hello"}, {"text": "again"}]
    text = f"{agent(more='  handoffs: [second]')}\nsecond: {{instructions: You greet.}}"
    one = case(tmp_path, script, text, steps=steps)
    result = one.run()
    for message in ("more", ""):
        with one.engine_open() as engine:
            [wait] = result.waits
            form = {"answer": message}
            result = engine.approvals.decide(wait["id"], "answer", form=form).result

    assert result.outputs == {"answer": "again"}
    assert [told(one.sent(n))[0] for n in range(3)] == [
        ("system", "You add."), ("system", "You greet."), ("system", "You greet."),
    ]  # fmt: skip


def test_followers_receive_the_reply_after_the_check(tmp_path: Path) -> None:
    passes = []

    def fine(prompt: str) -> None:
        passes.append(prompt)
        if "damn" in prompt:
            raise ValueError("mind your words")

    desk = Agent(name="Desk", checks=[{"before": fine, "parallel": True}])
    for prompt, texts in (("Hi", ["It is 3."]), ("damn", [])):
        with scripted({"text": "It is 3.", "usage": {"output_tokens": 7}}):
            parts = [*Runner().stream(desk, prompt)]
        assert [part.text for part in parts if isinstance(part, TextPart)] == texts
        assert parts[-1].response is not None
        assert parts[-1].response.usage["output_tokens"] == 7
    assert passes == ["Hi", "damn"]


def test_telemetry_has_one_model_call_for_the_request_and_its_turn(tmp_path: Path) -> None:
    used = {"input_tokens": 10, "output_tokens": 5}
    one = case(tmp_path, [{"text": "3", "usage": used}])
    one.run()

    with one.engine_open() as engine:
        [chat] = [span for span in recorded_spans(engine, one.id) if span.name.startswith("chat")]
    assert chat.name == f"chat {NAME}"
    assert chat.attributes["gen_ai.agent.name"] == "first"
    assert chat.attributes["gen_ai.usage.input_tokens"] == 10


def test_the_reply_counts_once_against_budgets(tmp_path: Path) -> None:
    used = {"input_tokens": 10, "output_tokens": 5, "cost_usd": 0.5}
    script = [{**CALLS, "usage": used}, {"text": "3", "usage": used}]
    one = case(tmp_path, script, head=HEAD + "budget: {tokens: 100000, cost_usd: 100}\n")

    assert one.run().status == "succeeded"
    with one.engine_open() as engine:
        [budget] = engine.executions.show(one.id)["budgets"]
    assert json.dumps(budget).count("30") == 1


@each_row(
    "checks, more, message",
    [
        ("[{before: polite, parallel: true, then: tell}]", "", "must know the error"),
        (BESIDE, "  hooks: [{before: turn, call: begin}]\n", "a hook 'before: turn'"),
        ("[{before: polite, parallel: maybe}]", "", "true or false"),
    ],
)
def test_check_names_what_is_wrong(tmp_path: Path, checks: str, more: str, message: str) -> None:
    one = case(tmp_path / "flow", [], agent(checks, more))

    with pytest.raises(FlowFileError, match=r"flow.yaml:\d+:\d+: error") as error:
        one.run()
    assert message in str(error.value)
