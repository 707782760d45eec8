"""`MetaChain.run`: agents that are Python objects, run as executions of a generated flow."""

from __future__ import annotations

import asyncio
import copy
import json
import re
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    computed_field,
    field_validator,
    model_validator,
)

from flowengine import Agent, AgentRunFailed, Engine, LogEvent, Response, Result
from flowengine.agents.models import using
from flowengine.agents.models.port import ModelRequest
from flowengine.agents.models.scripted import ScriptedModel
from flowengine.errors import UsageError
from flowengine.runner import LoggerManager, MetaChain
from flowengine.tool_environment import tool
from tests import command_line
from tests.agents.flows import without_marks
from tests.stored_data import stored_in

ASK = [{"role": "user", "content": "What is 1 + 2?"}]


def call(name: str, id: str = "", /, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments, "id": id}


def results(response: Any) -> list[str]:
    """Return the results of tools, without marks around untrusted text."""
    return [one["content"] for one in without_marks(response.messages) if one["role"] == "tool"]


class Bench:
    """Runs agents against a scripted model, and records the events."""

    def __init__(self) -> None:
        self.events: list[LogEvent] = []
        self.logger = LoggerManager(console=False)
        self.logger.sinks.append(self.events.append)
        self.model = ScriptedModel([])

    @contextmanager
    def answering(self, *script: Any, **model: Any) -> Iterator[None]:
        self.model = ScriptedModel(script, **model)
        with using(self.model):
            yield

    def run(self, agent: Agent, script: Sequence[Any], *given: Any, **how: Any) -> Response:
        with self.answering(*script):
            return MetaChain(logger=self.logger).run(agent, *(given or (ASK,)), **how)

    def sent(self, number: int) -> list[dict[str, Any]]:
        return without_marks(self.model.requests[number].messages)

    def offered(self, number: int) -> list[str]:
        return [one.name for one in self.model.requests[number].tools]

    def names(self) -> list[str]:
        return [one.event for one in self.events]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


# Shows M3, M6
def test_a_run_gives_the_new_messages_the_agent_and_the_context(bench: Bench) -> None:
    agent = Agent(name="Adder", functions=[add])

    found = bench.run(agent, [{"calls": [call("add", "c1", a=1, b=2)]}, {"text": "3"}])

    assert [one["role"] for one in found.messages] == ["assistant", "tool", "assistant"]
    assert found.history == [*ASK, *found.messages]
    assert found.agent is agent
    assert (found.termination, found.output, found.context_variables) == ("resolved", "3", {})
    assert json.dumps(found.messages)
    assert bench.sent(1)[-1] == {
        "role": "tool", "tool_call_id": "c1", "name": "add", "content": "3",
    }  # fmt: skip


# Shows M4
def test_what_the_caller_gave_is_not_changed_and_runs_share_nothing(bench: Bench) -> None:
    def note(context_variables: dict[str, Any]) -> Result:
        context_variables["list"].append("mutated")
        return Result(value="ok", context_variables={"noted": True})

    agent = Agent(name="A", functions=[note])
    messages, context = copy.deepcopy(ASK), {"list": [1]}
    script = [{"calls": [call("note")]}, {"text": "so"}]

    found = bench.run(agent, script, messages, context)
    again = bench.run(agent, [{"text": "so"}])

    assert messages == ASK
    assert context == {"list": [1]}
    assert found.context_variables == {"list": [1], "noted": True}
    assert again.context_variables == {}


# Shows M5, M19
def test_the_system_message_is_built_anew_each_turn(bench: Bench) -> None:
    def instructions(context: dict[str, Any]) -> str:
        return f"n is {context['n']}"

    def more(context_variables: dict[str, Any]) -> Result:
        return Result(context_variables={"n": context_variables["n"] + 1})

    agent = Agent(
        name="A", instructions=instructions, functions=[more], context_variables_description="n!"
    )
    bench.run(agent, [{"calls": [call("more")]}, {"text": "so"}], ASK, {"n": 1})

    for number, text in enumerate(["n is 1\n\nn!", "n is 2\n\nn!"]):
        systems = [one for one in bench.sent(number) if one["role"] == "system"]
        assert systems == [bench.sent(number)[0]] == [{"role": "system", "content": text}]


# Shows M8
def test_calls_are_left_alone_of_agents_that_can_hand_over(bench: Bench) -> None:
    first, _ = agents()
    script = [{"calls": [call("to_second")]}]
    found = bench.run(first, script, execute_tools=False)
    assert found.termination == "tools_not_executed"
    assert found.agent is first
    assert bench.offered(0) == ["to_second"]
    with bench.answering(*script):
        message = MetaChain(logger=bench.logger).get_chat_completion(first, ASK)
    assert message["tool_calls"][0]["function"]["name"] == "to_second"


def agents() -> tuple[Agent, Agent]:
    """Return two agents that hand over to each other, by an agent and by a `Result`."""

    def to_second() -> Agent:
        return second

    def to_first() -> Result:
        return Result(value="over", agent=first, context_variables={"back": True})

    first = Agent(name="First Agent", model="m1", instructions="I am first.", functions=[to_second])
    second = Agent(name="Second", model="m2", instructions="I am second.", functions=[add])
    second.functions.append(to_first)
    return first, second


HANDING = [
    {"calls": [call("to_second", "c1")]},
    {"calls": [call("to_first", "c2")]},
    {"text": "done"},
]


# Shows M9, M10, M19, M78
def test_agents_hand_over_by_what_a_function_returns(bench: Bench) -> None:
    first, _ = agents()
    found = bench.run(first, HANDING)

    assert [one.model for one in bench.model.requests] == ["m1", "m2", "m1"]
    assert bench.offered(0) == ["to_second"]
    assert bench.offered(1) == ["add", "to_first"]
    assert bench.sent(1)[0]["content"] == "I am second."
    assert "Second" in bench.sent(1)[-1]["content"]
    assert bench.sent(2)[-1]["content"] == "over"
    assert found.agent is first
    assert found.context_variables == {"back": True}
    handed = [(one.agent, one.data["to"]) for one in bench.events if one.event == "agent_handoff"]
    assert handed == [("First Agent", "Second"), ("Second", "First Agent")]


# Shows M14
def test_agents_that_no_function_names_are_given(bench: Bench) -> None:
    def away(name: str) -> Agent:
        return Agent(name=name)

    other = Agent(name="Other")
    found = bench.run(
        Agent(name="A", functions=[away]),
        [{"calls": [call("away", name="Other")]}, {"text": "so"}],
        agents=[other],
    )

    assert found.agent is other


class Handle:
    def __repr__(self) -> str:
        return "SECRET-HANDLE"

    __str__ = __repr__


# Shows M4, M16, M17, M21
def test_live_objects_reach_the_tools_that_ask_and_nothing_else(
    bench: Bench, tmp_path: Path
) -> None:
    handle, seen = Handle(), []

    def look(word: str, context_variables: dict[str, Any]) -> str:
        seen.append((word, context_variables["code_env"], context_variables["n"]))
        return "looked"

    def plain(word: str) -> str:
        return word

    agent = Agent(name="A", functions=[look, plain])
    calls = [call("look", word="x"), call("plain", word="y")]
    with Engine(tmp_path / "store") as engine, bench.answering({"calls": calls}, {"text": "so"}):
        chain = MetaChain(engine, logger=bench.logger)
        found = chain.run(agent, ASK, {"code_env": handle, "n": 1})
        journal = json.dumps(list(engine.executions.events(found.execution)), default=str)
        shown = json.dumps(engine.executions.show(found.execution), default=str)

    assert seen == [("x", handle, 1)]
    assert found.context_variables["code_env"] is handle
    offers = json.dumps([one.parameters for one in bench.model.requests[0].tools])
    assert "context_variables" not in offers
    requests = "".join(str(one) for one in bench.model.requests)
    stored = b"".join(stored_in(tmp_path / "store").values())
    for text in (journal, shown, requests, str(bench.events), stored.decode("latin1")):
        assert "SECRET-HANDLE" not in text


# Shows M21
def test_objects_for_functions_may_be_given_for_a_run_alone(bench: Bench, tmp_path: Path) -> None:
    """M21: they are found by parameter name, and are never stored."""

    def send(line, runtime_resources: dict[str, Any], text: str) -> str:  # type: ignore[no-untyped-def]
        """Send."""
        assert runtime_resources["line"] is line
        line.append(text)
        return str(len(line))

    agent = Agent(name="A", functions=[send], environments=["line"], approvals={"send": "required"})
    line: list[Any] = [object()]
    script = [{"calls": [call("send", text="hi")]}, {"text": "so"}]
    with Engine(tmp_path / "s.db") as engine, bench.answering(*script):
        chain = MetaChain(engine, logger=bench.logger)
        [wait] = chain.run(agent, ASK, runtime_resources={"line": line}).waits
        engine.approvals.approve(wait["id"])
        found = chain.resume(wait["execution"], agent, runtime_resources={"line": line})
        kept = json.dumps(list(engine.executions.events(found.execution)), default=str)

    assert results(found) == ["2"]
    assert found.context_variables == {}
    assert "object at" not in kept
    with pytest.raises(UsageError, match="'line' is given in context_variables and in runtime"):
        MetaChain().run(agent, ASK, {"line": line}, runtime_resources={"line": line})


def test_an_object_that_no_agent_lists_is_refused_before_the_run(bench: Bench) -> None:
    """Otherwise a model would have to supply it, and the object would replace its argument."""

    def look(q: str, line) -> str:  # type: ignore[no-untyped-def]
        """Look."""
        return q

    def look_at(q: str, line: Bench) -> str:
        """Look."""
        return q

    given: list[dict[str, Any]] = [
        {"runtime_resources": {"line": object()}},
        {"context_variables": {"line": object()}},
    ]
    first, second = Agent(name="A", functions=[look]), Agent(name="B")
    second.functions = [first.as_tool()]
    for agent in (first, second):
        for how in given:
            with pytest.raises(UsageError, match="an object 'line', and 'look' has a") as caught:
                bench.run(agent, [{"text": "so"}], **how)
            assert "Agent(environments=['line'])" in str(caught.value.hint)
    with pytest.raises(UsageError, match="'line' of look_at cannot be an argument") as caught:
        Agent(name="A", functions=[look_at])
    assert "Agent(environments=['line'])" in str(caught.value.hint)
    listed = Agent(name="A", functions=[look], environments=["line"])
    bench.run(listed, [{"text": "so"}], runtime_resources={"line": object()})


# Shows M20, M23
def test_calls_that_run_together_merge_in_their_order_and_clashes_are_told(bench: Bench) -> None:
    second_done = asyncio.Event()

    async def set_k(k: int) -> Result:
        if k == 1:
            await second_done.wait()
        else:
            second_done.set()
        return Result(value=str(k), context_variables={"k": k})

    set_k.supports_parallel_execution = True  # type: ignore[attr-defined]
    agent = Agent(name="A", functions=[set_k])
    script = [{"calls": [call("set_k", "1", k=1), call("set_k", "2", k=2)]}, {"text": "so"}]

    found = bench.run(agent, script)

    assert found.context_variables == {"k": 2}
    assert results(found) == ["1", "2"]
    [clash] = [one for one in bench.events if one.event == "context_clash"]
    assert clash.data["key"] == "k"
    assert len(clash.data["calls"]) == 2


def test_a_model_for_all_runs_of_a_chain() -> None:
    agent = Agent(name="A", model="scripted/its-own")
    asked = []

    def answer(request: Any) -> dict[str, str]:
        asked.append(request.model)
        return {"text": "3"}

    with using(ScriptedModel([answer, answer, answer])):
        chain = MetaChain(model="scripted/other")
        chain.run(agent, ASK)
        chain.run(agent, ASK, model="scripted/third")
        list(chain.stream(agent, ASK))

    assert asked == ["scripted/other", "scripted/third", "scripted/other"]


# Shows M49
def test_a_fallback_is_told_with_the_model_that_it_stands_for(bench: Bench) -> None:
    usage = {"input_tokens": 10, "output_tokens": 2}
    script = [
        {"calls": [call("add", a=1, b=2)], "usage": usage},
        {"raise": "ModelError", "message": "no such model", "retryable": False},
        {"text": "3", "usage": usage},
    ]
    agent = Agent(name="A", model=["one/a", "other/b"], functions=[add])

    found = bench.run(agent, script)

    assert found.output == "3"
    told = [one for one in bench.events if one.event == "llm_call"]
    assert [one.data.get("instead_of") for one in told] == [None, "one/a"]
    assert told[1].data["model"] == "other/b"
    assert told[1].text.startswith("other/b instead of one/a: ")
    models = found.usage["models"]
    assert {model: one["input_tokens"] for model, one in models.items()} == {
        "one/a": 10,
        "other/b": 10,
    }
    assert found.usage["input_tokens"] == 20


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"messages": 3}, "messages is not a list"),
        ({"messages": [{"role": "robot"}]}, "messages[0] has the role 'robot'"),
        ({"messages": [{"role": "tool", "tool_call_id": "x"}]}, "answers the call 'x'"),
        ({"messages": [*ASK, {"role": "system"}]}, "messages[1] is a system message"),
        ({"max_turns": 0}, "max_turns is 0"),
        ({"max_turns": -1}, "max_turns is -1"),
        ({"context_variables": [1]}, "context_variables is not a dict"),
        ({"rules": [{"denyy": "x"}]}, "rules[0].denyy: unknown key 'denyy' in a rule"),
        ({"budget": {"token": 3}}, "budget.token: unknown key 'token' in 'budget'"),
        (
            {"budget": {"token": 3, "cost": 1}},
            "budget.token: unknown key 'token' in 'budget' (did you mean 'tokens'?); "
            "budget.cost: unknown key 'cost' in 'budget' (did you mean 'cost_usd'?)",
        ),
    ],
)
# Shows M89
def test_runs_are_checked_before_anything_is_sent(
    bench: Bench, given: dict[str, Any], told: str
) -> None:
    whole: dict[str, Any] = {"agent": Agent(name="A"), "messages": ASK, **given}
    with bench.answering(), pytest.raises(UsageError) as raised:
        MetaChain(logger=bench.logger).run(**whole)

    assert told in raised.value.message
    assert bench.model.requests == []


@pytest.mark.parametrize(
    ("option", "told"),
    [
        (
            "model_override",
            "a run of agents has no 'model_override'; it is one of: agents, budget, deps, ",
        ),
        ("modle", "a run of agents has no 'modle'; did you mean 'model'?"),
    ],
)
def test_options_that_do_not_exist_are_told_with_those_that_do(
    bench: Bench, option: str, told: str
) -> None:
    options: dict[str, Any] = {option: "gpt-4o"}
    with pytest.raises(TypeError, match=re.escape(told)):
        bench.run(Agent(name="A"), [], **options)
    with pytest.raises(TypeError, match="resuming a run of agents has no"), Engine(None) as engine:
        MetaChain(engine).resume("x", Agent(name="A"), **options)


# Shows M88
def test_instructions_that_raise_fail_the_run_before_a_model_is_asked(bench: Bench) -> None:
    def broken(context: dict[str, Any]) -> str:
        raise KeyError("n")

    with pytest.raises(AgentRunFailed, match="the instructions of agent 'A' raised KeyError"):
        bench.run(Agent(name="A", instructions=broken), [{"text": "so"}])

    assert bench.model.requests == []


# Shows M47
def test_a_failed_run_goes_on_at_the_call_of_the_model(bench: Bench, tmp_path: Path) -> None:
    ran = []

    def note(n: int) -> str:
        ran.append(n)
        return f"noted {n}"

    agent = Agent(name="A", functions=[note], retry=1)
    with Engine(tmp_path / "store") as engine:
        chain = MetaChain(engine, logger=bench.logger)
        with (
            bench.answering({"calls": [call("note", "c", n=1)]}, {"raise": "ModelError"}),
            pytest.raises(AgentRunFailed) as raised,
        ):
            chain.run(agent, ASK, {"k": 1})
        with bench.answering({"text": "so"}):
            found = chain.resume(raised.value.execution, agent)
        again = chain.resume(raised.value.execution, agent)

    assert found.termination == "resolved"
    assert [one["role"] for one in found.messages] == ["assistant", "tool", "assistant"]
    assert [one["role"] for one in bench.sent(0)] == ["system", "user", "assistant", "tool"]
    assert ran == [1]
    assert again.messages == found.messages
    assert again.context_variables == {"k": 1}


TOOLS = """
import os

def count() -> str:
    "Count."
    with open("counted", "a") as file:
        file.write("x")
    return "counted"

def stop() -> str:
    "Stop the process, once."
    if not os.path.exists("stopped"):
        open("stopped", "w").close()
        os.kill(os.getpid(), 9)
    return "stopped"

"""


def test_a_model_is_asked_once_with_instructions_and_tools(bench: Bench) -> None:
    agent = Agent(name="A", instructions=lambda ctx: f"n is {ctx['n']}", functions=[add])
    with bench.answering({"calls": [call("add", "c1", a=1, b=2)]}):
        chain = MetaChain(logger=bench.logger)
        message = chain.get_chat_completion(agent, ASK, {"n": 1}, model="other")

    assert message["tool_calls"][0]["function"]["name"] == "add"
    [request] = bench.model.requests
    assert (request.model, bench.sent(0)[0]["content"]) == ("other", "n is 1")


def test_calls_of_a_model_are_run_as_in_a_run(bench: Bench) -> None:
    def to_b(context_variables: dict[str, Any]) -> Result:
        return Result(value="over", agent=b, context_variables={"n": context_variables["n"] + 1})

    b = Agent(name="B")
    calls = [
        {"id": "1", "function": {"name": "add", "arguments": '{"a": "1", "b": 2}'}},
        {"id": "2", "function": {"name": "ad", "arguments": "{}"}},
        {"id": "3", "function": {"name": "to_b", "arguments": ""}},
    ]

    found = MetaChain(logger=bench.logger).handle_tool_calls(calls, [add, to_b], {"n": 1})

    assert [one["tool_call_id"] for one in found.messages] == ["1", "2", "3"]
    assert [found.messages[0]["content"], found.messages[2]["content"]] == ["3", "over"]
    assert "add" in found.messages[1]["content"]
    assert found.agent is b
    assert found.context_variables == {"n": 2}


# Shows M86
def test_while_a_run_waits_its_response_has_what_has_been_done(
    bench: Bench, tmp_path: Path
) -> None:
    def note(key: str) -> Result:
        return Result(value=f"noted {key}", context_variables={key: True})

    def pay(amount: int) -> str:
        return "paid"

    b = Agent(name="The second", functions=[pay], approvals={"pay": "required"})
    a = Agent(name="A", functions=[note, pay], approvals={"pay": "required"}, handoffs=[b])
    usage = {"input_tokens": 7, "output_tokens": 3, "cost_usd": 0.25}
    script = [
        {
            "text": "Let me see.",
            "calls": [call("note", "c1", key="k"), call("pay", "c2", amount=5)],
            "usage": usage,
        },
        {"calls": [call("transfer_to_The_second", "c3")], "usage": usage},
        {"calls": [call("pay", "c4", amount=6)], "usage": usage},
        {"text": "so"},
    ]
    with Engine(tmp_path / "store") as engine, bench.answering(*script):
        chain = MetaChain(engine, logger=bench.logger)
        first = chain.run(a, ASK, {"db": bench, "n": 1})
        engine.approvals.approve(first.waits[0]["id"], resume=False)
        second = chain.resume(first.execution, a, {"db": bench})
        again = chain.resume(first.execution, a, {"db": bench})
        engine.approvals.approve(second.waits[0]["id"], resume=False)
        last = chain.resume(first.execution, a, {"db": bench})

    said, result = without_marks(first.messages)
    assert (said["content"], [one["id"] for one in said["tool_calls"]]) == (
        "Let me see.", ["c1", "c2"],
    )  # fmt: skip
    assert result == {
        "role": "tool", "tool_call_id": "c1", "name": "note", "content": "noted k",
        "untrusted": "note",
    }  # fmt: skip
    assert first.history == [*ASK, *first.messages]
    assert (first.agent, first.termination, first.output) == (a, "", None)
    assert first.context_variables == {"db": bench, "n": 1, "k": True}
    assert [first.usage[one] for one in usage] == [7, 3, 0.25]
    [wait] = first.waits
    assert (wait["tool"], wait["subject"], wait["title"]) == (
        "pay",
        {"amount": 5},
        "Call pay: amount 5?",
    )

    assert [one["role"] for one in second.messages] == [
        *("assistant", "tool", "tool"),
        *("assistant", "tool"),
        "assistant",
    ]
    assert second.agent is b
    assert second.usage["models"]["gpt-4o"]["cost_usd"] == 0.75
    assert second.waits[0]["subject"] == {"amount": 6}
    assert again == second
    assert last.messages[: len(second.messages)] == second.messages
    assert last.termination == "resolved"


class City(BaseModel):
    name: str
    people: int = Field(ge=1)


class Even(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def even(cls, n: int) -> int:
        if n % 2:
            raise ValueError("it is odd")
        return n


class Span(BaseModel):
    first: int
    last: int

    @model_validator(mode="after")
    def ordered(self) -> Span:
        if self.first > self.last:
            raise ValueError("it ends before it begins")
        return self


@dataclass
class Share:
    percent: float

    def __post_init__(self) -> None:
        if self.percent > 100:
            raise ValueError("it is more than all")


class Square(BaseModel):
    side: int = 1

    @computed_field
    def area(self) -> int:
        return self.side**2


class Nothing(BaseModel):
    """There is none."""


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    tricks: list[str] = []


def all_even(numbers: list[int]) -> list[int]:
    if any(n % 2 for n in numbers):
        raise ValueError("one is odd")
    return numbers


@pytest.mark.parametrize(
    ("returns", "wrong", "reason", "right", "result"),
    [
        (Even, {"n": 3}, "'n' it is odd", {"n": 4}, Even(n=4)),
        (Span, {"first": 2, "last": 1}, "it ends before", {"first": 1, "last": 2},
         Span(first=1, last=2)),
        (Share, {"percent": 120}, "more than all", {"percent": 20}, Share(20)),
        (list[Even], [{"n": 2}, {"n": 3}], "'1.n' it is odd", [{"n": 2}], [Even(n=2)]),
        (Annotated[list[int], AfterValidator(all_even)], [1], "fit: one is odd", [2], [2]),
        (Annotated[int, AfterValidator({2: "two"}.__getitem__)], 3, "fit: KeyError: 3", 2, "two"),
        (Even | str, {"n": 3}, "it is odd", "none", "none"),
        (City | Nothing, {"name": "Oslo", "people": "x"}, "'people' in it must be a whole number",
         {}, Nothing()),
        (Nothing | City | None, {"nam": "Oslo"}, "has no 'nam'", None, None),
        (list[City | Nothing], [{"people": 1}], "is missing 'name'", [{}], [Nothing()]),
        (Annotated[Cat | Dog, Field(discriminator="kind")], {"tricks": ["sit"]}, "kind",
         {"kind": "dog"}, Dog()),
        (Square | City, {"sides": 2}, "has no 'sides'", {"side": 2, "area": 4}, Square(side=2)),
        (Square | Nothing, {"side": 2}, "'kind'", {"kind": "Nothing", "value": {}}, Nothing()),
        (Cat | Dog, {"trick": ["sit"]}, "has no 'trick'", {"tricks": []}, Dog()),
        ({"type": "string", "format": "date-time"}, "2026-01-02T03:04:05",
         "a date-time with an offset", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        (Literal["yes", "no"], "Yes", 'must be one of "yes", "no"', "no", "no"),
        (int, "five", 'must be a whole number, not "five"', 5, 5),
        (Even, "It is 4.", 'must be a map, not "It is 4."', {"n": 4}, Even(n=4)),
    ],
)  # fmt: skip
# Shows G1
def test_an_answer_that_the_type_refuses_goes_back_to_the_model(
    returns: Any, wrong: Any, reason: str, right: Any, result: Any, bench: Bench
) -> None:
    text = wrong if isinstance(wrong, str) else json.dumps(wrong)
    script = [{"text": text}, {"text": json.dumps(right)}]

    found = bench.run(Agent(name="A", returns=returns), script)

    assert (found.termination, found.output) == ("resolved", result)
    told = bench.sent(1)[-1]["content"]
    assert told.startswith("Your answer does not fit: ")
    assert reason in told


@pytest.mark.parametrize(
    ("returns", "text", "result"),
    [
        (str, "Good morning.", "Good morning."),
        (str, '"Good morning."', "Good morning."),
        (str, "```\nGood\nmorning.\n```", "Good\nmorning."),
        (str, "5", "5"),
        (str | int, "5", 5),
        (City | str, "There is none.", "There is none."),
        (Literal["yes", "no"], "yes", "yes"),
        (date, "2026-01-02", date(2026, 1, 2)),
        ({"type": "string", "maxLength": 3}, "yes", "yes"),
        (Literal["yes", "no"], "maybe", None),
        (City | str, '{"name": "Os', None),
        (int, "five", None),
    ],
)
def test_an_answer_that_is_a_text_needs_no_quotes(
    returns: Any, text: str, result: Any, bench: Bench
) -> None:
    found = bench.run(Agent(name="A", returns=returns), [{"text": text}] * 6)

    assert found.termination == ("no_progress" if result is None else "resolved")
    assert found.output == (text if result is None else result)


# Shows M25
def test_what_a_tool_says_of_itself_holds(bench: Bench) -> None:
    @tool(timeout=0.2, approval="none", supports_parallel_execution=True)
    async def slow() -> None:
        """Be slow."""
        await asyncio.Event().wait()

    found = bench.run(
        Agent(name="A", functions=[slow]), [{"calls": [call("slow")]}, {"text": "so"}]
    )

    content = bench.sent(1)[-1]["content"]
    assert "Timeout" in content
    assert found.termination == "resolved"


def test_texts_with_marks_of_other_languages_arrive_unchanged(bench: Bench) -> None:
    text = "Use ${{ secrets.X }}, {braces}, %s and \\n."

    def odd(a: str = "${{ x }}") -> str:
        """Say ${{ y }} and {z}."""
        return a

    agent = Agent(name="A", instructions=text, functions=[odd], settings={"stop": "${{ q }}"})
    found = bench.run(agent, [{"calls": [call("odd", a="${{ z }}")]}, {"text": "${{ w }}"}])

    [offer] = bench.model.requests[0].tools
    assert bench.sent(0)[0]["content"] == text
    assert offer.description == "Say ${{ y }} and {z}."
    assert offer.parameters["properties"]["a"]["default"] == "${{ x }}"
    assert bench.model.requests[0].settings == {"stop": "${{ q }}"}
    assert found.output == "${{ w }}"
    assert bench.sent(1)[-1]["content"] == "${{ z }}"


# Shows M26
def test_a_cancelled_run_is_saved_and_goes_on(bench: Bench, tmp_path: Path) -> None:
    ran, begun = [], asyncio.Event()

    async def work(n: int) -> int:
        ran.append(n)
        begun.set()
        if len(ran) == 1:
            await asyncio.Event().wait()
        return n

    work.effect = "idempotent"  # type: ignore[attr-defined]
    agent = Agent(name="A", functions=[work])

    async def main() -> Response:
        async with Engine(tmp_path / "store") as engine:
            chain = MetaChain(engine, logger=bench.logger)
            with bench.answering({"calls": [call("work", n=1)]}, {"text": "so"}):
                run = asyncio.ensure_future(chain.run_async(agent, ASK, id="run"))
                await begun.wait()
                run.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await run
                assert not engine.executions.result("run").ended
                return await chain.resume_async("run", agent)

    found = asyncio.run(main())

    assert found.termination == "resolved"
    assert ran == [1, 1]
    assert len(bench.model.requests) == 2


def test_images_of_messages_are_files_of_the_execution(bench: Bench, tmp_path: Path) -> None:
    url = "data:image/png;base64," + b64encode(b"\x89PNG\r\n\x1a\n" + b"7" * 60).decode()
    parts = [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": url}},
    ]
    asked = {"role": "user", "content": parts}
    with Engine(tmp_path / "store") as engine, bench.answering({"text": "a dot"}):
        found = MetaChain(engine, logger=bench.logger).run(Agent(name="A"), [asked])
        journal = repr(list(engine.executions.events(found.execution)))
    assert bench.sent(0)[-1]["content"] == parts
    assert found.history[0] == asked
    assert url not in journal
    stored = stored_in(tmp_path / "store")
    assert not [name for name, data in stored.items() if url.encode() in data]


REPLIES = """
- calls: [{name: count, arguments: {}}]
- calls: [{name: stop, arguments: {}}]
- {text: done}
"""
BEGIN = """
from flowengine import Agent, Engine
from flowengine.runner import MetaChain
from tools import count, said, stop

if __name__ == "__main__":
    agent = Agent(
        name="A", model="scripted/replies.yaml", functions=[count, stop], instructions=said
    )
    with Engine("store") as engine:
        MetaChain(engine).run(agent, [{"role": "user", "content": "Go."}], {"k": 1}, id="the-run")
"""


@pytest.mark.endurance
# Shows M87
def test_the_command_line_goes_on_with_functions_that_have_a_name(folder: Path) -> None:
    (folder / "program.py").write_text(BEGIN)
    (folder / "replies.yaml").write_text(REPLIES)
    said = "def said(context: dict) -> str:\n    return f'You are it: {context}'\n"
    (folder / "tools.py").write_text(f"{TOOLS}\n{said}")

    assert subprocess.run([sys.executable, "program.py"], check=False).returncode == -9
    resumed = command_line.flowengine(
        "--store", "store", "--json", "resume", "the-run", "--on-crash", "retry"
    )

    assert resumed.code == 0, resumed.err
    run = resumed.json()["outputs"]["run"]
    assert (run["result"], run["context"]) == ("done", {"k": 1})
    assert (folder / "counted").read_text() == "x"


@pytest.mark.endurance
@pytest.mark.parametrize("way", ["run", "run_async", "stream"])
def test_runs_in_tools_of_runs_are_not_deeper_than_subflows(way: str) -> None:
    levels: list[str] = []

    def again() -> str:
        """Run the agent again."""
        levels.append("begun")
        response = MetaChain().run(agent, [{"role": "user", "content": "Again."}])
        return str(response.output)

    async def again_async() -> str:
        """Run the agent again, on the loop of the run."""
        levels.append("begun")
        response = await MetaChain().run_async(agent, [{"role": "user", "content": "Again."}])
        return str(response.output)

    def again_streamed() -> str:
        """Run the agent again, and read its parts."""
        levels.append("begun")
        *_, last = MetaChain().stream(agent, [{"role": "user", "content": "Again."}])
        return str(last.response.output if last.response else "")

    tool = {"run": again, "run_async": again_async, "stream": again_streamed}[way]
    tool.__name__ = "again"
    agent = Agent(name="A", model="scripted/x", functions=[tool])

    def reply(request: ModelRequest) -> dict[str, Any]:
        answers = [one for one in request.messages if one["role"] == "tool"]
        if answers:
            return {"text": str(answers[-1]["content"])}
        return {"calls": [{"name": "again", "arguments": {}}]}

    with using(ScriptedModel([reply] * 100)):
        response = MetaChain().run(agent, [{"role": "user", "content": "Go."}])

    assert len(levels) == 8
    assert "more than 8 levels deep" in str(response.output)
    with using(ScriptedModel([{"text": "fine"}])):  # a run beside it is not nested in it
        assert MetaChain().run(agent, [{"role": "user", "content": "Go."}]).output == "fine"
