# Shows M88
"""`Agent`, `Result`, `Response`: defaults and validation."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest

from flowengine import (
    Agent,
    AsyncClient,
    Client,
    Engine,
    Flow,
    Response,
    Result,
    Runner,
    cel,
    quick,
)
from flowengine.agents.agent import instructions_of
from flowengine.engines.host import SystemClock
from flowengine.errors import UsageError
from flowengine.runner import LoggerManager, MetaChain
from flowengine.sdk import StepError, ValidationError
from flowengine.tool_environment import CallbackAuthority, tool
from tests.rows import each_row


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def takes_socket(line: socket.socket) -> None: ...
def stars(*numbers: int) -> None: ...


def takes_more(answer: str, length: int) -> None: ...
def checks(answer: str) -> None: ...


def other_add(prompt: str) -> None: ...


other_add.__name__ = "add"


def dotted(name: str) -> Any:
    def function() -> None: ...

    function.__name__ = name
    return function


# Shows M1
def test_an_agent_has_its_defaults() -> None:
    agent = Agent()

    assert agent.name == "Agent"
    assert agent.model == "gpt-4o"
    assert agent.instructions == "You are a helpful agent."
    assert agent.functions == []
    assert agent.tool_choice is None
    assert agent.parallel_tool_calls is True
    assert agent.context_variables_description == ""


def test_the_variable_names_the_model_of_an_agent_that_names_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FLOWENGINE_MODEL", "openai/small")

    assert Agent().model == "openai/small"
    assert Agent(model="openai/large").model == "openai/large"


def test_tools_are_what_use_tools_takes_and_functions_is_another_name_of_them() -> None:
    agent = Agent(tools=[add, "std.search_files", Agent(name="Expert").as_tool()])
    agent.functions.append(other_add)

    assert agent.tools is agent.functions
    assert [getattr(one, "name", "") or one.__name__ for one in agent.tools][:2] == [
        "add",
        "expert",
    ]
    assert [one.name for one in agent.ready] == ["std.search_files"]
    agent.functions = [add]
    assert agent.tools == [add]
    with pytest.raises(UsageError, match="is given tools and functions"):
        Agent(tools=[add], functions=[add])
    with pytest.raises(UsageError, match="there is no built-in tool 'std\\.reed'"):
        Agent(tools=["std.reed"])
    with pytest.raises(UsageError, match="add it to handoffs, or give its as_tool"):
        Agent(tools=[agent])


# Shows M2
def test_responses_and_results_share_nothing() -> None:
    assert (Response().messages, Response().agent, Response().context_variables) == ([], None, {})
    assert (Result().value, Result().agent, Result().context_variables) == ("", None, {})

    Response().messages.append({})
    Response().context_variables["a"] = 1
    Result().context_variables["a"] = 1
    Agent().functions.append(add)

    assert Response().messages == []
    assert Response().context_variables == Result().context_variables == {}
    assert Agent().functions == []


# Shows M1
def test_a_description_of_the_context_is_part_of_the_instructions() -> None:
    def told(ctx: dict[str, Any]) -> str:
        return f"n is {ctx['n']}"

    assert instructions_of("a", "Help.", "", {}) == "Help."
    assert instructions_of("a", "Help.", "n: a number", {}) == "Help.\n\nn: a number"
    assert instructions_of("a", told, "", {"n": 2}) == "n is 2"
    assert instructions_of("a", lambda: "Help.", "", {}) == "Help."


@each_row(
    ("fields", "told"),
    [
        ({"functions": [3]}, "agent 'A': 3 is not a function"),
        ({"functions": [stars]}, "agent 'A': the parameter '*numbers' of stars"),
        ({"functions": [takes_socket]}, "agent 'A': the parameter 'line' of takes_socket"),
        ({"checks": [{"before": lambda a: a}]}, "agent 'A': a lambda has no name"),
    ],
)
# Shows M89
def test_what_is_wrong_with_an_agent_is_told_when_it_is_built(
    fields: dict[str, Any], told: str
) -> None:
    with pytest.raises(UsageError) as raised:
        Agent(name="A", **fields)

    assert told in raised.value.message


CHECKED = [
    ({"model": " "}, "no model is named"),
    ({"checks": [{"around": add}]}, "checks[0].around: unknown key 'around' in a check"),
    ({"checks": [{"before": add, "then": "stop"}]}, "checks[0].then: expected 'tell' or 'end'"),
    ({"checks": [{"after": takes_more}]}, "'takes_more' needs 'length'"),
    ({"checks": [{"after": checks}] * 2}, "checks[1].after: 'checks' checks this twice"),
    ({"context": "shorten"}, "context.reduce: there is no tool 'shorten'"),
    ({"context": {"tokens": 0}}, "context.tokens: expected a whole number of 1 or more"),
    ({"context": {"reduce": add}}, "context.reduce: 'add' takes no 'messages'"),
    ({"functions": [dotted("case_resolved")]}, "agents get 'case_resolved' from 'finish'"),
    ({"functions": [dotted("a.b"), dotted("a__b")]}, "would call both 'a.b' and 'a__b' 'a__b'"),
    ({"functions": [add], "limits": {"ad": {"calls": 1}}}, "limits names 'ad', which is not"),
    ({"functions": [add], "limits": {"calls": 0}}, "limits.calls: expected a whole number of 1"),
    ({"functions": [add], "limits": {"add": {"calls": 0}}}, "tool 'add': limits.calls: expected"),
    ({"functions": [add], "limits": {"add": {"size": 1}}}, "tool 'add': limits.size: unknown key"),
]


@each_row(("fields", "told"), CHECKED)
def test_what_is_wrong_between_its_parts_is_told_when_it_is_compiled(
    fields: dict[str, Any], told: str
) -> None:
    with pytest.raises(UsageError) as raised:
        Runner().compile([Agent(name="A", **fields)])

    assert raised.value.message.startswith(("agent 'A'", "tool 'add'"))
    assert told in raised.value.message


def test_a_fault_is_told_with_the_name_that_the_program_gave_the_agent() -> None:
    with pytest.raises(UsageError, match=r"^agent 'Tax expert': context\.tokens: expected"):
        Runner().compile([Agent(name="Tax expert", context={"tokens": 0})])


def test_a_tool_and_a_check_may_have_one_name() -> None:
    agent = Agent(name="A", functions=[add], checks=[{"before": other_add}])

    assert Runner().compile([agent])


@each_row(
    ("field", "error", "told"),
    [
        ("examples", UsageError, r"run\(agent, \[\*examples, message\]\)"),
        ("handle_mm_func", UsageError, "Result"),
        ("instrutions", TypeError, "did you mean 'instructions'"),
    ],
)
def test_a_field_that_there_is_not_is_told_with_what_to_write_instead(
    field: str, error: type[Exception], told: str
) -> None:
    fields: dict[str, Any] = {field: None}
    with pytest.raises(error, match=told):
        Agent(name="A", **fields)


def test_a_parameter_for_an_environment_needs_no_schema() -> None:
    assert Agent(functions=[takes_socket], environments=["line"]).functions == [takes_socket]


def _raises() -> str:
    raise ZeroDivisionError("by zero")


@each_row(
    ("instructions", "told"),
    [
        (_raises, "the instructions of agent 'A' raised ZeroDivisionError: by zero"),
        (lambda: 3, "the instructions of agent 'A' are a int"),
    ],
)
def test_instructions_that_fail_name_the_agent(instructions: Any, told: str) -> None:
    with pytest.raises(ValidationError) as raised:
        instructions_of("A", instructions, "", {})

    assert told in raised.value.message


def test_a_tool_that_does_not_come_with_the_engine_is_told_at_once() -> None:
    with pytest.raises(UsageError, match="there is no built-in tool 'std") as told:
        Agent(name="A").use_tools("std.read_fil")
    assert told.value.hint == "did you mean 'std.read_file'?"


ADA = Agent(name="Ada")
ONE = Flow("one")
ONE.step(add, with_={"a": 1, "b": 2})
WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "the function 'add' is not an agent": (
        lambda: list(Runner().stream(add, "hello")),  # type: ignore[arg-type]
        "give an Agent first, and then the messages: run(agent, messages)",
    ),
    "agents must be a list, not the Agent 'Ada'": (
        lambda: Runner().compile(ADA),  # type: ignore[arg-type]
        "write agents=[…]",
    ),
    "agents must be a list, not 'Bob'": (
        lambda: Runner().run(ADA, "hello", agents="Bob"),  # type: ignore[arg-type]
        "write agents=[…]",
    ),
    "rules must be a list, not 5": (
        lambda: Runner().run(ADA, "hello", rules=5),  # type: ignore[arg-type]
        "write rules=[…]",
    ),
    "session is an object": (
        lambda: Runner().run(ADA, "hello", session=object()),  # type: ignore[arg-type]
        "give it a name: session='ana'",
    ),
    "agent 'Agent': instructions must be text or a function, not 5; repeats must be 0 or more, "
    "not -1": (
        lambda: Agent(instructions=5, repeats=-1),  # type: ignore[arg-type]
        "write one text, or a function that returns it",
    ),
    "agent 'Agent': model[1] must be text, not 3": (
        lambda: Agent(model=["openai/gpt-4o", 3]),  # type: ignore[list-item]
        "write the name of one: Agent(model='openai/gpt-5')",
    ),
    "agent 'Agent': checks[0] is an object": (
        lambda: Agent(checks=[object()]),
        "say {'before': function} or {'after': function}",
    ),
    "servers must be a dict, not 5": (
        lambda: Agent().use_mcp(5),  # type: ignore[arg-type]
        "write servers={'key': value}",
    ),
    "'add' is not a function": (
        lambda: tool("add"),  # type: ignore[call-overload]
        "write @tool above the function",
    ),
    "5 is not a function": (
        lambda: quick(5),  # type: ignore[type-var]
        "write @quick above the function",
    ),
    "5 is not a store": (
        lambda: Engine(5),  # type: ignore[arg-type]
        "give a directory or an address, or None for a store in memory",
    ),
    "inputs must be a dict, not a list": (
        lambda: Engine(None).run(ONE, ["a"]),  # type: ignore[arg-type]
        "write inputs={'key': value}",
    ),
    "labels must be a dict, not 'a'": (
        lambda: Engine(None).run(ONE, labels="a"),  # type: ignore[arg-type]
        "write labels={'key': value}",
    ),
    "runtime_resources must be a dict, not 5": (
        lambda: Engine(None).run(ONE, runtime_resources=5),  # type: ignore[arg-type]
        "write runtime_resources={'key': value}",
    ),
    "5 is not a valid execution id": (
        lambda: Engine(None).run(ONE, id=5),  # type: ignore[arg-type]
        "up to 128 letters, digits and . _ -, starting with a letter or digit",
    ),
    "'print' is not a function": (
        lambda: Engine(None).subscribe("print"),  # type: ignore[arg-type]
        "it takes an Update",
    ),
}
"""What is said → a call with a wrong argument, and what to do."""


@each_row("message", WRONG)
# Shows G4
def test_a_wrong_argument_is_an_error_with_a_remedy(message: str) -> None:
    call, hint = WRONG[message]

    with pytest.raises(UsageError) as caught:
        call()

    assert caught.value.message.startswith(message)
    assert (caught.value.hint or "") == hint


OWN = "write {0}=Own(), where the class Own defines {1}"
CONSTRUCTED: list[tuple[Callable[..., Any], dict[str, Any], str, str]] = [
    (Engine, {"clock": 5}, "an object with now(), not 5", OWN.format("clock", "now()")),
    (Engine, {"clock": SystemClock}, "an object with now(), not the class 'SystemClock'", ""),
    (Engine, {"ids": "x"}, "an object with execution() and message(), not 'x'", ""),
    (Engine, {"tool_authority": add}, "an object with approve_tool(), not the function 'add'", ""),
    (Engine, {"user": 5}, "text, not 5", "write user='…'"),
    (Engine, {"via": ["cli"]}, "text, not a list", "write via='…'"),
    (Engine, {"workdir": 5}, "a path, not 5", "write workdir='…'"),
    (
        Engine,
        {"runtime_resources": "x"},
        "a dict, not 'x'",
        "write runtime_resources={'key': value}",
    ),
    (Flow, {"id": 5}, "text, not 5", "write id='…'"),
    (Flow, {"id": "f", "folder": 5}, "a path, not 5", "write folder='…'"),
    (ONE.subflow, {"id": None}, "text, not None", "write id='…'"),
    (cel, {"text": 5}, "text, not 5", "write text='…'"),
    (Client, {"url": 5}, "text, not 5", "write url='…'"),
    (Client, {"token": ["x"]}, "text, not a list", "write token='…'"),
    (AsyncClient, {"timeout": "1s"}, "a number, not '1s'", "write timeout=30"),
    (Client, {"url": "http://localhost:1", "token": "t", "transport": 5}, "an object with ", ""),
    (Runner, {"model": 5}, "text, not 5", "write model='…'"),
    (Runner, {"logger": 5}, "an object with log(), not 5", OWN.format("logger", "log()")),
    (MetaChain, {"log_path": 5}, "a path, not 5", "write log_path='…'"),
    (LoggerManager, {"level": 5}, "text, not 5", "write level='…'"),
    (LoggerManager, {"file": 5}, "a path, not 5", "write file='…'"),
    (LoggerManager, {"console": "err"}, "an object with write(), not 'err'", ""),
    (
        CallbackAuthority,
        {"callback": bool, "timeout": "1s"},
        "a number, not '1s'",
        "write timeout=30",
    ),
]
"""Constructors, wrong arguments of which the last is told, what it must be, and what to do."""


@each_row(("kind", "given", "must", "hint"), CONSTRUCTED)
def test_constructors_refuse_what_they_could_not_use(
    kind: Callable[..., Any], given: dict[str, Any], must: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        kind(**given)

    assert caught.value.message.startswith(f"{[*given][-1]} must be {must}")
    assert (caught.value.hint or "").startswith(hint)


@each_row(
    ("given", "message"),
    [
        ({"durability": "all"}, "durability is 'all'"),
        ({"linger": "x"}, "linger is 'x'"),
        ({"ttl": -1}, "ttl is -1"),
        ({"linger": object()}, "linger is an object"),
        ({"ttl": float("nan")}, "ttl is nan"),
    ],
)
def test_an_engine_refuses_words_and_times_that_it_does_not_know(
    given: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        Engine(None, **given)

    assert caught.value.message == message
    assert caught.value.hint


def test_the_message_of_an_error_may_be_another_error() -> None:
    assert StepError(ValueError("no")).message == "no"  # type: ignore[arg-type]


def test_no_message_says_where_an_object_is_in_memory() -> None:
    for error in (UsageError, ValidationError):
        raised = error(f"{object()!r} and {add!r} do not fit, at 0x10 in the file")
        text = "<object object> and <function add> do not fit, at 0x10 in the file"
        assert (str(raised), raised.message) == (text, text)
