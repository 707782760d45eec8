# Shows G3
"""Objects of a run that reach functions by their class, and nobody else."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from flowengine import Agent, Engine, Runner, UsageError
from flowengine.testing import call, scripted
from tests.rows import each_row

SECRET = "xyzzy-not-to-be-seen"


@dataclass
class Deps:
    """Objects that cannot be stored."""

    name: str = SECRET
    lock: Any = field(default_factory=threading.Lock)
    seen: list[str] = field(default_factory=list)


class Sub(Deps):
    pass


class Above:
    pass


class Below(Above):
    pass


def which(given: Above) -> str:
    """Say which."""
    return type(given).__name__


def look(word: str, given: Deps) -> str:
    """Look a word up."""
    given.seen.append(word)
    return f"{word} found"


def also(deps: Deps, number: int) -> int:
    """Double a number."""
    assert deps.lock.acquire(blocking=False)
    deps.lock.release()
    return 2 * number


def told(whom: Deps) -> str:
    whom.seen.append("instructions")
    return "Be brief."


def told_both(variables: dict[str, Any], whom: Deps) -> str:
    whom.seen.append(variables["word"])
    return "Be brief."


def checked(answer: str, deps: Deps) -> None:
    deps.seen.append(f"checked {answer}")


def test_they_reach_tools_checks_and_instructions_by_their_class() -> None:
    agent = Agent(
        name="A", deps=Deps, tools=[look, also], instructions=told, checks=[{"after": checked}]
    )
    deps = Sub()
    with scripted(call("look", word="rain"), call("also", number=4), "Done.") as model:
        response = agent.run("Go.", deps=deps)

    assert response.output == "Done."
    assert [text for text in deps.seen if text != "instructions"] == ["rain", "checked Done."]
    assert deps.seen.count("instructions") == 3
    offered = {tool.name: tool.parameters for tool in model.requests[0].tools}
    assert list(offered["look"]["properties"]) == ["word"]
    assert list(offered["also"]["properties"]) == ["number"]


def test_instructions_take_them_beside_the_context_variables() -> None:
    deps = Deps()
    with scripted("Hello."):
        Agent(name="A", deps=Deps, instructions=told_both).run(
            "Go.", deps=deps, context_variables={"word": "w"}
        )
    assert deps.seen == ["w"]


def test_they_are_in_no_record_and_no_request(tmp_path: Path) -> None:
    agent = Agent(name="A", deps=Deps, tools=[look])
    with scripted(call("look", word="rain"), "Done.") as model, Engine(tmp_path) as engine:
        response = agent.run("Go.", deps=Deps(), engine=engine)
        shown = [
            engine.executions.show(response.execution),
            list(engine.executions.events(response.execution)),
            [request.messages for request in model.requests],
        ]
    assert SECRET not in json.dumps(shown, default=str)
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert kept
    assert not [path for path in kept if SECRET.encode() in path.read_bytes()]


def test_another_process_is_given_them_again(tmp_path: Path) -> None:
    agent = Agent(name="A", deps=Deps, tools=[look], approvals={"look": "ask"})
    with scripted(call("look", word="rain")), Engine(tmp_path) as engine:
        waiting = agent.run("Go.", deps=Deps(), engine=engine)
        engine.approvals.approve(waiting.waits[0]["id"], by="user:ada", resume=False)
    deps = Deps()
    with scripted("Done."), Engine(tmp_path) as engine:
        with pytest.raises(UsageError, match="takes deps of the class 'Deps', and none are given"):
            Runner(engine).resume(waiting.execution, agent)
        response = Runner(engine).resume(waiting.execution, agent, deps=deps)
    assert (response.output, deps.seen) == ("Done.", ["rain"])


def test_a_parameter_of_a_class_above_takes_them() -> None:
    with scripted(call("which"), "Done."):
        response = Agent(name="A", deps=Below, tools=[which]).run("Go.", deps=Below())
    assert "Below" in response.messages[1]["content"]


def test_agents_that_it_hands_off_to_take_them_too() -> None:
    other = Agent(name="B", deps=Deps, tools=[look])
    deps = Deps()
    with scripted(call("transfer_to_B"), call("look", word="rain"), "Done."):
        Agent(name="A", deps=Deps, handoffs=[other]).run("Go.", deps=deps)
    assert deps.seen == ["rain"]


WRONG: dict[str, tuple[Any, str]] = {
    "agent 'A' takes deps of the class 'Deps', and none are given": (
        lambda: Agent(name="A", deps=Deps).run("Go."),
        "write deps=Deps(…)",
    ),
    "agent 'A' takes deps of the class 'Deps', and the class 'Deps' is given": (
        lambda: Agent(name="A", deps=Deps).run("Go.", deps=Deps),  # type: ignore[arg-type]
        "write deps=Deps(…)",
    ),
    "agent 'A': deps is the class 'dict', whose values models give": (
        lambda: Agent(name="A", deps=dict),
        "write a class with the values that the functions need",
    ),
    "runtime_resources has 'given', and a parameter of this name takes deps": (
        lambda: Agent(name="A", deps=Deps, tools=[look]).run(
            "Go.", deps=Deps(), runtime_resources={"given": 1}
        ),
        "give it once",
    ),
    "deps are given, and no agent takes them": (
        lambda: Agent(name="A").run("Go.", deps=Deps()),
        "write Agent(deps=Deps)",
    ),
}


@each_row("message", WRONG)
def test_what_is_wrong_is_said_before_a_model_is_called(message: str) -> None:
    make, hint = WRONG[message]
    with scripted(), pytest.raises(UsageError) as raised:
        make()
    assert raised.value.message == message
    assert hint in str(raised.value.hint)
