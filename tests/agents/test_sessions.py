# Shows G5
"""Sessions: runs that continue one conversation, which is one execution."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from flowengine import Agent, AgentRunFailed, Engine, Runner
from flowengine.agents.models import using
from flowengine.agents.models.port import ModelRequest
from flowengine.agents.models.scripted import ScriptedModel
from flowengine.errors import UsageError
from flowengine.runner.session_places import session_id
from flowengine.tool_environment import tool
from tests.agents.flows import call
from tests.testing.faulty_store import Fault, FaultyStore, ProcessDied

SESSION = "ana@example.com"
DEATHS: tuple[Fault, ...] = ("die before", "die after")


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def clerk(**more: Any) -> Agent:
    return Agent(name="Clerk", model="scripted/x", tools=[add], **more)


@pytest.fixture
def engine(tmp_path: Path) -> Any:
    with Engine(tmp_path / "store") as engine:
        yield engine


def test_messages_go_to_no_execution_that_has_taken_the_id(engine: Engine, tmp_path: Path) -> None:
    """A client of a server can choose the id, but not the label."""
    flow = tmp_path / "other.yaml"
    flow.write_text("flowengine: 1\nid: other\nsteps: [{id: ask, approval: Well?}]\n")
    taken = engine.acting_as("user:mallory", via="rest").start(flow, id=session_id(SESSION))
    with using(ScriptedModel([{"text": "Hello"}, {"text": "Bye"}])):
        first = Runner(engine).run(clerk(), "I am Ana", session=SESSION)
        second = Runner(engine).run(clerk(), "And now?", session=SESSION)
    assert (first.output, second.output) == ("Hello", "Bye")
    assert first.execution == second.execution != taken


def test_each_run_continues_the_conversation(engine: Engine) -> None:
    script: list[Any] = [{"text": "Hello Ana"}, {"calls": [call("add", a=1, b=2)]}, {"text": "3"}]
    model = ScriptedModel(script)
    with using(model):
        first = Runner(engine).run(clerk(), "I am Ana", session=SESSION)
        second = Runner(engine).run(clerk(), "1 + 2?", session=SESSION)

    assert (first.output, first.termination, first.waits) == ("Hello Ana", "resolved", [])
    assert (second.output, second.termination, second.waits) == ("3", "resolved", [])
    assert [one["role"] for one in second.messages] == ["assistant", "tool", "assistant"]
    assert len(second.history) == 6
    assert second.history[:2] == [{"role": "user", "content": "I am Ana"}, first.messages[0]]
    assert [one["content"] for one in model.requests[1].messages][1:] == [
        *("I am Ana", "Hello Ana", "1 + 2?")
    ]
    [execution] = engine.executions.list(labels={"session": SESSION}).items
    assert execution["execution"] == first.execution == second.execution


def test_without_an_engine_it_is_kept_in_the_folder(folder: Path) -> None:
    with using(ScriptedModel([{"text": "one"}, {"text": "two"}])):
        for said in ("first", "second"):
            found = Runner().run(clerk(), said, session="s")
    assert [one["content"] for one in found.history] == ["first", "one", "second", "two"]
    assert (folder / ".flowengine").is_dir()


def test_on_a_loop_and_in_parts_it_is_the_same(engine: Engine) -> None:
    async def talk() -> list[Any]:
        runner = Runner(engine)
        await runner.run_async(clerk(), "1", session="s")
        await runner.run_async(clerk(), "2", session="s")
        return [one async for one in runner.stream_async(clerk(), "3", session="s")]

    with using(ScriptedModel([{"text": "one"}, {"text": "two"}, {"text": "three"}])):
        parts = asyncio.run(talk())
    assert "".join(one.text for one in parts if one.kind == "text") == "three"
    assert [one["content"] for one in parts[-1].response.history][1::2] == ["one", "two", "three"]


def test_a_call_that_asks_is_decided_before_more_is_said(engine: Engine) -> None:
    agent = clerk(approvals={"add": "required"})
    script: list[Any] = [{"calls": [call("add", a=1, b=2)]}, {"text": "3"}, {"text": "bye"}]
    with using(ScriptedModel(script)):
        first = Runner(engine).run(agent, "1 + 2?", session="s")
        assert (first.termination, [one["tool"] for one in first.waits]) == ("", ["add"])
        with pytest.raises(UsageError, match="waits: Call add: a 1, b 2") as refused:
            Runner(engine).run(agent, "well?", session="s")
        assert f"resume({first.execution!r}, agent)" in (refused.value.hint or "")

        engine.approvals.approve(first.waits[0]["id"], resume=False)
        told = Runner(engine).resume(first.execution, agent)
        assert (told.output, told.termination, told.waits) == ("3", "resolved", [])
        assert Runner(engine).run(agent, "thanks", session="s").output == "bye"


def test_agents_that_have_changed_go_on_with_it(engine: Engine) -> None:
    model = ScriptedModel([{"text": "one"}, {"text": "two"}])
    with using(model):
        Runner(engine).run(clerk(instructions="Be short."), "1", session="s")
        found = Runner(engine).run(clerk(instructions="Be long."), "2", session="s")
    assert [one.messages[0]["content"] for one in model.requests] == ["Be short.", "Be long."]
    assert len(found.history) == 4


def test_what_no_model_answers_is_asked_again_by_saying_it_again(engine: Engine) -> None:
    down = {"raise": "ModelError", "message": "the model is down", "retryable": False}
    with using(ScriptedModel([down, down, {"text": "3"}, {"text": "bye"}])):
        for _ in range(2):
            with pytest.raises(AgentRunFailed, match="ModelError: the model is down"):
                Runner(engine).run(clerk(), "1 + 2?", session="s")
        assert Runner(engine).run(clerk(), "1 + 2?", session="s").output == "3"
        found = Runner(engine).run(clerk(), "thanks", session="s")
    assert [one["content"] for one in found.history] == ["1 + 2?", "3", "thanks", "bye"]


def test_its_variables_are_those_of_the_first_run(engine: Engine) -> None:
    seen: list[Any] = []

    def note(context_variables: dict[str, Any]) -> str:
        """Note it."""
        seen.append((context_variables["user"], context_variables["db"]))
        return "noted"

    agent = Agent(name="Clerk", model="scripted/x", tools=[note])
    one, other = object(), object()
    script: list[Any] = [
        {"calls": [call("note")]},
        {"text": "a"},
        {"calls": [call("note")]},
        {"text": "b"},
    ]
    with using(ScriptedModel(script)):
        run = Runner(engine).run
        run(agent, "1", {"user": "ana", "db": one}, session="s")
        run(agent, "2", {"user": "ana", "db": other}, session="s")
        with pytest.raises(UsageError, match="has another value of 'user'"):
            run(agent, "3", {"user": "eve"}, session="s")
    assert seen == [("ana", one), ("ana", other)]


@pytest.mark.parametrize(
    ("messages", "options", "told"),
    [
        ([{"role": "user", "content": "a"}] * 2, {}, "begins with one message of the user"),
        (" ", {}, "begins with one message of the user"),
        ("a", {"id": "x"}, "which is an execution by itself"),
        ("a", {"session": ""}, "give it a name"),
        ("a", {"session": 5}, "give it a name"),
    ],
)
def test_what_no_session_can_take(
    engine: Engine, messages: Any, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(UsageError) as refused:
        Runner(engine).run(clerk(), messages, **{"session": "s", **options})
    assert told in f"{refused.value.message} {refused.value.hint}"
    assert not engine.executions.list().items


def test_budget_rules_and_labels_hold_for_a_run(engine: Engine) -> None:
    script: list[Any] = [{"calls": [call("add", a=1, b=2)]}] * 4
    with using(ScriptedModel(script)):
        denied = Runner(engine).run(
            clerk(),
            "1 + 2?",
            rules=[{"deny": "add", "agent": "Clerk"}],
            budget={"tool_calls": 1},
            labels={"team": "blue"},
            max_turns=2,
        )
        spent = Runner(engine).run(clerk(), "1 + 2?", budget={"tool_calls": 1})
    assert "Refused" in str(denied.messages[1]["content"])
    assert spent.termination == "budget"
    assert engine.executions.list(labels={"team": "blue"}).items[0]["execution"] == denied.execution
    with pytest.raises(UsageError, match="tokenz"):
        Runner(engine).run(clerk(), "1 + 2?", budget={"tokenz": 1})


@pytest.mark.endurance
def test_it_survives_a_crash_at_any_write(tmp_path: Path) -> None:
    """Unanswered messages are sent again: they are answered, and no call is repeated."""

    @tool(effect="idempotent")
    def double(n: int) -> int:
        """Double a number."""
        return 2 * n

    agent = Agent(name="Clerk", model="scripted/x", tools=[double])
    said = ["Hi", "2 * 4?"]

    def answer(request: ModelRequest) -> Any:
        newest = request.messages[-1]
        if newest["role"] == "tool":
            return {"text": "8"}
        return {"text": "Hello"} if newest["content"] == "Hi" else {"calls": [call("double", n=4)]}

    def talk(store: FaultyStore, begin: int) -> Any:
        """Send the remaining messages. Return the last response, or how many were answered."""
        found: Any = begin
        with suppress(ProcessDied), using(ScriptedModel([answer] * 9)), Engine(store) as engine:
            for place in range(begin, len(said)):
                found = place
                found = Runner(engine).run(agent, said[place], session="s")
        return found

    whole = FaultyStore()
    expected = talk(whole, 0).history
    for write, fault in itertools.product(range(whole.writes), DEATHS):
        store = FaultyStore(faults={write: fault})
        found = talk(store, 0)
        if isinstance(found, int):
            store.restart()
            store.faults.clear()
            found = talk(store, found)
        roles = [one["role"] for one in found.history]
        exchanges = [one["content"] for one in found.history if one["role"] == "user"]
        # A process that died after the answer was stored cannot have returned it.
        assert [*dict.fromkeys(exchanges)] == said, (write, fault)
        assert len(exchanges) <= len(said) + 1, (write, fault)
        assert found.history[-len(expected[2:]) :][-1] == expected[-1], (write, fault)
        if len(exchanges) == len(said):
            assert roles == [one["role"] for one in expected], (write, fault)


def polite(prompt: str) -> None:
    """Refuse rude words."""
    if "idiot" in prompt:
        raise ValueError("mind your words")


def short(prompt: str) -> None:
    """Refuse long messages."""
    if len(prompt) > 30:
        raise ValueError("be brief")


def desk(*, mutual: bool = False, strict: bool = False) -> tuple[Agent, Agent]:
    checks: list[Any] = [{"before": short}] if strict else []
    billing = Agent(name="Billing", model="scripted/x", tools=[add], checks=checks)
    triage = Agent(
        name="Triage", model="scripted/x", handoffs=[billing], checks=[{"before": polite}]
    )
    if mutual:
        billing.handoffs.append(triage)
    return triage, billing


@pytest.mark.parametrize("mutual", [False, True])
def test_the_agent_that_was_handed_off_to_may_be_passed_next(engine: Engine, mutual: bool) -> None:
    script: list[Any] = [
        {"calls": [call("transfer_to_Billing")]}, {"text": "Billing here"}, {"text": "3"},
        *([{"calls": [call("transfer_to_Triage")]}, {"text": "Triage"}] if mutual else []),
        {"text": "bye"},
    ]  # fmt: skip
    agent: Agent | None = desk(mutual=mutual)[0]
    results = []
    with using(ScriptedModel(script)):
        for said in ("money", "1 + 2?", *(["back"] if mutual else []), "thanks"):
            assert agent is not None
            found = Runner(engine).run(agent, said, session="s")
            agent = found.agent
            results.append((found.output, agent.name if agent else ""))
        if not mutual:  # the one that it began with still knows the other
            assert len(Runner(engine).run(desk()[0], "idiot", session="s").history) == 8
    ends = [("Triage", "Triage"), ("bye", "Triage")] if mutual else [("bye", "Billing")]
    assert results == [("Billing here", "Billing"), ("3", "Billing"), *ends]


def test_an_agent_that_does_not_know_the_one_that_answers_is_refused(engine: Engine) -> None:
    with using(ScriptedModel([{"text": "hello"}])):
        Runner(engine).run(clerk(), "hi", session="s")
        with pytest.raises(UsageError, match="'Clerk' answers in the session 's'") as refused:
            Runner(engine).run(desk()[1], "hi", session="s")
    assert "agents=[…]" in str(refused.value.hint)


@pytest.mark.parametrize("strict", [False, True])
def test_checks_of_the_first_agent_see_every_message(engine: Engine, strict: bool) -> None:
    script: list[Any] = [
        {"calls": [call("transfer_to_Billing")]}, {"text": "Billing here"}, {"text": "3"},
        {"text": "Well."},
    ]  # fmt: skip
    triage, _ = desk(strict=strict)
    seen: list[tuple[str, str, str]] = []
    model = ScriptedModel(script)
    with using(model):
        for said in ("money", "you idiot", "1 + 2?", "and what is a very long question?"):
            found = Runner(engine).run(triage, said, session="s")
            seen.append((found.termination, found.reason, str(found.output)))
    refused = "not_resolved", "polite refused what was asked: ValueError: mind your words", ""
    too_long = "not_resolved", "short refused what was asked: ValueError: be brief", ""
    assert seen == [
        ("resolved", "", "Billing here"), refused, ("resolved", "", "3"),
        too_long if strict else ("resolved", "", "Well."),
    ]  # fmt: skip
    told = [one["content"] for one in found.history if one["role"] == "user"]
    assert told == ["money", "1 + 2?", *([] if strict else ["and what is a very long question?"])]


def test_idle_sessions_are_no_approvals_and_prune_removes_them(engine: Engine) -> None:
    asks = clerk(approvals={"add": "required"})
    script: list[Any] = [{"text": "hi"}] * 20 + [{"calls": [call("add", a=1, b=2)]}]
    with using(ScriptedModel(script)):
        for user in range(20):
            parts = list(Runner(engine).stream(clerk(), "hi", session=f"user {user}"))
            assert "question" not in [part.kind for part in parts]
        waiting = Runner(engine).run(asks, "1 + 2?", session="refund")
    assert [wait["tool"] for wait in engine.approvals.list().items] == ["add"]
    assert len(engine.approvals.list(kinds=["session"]).items) == 20
    [own] = engine.approvals.list(execution=parts[-1].execution).items
    assert (own["kind"], own["chat"]) == ("session", True)
    [reason] = engine.executions.why(parts[-1].execution)
    assert reason["what"] == "waiting for the next message of its session"

    assert engine.executions.prune(older_than="1h").executions == 0
    assert engine.executions.prune(status=["cancelled"]).executions == 0
    assert engine.executions.prune().executions == 20
    assert [one["execution"] for one in engine.executions.list().items] == [waiting.execution]
    with using(ScriptedModel([{"text": "again"}])):
        assert len(Runner(engine).run(clerk(), "hi", session="user 0").history) == 2


@pytest.mark.parametrize("session", [None, "s"])
@pytest.mark.parametrize("last", [False, True])
def test_a_run_is_resumed_with_either_agent_of_a_handoff(
    engine: Engine, session: str | None, last: bool
) -> None:
    def pay(amount: int) -> str:
        return f"paid {amount}"

    billing = Agent(name="Billing", model="scripted/x", tools=[pay], approvals={"pay": "required"})
    triage = Agent(name="Triage", model="scripted/x", tools=[add], handoffs=[billing])
    script: list[Any] = [
        {"calls": [call("add", a=1, b=2), call("transfer_to_Billing")]},
        {"calls": [call("pay", amount=3)]}, {"text": "done"},
    ]  # fmt: skip
    options: Any = {} if session is None else {"session": session}
    with using(ScriptedModel(script)):
        waiting = Runner(engine).run(triage, "hi", **options)
        assert waiting.agent is billing
        engine.approvals.approve(waiting.waits[0]["id"], resume=False)
        agent = billing if last else triage
        parts = list(Runner(engine).resume_stream(waiting.execution, agent))
    results = [(part.agent, part.tool, part.value) for part in parts if part.kind == "tool_result"]
    assert results == [("Billing", "pay", "paid 3")]
    assert parts[-1].response is not None
    assert (parts[-1].response.agent, parts[-1].response.output) == (billing, "done")
