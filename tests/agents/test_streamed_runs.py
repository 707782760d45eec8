# Shows M82, M85
"""`MetaChain.stream`: each reply in parts as it arrives, then the response."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import replace
from datetime import date
from inspect import Signature
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from flowengine import (
    Agent,
    CallPart,
    Engine,
    HandoffPart,
    LogEvent,
    QuestionPart,
    Result,
    StreamPart,
    ToolCallPart,
    ToolResultPart,
)
from flowengine.agents.models import using
from flowengine.agents.models.scripted import ScriptedModel
from flowengine.errors import UsageError
from flowengine.kernel.graph.compiled import SecretText
from flowengine.runner import LoggerManager, MetaChain
from flowengine.secrets import Secrets
from flowengine.tool_environment import tool
from tests.agents.models.wire import Answer, Wire, call, replied, streamed

ASK = [{"role": "user", "content": "What is 1 + 2?"}]


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def to_billing() -> Agent:
    """Hand over."""
    return BILLING


TRIAGE = Agent(name="The triage", functions=[add, to_billing])
BILLING = Agent(name="Billing")
SCRIPT: list[dict[str, Any]] = [
    {
        "text": "Let me see.",
        "reasoning": "Hm.",
        "calls": [
            {"name": "add", "arguments": {"a": 1, "b": 2}, "id": "c1"},
            {"name": "to_billing", "id": "c2"},
        ],
        "usage": {"input_tokens": 7, "output_tokens": 3, "cost_usd": 0.25},
    },
    {"text": "It is 3, whoever asks."},
]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[list[LogEvent]]:
    events: list[LogEvent] = []
    logger = LoggerManager("OFF")
    logger.sinks.append(events.append)
    LoggerManager.set_logger(logger)
    yield events
    LoggerManager.set_logger(None)


@contextmanager
def answering(*script: Any) -> Iterator[ScriptedModel]:
    model = ScriptedModel(script)
    with using(model):
        yield model


def streamed_here(*given: Any, **how: Any) -> list[StreamPart]:
    return list(MetaChain().stream(*given, **how))


def streamed_on_a_loop(*given: Any, **how: Any) -> list[StreamPart]:
    async def main() -> list[StreamPart]:
        return [part async for part in MetaChain().stream_async(*given, **how)]

    return asyncio.run(main())


Streamed = Callable[..., list[StreamPart]]


def test_in_a_running_loop_the_blocking_form_names_the_other() -> None:
    """It refuses when it is called: `async for` over its result could not."""
    runner, agent = MetaChain(), Agent(name="A")
    told = "an event loop is running .*: use 'async for part in {}'"

    async def on_a_loop() -> None:
        with pytest.raises(RuntimeError, match=told.format(r"stream_async\(…\)")):
            runner.stream(agent, "hi")
        with pytest.raises(RuntimeError, match=told.format(r"resume_stream_async\(…\)")):
            runner.resume_stream("x", agent)
        with pytest.raises(RuntimeError, match=r"await run_async\(\)"):
            runner.run(agent, "hi")

    asyncio.run(on_a_loop())


BOTH = pytest.mark.parametrize("run", [streamed_here, streamed_on_a_loop])


def text(parts: list[StreamPart]) -> str:
    return "".join(part.text for part in parts if part.kind == "text")


def outline(parts: list[StreamPart]) -> list[tuple[str, str]]:
    """Return kind and agent of the parts of replies, without consecutive duplicates."""
    said = [(part.kind, part.agent) for part in parts if not part.kind.startswith("tool_")]
    return [one for place, one in enumerate(said) if said[place - 1 : place] != [one]]


def said(part: StreamPart) -> tuple[Any, ...]:
    """Return what a part says."""
    match part:
        case ToolCallPart(tool, arguments, call):
            return part.kind, part.agent, call, tool, arguments
        case ToolResultPart(tool=tool, call=call, error=error):
            return part.kind, part.agent, call, tool, error
        case CallPart(call=call):
            return part.kind, part.agent, call
        case HandoffPart(to):
            return part.kind, part.agent, to
        case _:
            return part.kind, part.agent


@BOTH
def test_a_streamed_run_gives_each_reply_and_the_same_response(run: Streamed) -> None:
    with answering(*SCRIPT):
        whole = MetaChain().run(TRIAGE, ASK, id="the-run")
    with answering(*SCRIPT):
        parts = run(TRIAGE, ASK, id="the-run")

    assert outline(parts) == [
        ("start", "The triage"),
        ("reasoning", "The triage"),
        ("text", "The triage"),
        ("call", "The triage"),
        ("end", "The triage"),
        ("handoff", "The triage"),
        ("start", "Billing"),
        ("text", "Billing"),
        ("end", "Billing"),
        ("response", "Billing"),
    ]
    assert text(parts) == "Let me see.It is 3, whoever asks."
    calls = [(one.call, one.tool, one.text) for one in parts if one.kind == "call"]
    assert calls == [("c1", "add", '{"a": 1, "b": 2}'), ("c2", "to_billing", "{}")]
    assert parts[-1].response == whole
    assert {part.execution for part in parts} == {"the-run"}
    assert [part.response for part in parts[:-1]] == [None] * (len(parts) - 1)


# Shows G4
def test_calls_their_results_and_handoffs_are_parts_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("API_KEY", "hunter2-long")
    Secrets({"KEY": {"env": "API_KEY"}}).reveal(SecretText([["KEY"]]))

    def find(word: str) -> str:
        """Find."""
        if not word:
            raise ValueError("no word")
        return f"{word} for hunter2-long " * 1000

    billing = Agent(name="The billing")
    agent = Agent(name="A", tools=[find], handoffs=[billing], limits={"find": {"output": "1KiB"}})
    script: list[Any] = [
        {"calls": [{"name": "find", "arguments": {"word": "rain"}, "id": "c1"}]},
        {"calls": [{"name": "find", "arguments": {"word": ""}, "id": "c2"}]},
        {"calls": [{"name": "finds", "id": "c3"}]},
        {"calls": [{"name": "transfer_to_The_billing", "id": "c4"}]},
        {"text": "So."},
    ]

    with answering(*script):
        parts = streamed_here(agent, ASK)

    kinds = ("tool_call", "tool_result", "handoff", "start")
    told = [said(one) for one in parts if one.kind in kinds]
    [refused] = [one.error for one in parts if one.kind == "tool_result" and one.call == "c3"]
    assert "finds" in refused
    assert told == [
        ("start", "A"),
        ("tool_call", "A", "c1", "find", {"word": "rain"}),
        ("tool_result", "A", "c1", "find", ""),
        ("start", "A"),
        ("tool_call", "A", "c2", "find", {"word": ""}),
        ("tool_result", "A", "c2", "find", "ValueError: no word"),
        ("start", "A"),
        ("tool_result", "A", "c3", "finds", refused),
        ("start", "A"),
        ("tool_result", "A", "c4", "transfer_to_The_billing", ""),
        ("handoff", "A", "The billing"),
        ("start", "The billing"),
    ]
    response = parts[-1].response
    assert response is not None
    results = [one.result for one in parts if one.kind == "tool_result"]
    contents = [one["content"] for one in response.messages if one["role"] == "tool"]
    assert results == [one.replace("hunter2-long", "***") for one in contents]
    assert len(results[0]) < 2000
    assert "hunter2" not in repr(parts[:-1])


def test_parts_of_an_agent_that_is_a_tool_are_its_own() -> None:
    expert = Agent(name="The expert", description="Adds.", tools=[add])
    asking = Agent(name="A", tools=[expert.as_tool("ask_expert")])
    script: list[Any] = [
        {"calls": [{"name": "ask_expert", "arguments": {"prompt": "1 + 2?"}, "id": "c1"}]},
        {"calls": [{"name": "add", "arguments": {"a": 1, "b": 2}, "id": "c2"}]},
        {"text": "3"},
        {"text": "It is 3."},
    ]

    with answering(*script):
        parts = streamed_here(asking, ASK, {"n": 1})

    kinds = ("call", "tool_call", "tool_result")
    assert [said(one) for one in parts if one.kind in kinds] == [
        ("call", "A", "c1"),
        ("tool_call", "A", "c1", "ask_expert", {"prompt": "1 + 2?"}),
        ("call", "The expert", "c2"),
        ("tool_call", "The expert", "c2", "add", {"a": 1, "b": 2}),
        ("tool_result", "The expert", "c2", "add", ""),
        ("tool_result", "A", "c1", "ask_expert", ""),
    ]


def test_a_run_that_waited_goes_on_in_parts(tmp_path: Path) -> None:
    agent = Agent(name="A", functions=[add], approvals={"add": "required"})
    script: list[Any] = [
        {"text": "Let me see.", "calls": [{"name": "add", "arguments": {"a": 1, "b": 2}}]},
        {"text": "It is 3."},
    ]
    with answering(*script), Engine(tmp_path / "s.db") as engine:
        chain = MetaChain(engine)
        *first, last = chain.stream(agent, ASK)
        assert last.response is not None
        [still] = chain.resume_stream(last.execution, agent)
        engine.approvals.approve(last.response.waits[0]["id"], resume=False)
        parts = list(chain.resume_stream(last.execution, agent))
        again = list(chain.resume_stream(last.execution, agent))

    [wait] = last.response.waits
    [asked] = [one for one in first if one.kind not in ("start", "text", "call", "end")]
    assert first[-1] == asked
    assert isinstance(asked, QuestionPart)
    assert (asked.agent, asked.tool) == ("A", "add")
    assert asked.wait.items() <= wait.items()
    assert asked.call == last.response.messages[0]["tool_calls"][0]["id"]
    assert (last.agent, last.response.messages[0]["content"]) == ("A", "Let me see.")
    assert still.response == last.response
    made, ended = parts[:2]
    assert said(made) == ("tool_call", "A", asked.call, "add", {"a": 1, "b": 2})
    assert isinstance(ended, ToolResultPart)
    assert (ended.call, ended.result, ended.value, ended.text) == (asked.call, "3", 3, "3")
    assert outline(parts) == [("start", "A"), ("text", "A"), ("end", "A"), ("response", "A")]
    assert text(parts) == "It is 3."
    response = parts[-1].response
    assert response is not None
    assert (response.termination, response.output) == ("resolved", "It is 3.")
    assert [part.response for part in again] == [response]


def test_a_question_comes_again_when_more_is_known_of_it() -> None:
    def preview(arguments: dict[str, Any]) -> str:
        return f"pays {arguments['amount']} EUR"

    @tool(approval="required", preview=preview)
    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    with (
        answering({"calls": [{"name": "pay", "arguments": {"amount": 5}}]}),
        Engine(None) as engine,
    ):
        *parts, last = MetaChain(engine).stream(Agent(name="A", tools=[pay]), ASK)

    asked = [one.wait for one in parts if one.kind == "question" and one.wait is not None]
    assert [one.get("preview") for one in asked] == [None, "pays 5 EUR"]
    assert last.response is not None
    assert {one["id"] for one in asked} == {last.response.waits[0]["id"]}


def test_a_run_that_waits_is_not_lost_with_its_engine() -> None:
    agent = Agent(name="A", functions=[add], approvals={"add": "required"})

    with answering(SCRIPT[0]), pytest.raises(UsageError, match="its engine in memory ends with it"):
        streamed_here(agent, ASK)


@pytest.mark.endurance
def test_a_loop_that_is_slow_misses_parts_and_gets_the_whole_response(
    quiet: list[LogEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()
    logger = LoggerManager("OFF")
    logger.sinks.append(lambda event: ended.set() if event.event == "termination" else None)
    monkeypatch.setattr("flowengine.engines.inspection.updates.TEXT", 20_000)
    long = "so " * 40_000

    called = {"name": "add", "arguments": {"a": 1, "b": 2}, "id": "c"}
    with answering({"text": long, "calls": [called]}, {"text": "3"}):
        parts = []
        for part in MetaChain(logger=logger).stream(TRIAGE, ASK):
            assert ended.wait(60)  # the run does not wait
            parts.append(part)

    missed = [part for part in parts if part.kind == "missed"]
    shown = text(parts).removesuffix("3")
    assert 20_000 <= len(shown) < len(long)
    assert missed  # more than once, if parts still arrive while the loop reads
    assert all(part.missed > 0 for part in missed)
    assert long.startswith(shown)
    made = [part for part in parts if isinstance(part, ToolCallPart | ToolResultPart)]
    assert [part.kind for part in made] == ["tool_call", "tool_result"]
    assert parts[-2].kind == "end"
    assert parts[-1].response is not None
    assert parts[-1].response.messages[0]["content"].strip() == long.strip()


# On the wire


def agent(*functions: Any, model: str = "openai/gpt-4o", **more: Any) -> Agent:
    return Agent(name="Adder", model=model, functions=list(functions), **more)


TWO = ({"content": "It is "}, {"content": "4, I "})


def test_a_broken_reply_is_taken_back_and_comes_again_as_a_whole(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flowengine.agents.declared.RETRY", {"delay": "1ms", "attempts": 3})
    wire.answer(streamed(*TWO, finish=None, then="drop"), streamed({"content": "It is 3."}))

    parts = streamed_here(agent(), ASK)

    assert [part.kind for part in parts] == [
        *("start", "text", "text", "restart"),
        *("start", "text", "end"),
        "response",
    ]
    response = parts[-1].response
    assert response is not None
    assert [one["content"] for one in response.messages] == ["It is 3."]


HELD = Answer(
    (
        *streamed({"content": "It is "}, finish=None).pieces,
        *streamed({"tool_calls": [call(0, "{}", id="x", name="act")]}, finish=None).pieces,
    ),
    headers={"Content-Type": "text/event-stream"},
    then="hold",
)


def test_leaving_the_loop_closes_the_stream_and_starts_no_tool(wire: Wire, tmp_path: Path) -> None:
    ran: list[str] = []

    def act() -> str:
        ran.append("act")
        return "done"

    wire.answer(HELD)
    with Engine(tmp_path / "store") as engine:
        chain = MetaChain(engine)
        for part in chain.stream(agent(act), ASK, id="run"):
            if part.kind == "text":
                break
        assert wire.closed.wait(60)
        assert not engine.executions.result("run").ended
        assert (ran, len(wire.requests)) == ([], 1)

        wire.answer(replied("It is 3."))
        assert chain.resume("run", agent(act)).output == "It is 3."
    assert (ran, len(wire.requests)) == ([], 2)


def test_leaving_the_loop_on_an_event_loop_does_so_too(wire: Wire, tmp_path: Path) -> None:
    wire.answer(HELD)

    async def main() -> None:
        async with Engine(tmp_path / "store") as engine:
            chain = MetaChain(engine)
            async with aclosing(chain.stream_async(agent(add), ASK, id="run")) as parts:
                async for part in parts:
                    if part.kind == "text":
                        break
            assert await asyncio.to_thread(wire.closed.wait, 60)
            assert not engine.executions.result("run").ended

    asyncio.run(main())
    assert len(wire.requests) == 1


def test_no_part_is_in_the_history(wire: Wire, tmp_path: Path) -> None:
    wire.answer(streamed({"content": "It is "}, {"content": "3."}))

    with Engine(tmp_path / "store") as engine:
        list(MetaChain(engine).stream(agent(), ASK, id="run"))
        events = list(engine.executions.events("run"))

    assert json.dumps(events, default=str).count("It is 3.") >= 1
    assert 'It is "' not in json.dumps(events, default=str)


class Place(BaseModel):
    name: str
    opened: date


RETURNED: list[tuple[str, Any, Any]] = [
    ("text", "two chairs", "two chairs"),
    ("text_with_json", '{"a": 1}', '{"a": 1}'),
    ("data", {"rows": [{"n": "Ana", "x": 1.5}, None, True]}, None),
    ("number", 3, 3),
    ("model", Place(name="O", opened=date(1048, 1, 1)), {"name": "O", "opened": "1048-01-01"}),
    ("models", [Place(name="A", opened=date(1, 1, 1))], [{"name": "A", "opened": "0001-01-01"}]),
    ("result", Result(value={"a": ["b"]}, context_variables={"k": 1}), {"a": ["b"]}),
    ("long_text", "ab " * 9_000, None),
    ("long_data", [[number, "a"] for number in range(3_000)], None),
    ("nothing", None, None),
]  # fmt: skip
"""Name of the tool, what it returns, and its value. None: the same."""


def test_parts_have_the_value_that_a_tool_returned(tmp_path: Path) -> None:
    from flowengine.server.ag_ui import ReplyEvents

    def tools() -> Iterator[Any]:
        for name, returned, _ in RETURNED:

            def function(returned: Any = returned) -> Any:
                return returned

            function.__name__ = name
            function.__signature__ = Signature()  # type: ignore[attr-defined]
            yield function

    def huge() -> list[int]:
        return list(range(20_000))

    def fails() -> str:
        raise ValueError("no such order")

    def pay(amount: int) -> dict[str, str]:
        return {"paid": f"{amount} EUR"}

    expert = Agent(name="Expert")
    agent = Agent(
        name="A",
        tools=[*tools(), huge, fails, pay, expert.as_tool("ask")],
        approvals={"pay": {"edit": True}},
    )
    calls: list[Any] = [{"name": name} for name, _, _ in RETURNED] + [
        {"name": "huge"},
        {"name": "fails"},
    ]
    calls += [{"name": "ask", "arguments": {"prompt": "?"}}, {"name": "nope"}]
    script: list[Any] = [
        {"calls": calls},
        {"text": "an answer"},
        {"calls": [{"name": "pay", "arguments": {"amount": 200}}]},
        {"text": "done"},
    ]
    with using(ScriptedModel(script)), Engine(tmp_path) as engine:
        chain = MetaChain(engine)
        parts = list(chain.stream(agent, "go"))
        response = parts[-1].response
        assert response is not None
        [wait] = response.waits
        engine.approvals.approve(wait["id"], edit={"amount": 5}, comment="less", resume=False)
        parts += chain.resume_stream(response.execution, agent)
        found = {part.tool: part for part in parts if part.kind == "tool_result"}
        for name, returned, value in RETURNED:
            wanted = returned if value is None else value
            assert (found[name].value, found[name].error) == (wanted, "")
            assert found[name].text == (wanted if isinstance(wanted, str) else json.dumps(wanted))
            [event] = ReplyEvents().of(replace(found[name], call="c1"))
            assert getattr(event, "content", None) == found[name].text
        assert Path(found["huge"].value["path"]).read_text() == json.dumps(list(range(20_000)))
    assert found["fails"].value is None
    assert found["fails"].text == "Error: ValueError: no such order"
    assert (found["ask"].value, found["nope"].value) == ("an answer", None)
    assert "a person changed" in found["pay"].result
    assert (found["pay"].value, found["pay"].text) == ({"paid": "5 EUR"}, '{"paid": "5 EUR"}')
