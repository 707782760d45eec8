"""Agents over crashes, approvals in other processes, retries and forks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.agents.models.registry import register, unregister
from flowengine.agents.models.scripted import ScriptedModel
from tests.agents.crashes import crashed, gone_on
from tests.agents.flows import HEAD, NAME, TOOLS, Case, call, flow, told
from tests.testing.faulty_store import FaultyStore, ProcessDied

AGENT = "first: {instructions: You add., tools: [add, boom]}"
SCRIPT: list[Any] = [
    {"calls": [call("add", "c1", a=1, b=2), call("boom", "c2", why="x")]},
    {"calls": [call("add", "c3", a=3, b=4)]},
    {"text": "10"},
]


def approved(approval: str = "ask") -> str:
    return HEAD.replace('"tools:add"}', f'"tools:add", approval: {approval}}}')


def waits(case: Case) -> list[Any]:
    with case.engine_open() as engine:
        return list(engine.executions.show(case.id)["waits"])


@pytest.mark.parametrize("choice", ["result", "retry"])
def test_an_edit_is_known_after_a_crash_during_the_call(tmp_path: Path, choice: str) -> None:
    text = flow(AGENT, head=approved("{edit: true}"))
    calls = [call("add", "c1", a=1, b=2)]
    case = Case(tmp_path, text, [{"calls": calls}, {"text": "so"}], by_turn=True)
    register(NAME, case.model)
    store = FaultyStore(on_write=lambda number, _: die(number))

    def die(number: int) -> None:
        if case.called == ["add 10 2"] and not store.faults:
            store.faults[number] = "die before"

    with Engine(store, workdir=case.folder) as engine:
        [wait] = engine.run(case.path, id="it").waits
    with pytest.raises(ProcessDied), Engine(store, workdir=case.folder) as engine:
        engine.approvals.approve(wait["id"], edit={"a": 10}, comment="ten")
    store.restart()
    with Engine(store, workdir=case.folder) as engine:
        [question] = engine.resume("it").waits
        given: Any = {"value": 12} if choice == "result" else {}
        result = engine.approvals.decide(question["id"], choice, **given).result
        assert result is not None
        assert result.status == "succeeded"
        step = engine.executions.show("it", step="ask/first@1/add")["steps"][0]

    assert case.sent(1)[-1]["content"].replace(": 10", ":10") == (
        '[Before the call was made, a person changed these arguments: {"a":10}]\n\n'
        "[Who approved the call says: ten]\n\n12"
    )
    [earlier] = step["earlier_decisions"]
    assert (earlier["choice"], earlier["edits"]) == ("approve", {"a": 10})
    assert step["subject"] == {"a": 1, "b": 2}
    assert step["decision"]["choice"] == choice


@pytest.fixture
def writes(tmp_path: Path) -> Iterator[int]:
    """Return the number of writes of the script, and keep the model registered."""
    (tmp_path / "calm").mkdir()
    calm = Case(tmp_path / "calm", flow(AGENT), SCRIPT, by_turn=True)
    register(NAME, calm.model)
    store = FaultyStore()
    with Engine(store, workdir=calm.folder) as engine:
        assert engine.run(calm.path).status == "succeeded"
    yield store.writes
    unregister(NAME)


@pytest.mark.endurance
# Shows M87, T74
def test_a_tool_that_must_not_repeat_becomes_a_question_after_a_crash(
    tmp_path: Path, writes: int
) -> None:
    asked = set()
    for write in range(writes):
        folder = tmp_path / f"at{write}"
        folder.mkdir()
        case = Case(folder, flow(AGENT), SCRIPT, by_turn=True)
        register(NAME, case.model)
        store = crashed(case, write, "die before")
        result = gone_on(case, store)
        if result.status == "succeeded":
            continue
        [wait] = result.waits
        asked.add(wait["address"])
        assert wait["kind"] == "question"
        before = len(case.called)
        with Engine(store, workdir=folder) as engine:
            done = engine.approvals.decide(wait["id"], "retry").result
        assert done is not None
        assert done.outputs == {"answer": "10", "agent": "first"}
        assert len(case.called) > before

    assert asked == {
        "ask/first@1/add", "ask/first@1/boom", "ask/first@2/add",
    }  # fmt: skip


@pytest.mark.parametrize(("on_crash", "calls"), [("retry", 2), ("fail", 1)])
def test_a_tool_says_what_follows_a_crash_in_its_call(
    tmp_path: Path, on_crash: str, calls: int
) -> None:
    head = HEAD.replace('"tools:add"}', f'"tools:add", on_crash: {on_crash}}}')
    case = Case(tmp_path, flow(AGENT, head=head), [SCRIPT[1], SCRIPT[2]], by_turn=True)
    register(NAME, case.model)

    def die(number: int) -> None:
        if case.called and not store.faults:
            store.faults[number] = "die before"

    store = FaultyStore(on_write=lambda number, _: die(number))
    with pytest.raises(ProcessDied), Engine(store, workdir=tmp_path) as engine:
        engine.run(case.path, id="it")
    store.restart()
    with Engine(store, workdir=tmp_path) as engine:
        assert engine.resume("it").outputs == {"answer": "10", "agent": "first"}

    assert (len(case.called), len(case.model.requests)) == (calls, 2)
    [*_, (role, text)] = told(case.sent(-1))
    assert role == "tool"
    assert ("7" in text) == (on_crash == "retry")


# Shows M47
def test_a_model_that_fails_loses_nothing(tmp_path: Path) -> None:
    failing: list[Any] = [
        SCRIPT[0],
        {"raise": "ModelError", "message": "overloaded", "retryable": False},
    ]
    case = Case(tmp_path, flow(AGENT), failing)

    result = case.run()
    assert (result.status, result.error["type"]) == ("failed", "ModelError")
    assert "overloaded" in result.error["message"]

    before = case.called
    case.model = ScriptedModel(SCRIPT, by_turn=True)
    with case.engine_open() as engine:
        again = engine.executions.retry(case.id)

    assert again.outputs == {"answer": "10", "agent": "first"}
    assert case.called[: len(before)] == before
    assert case.called[len(before) :] == ["add 3 4"]
    assert [role for role, _ in told(case.sent(0))] == [
        "system", "user", "assistant", "tool", "tool",
    ]  # fmt: skip


@pytest.mark.parametrize(("fails", "at"), [(False, "add#2"), (True, "add")])
def test_a_fork_at_the_second_call_of_a_reply_keeps_the_first(
    tmp_path: Path, fails: bool, at: str
) -> None:
    first = call("boom", "c1", why="x") if fails else call("add", "c1", a=1, b=2)
    script = [{"calls": [first, call("add", "c2", a=3, b=4)]}, {"text": "10"}]
    case = Case(tmp_path, flow(AGENT), script, by_turn=True)
    case.run()
    before = case.called

    with case.engine_open() as engine:
        forked = engine.executions.fork(case.id, from_step=f"ask/first@1/{at}")
        assert engine.executions.diff(case.id, forked.execution)["same"]

    assert (forked.status, forked.outputs) == ("succeeded", {"answer": "10", "agent": "first"})
    assert case.called == [*before, "add 3 4"]
    assert case.sent(-1) == case.sent(1)


AN_INTERRUPTED_TURN = """
first:
  instructions: You add.
  on_crash: {on_crash}
  retry: {{attempts: 2, delay: 1ms}}
  {more}
"""


def interrupted(
    folder: Path, on_crash: str, *, head: str = HEAD, more: str = ""
) -> tuple[Case, FaultyStore]:
    """Return an agent whose process died after the model was asked, before its reply was saved."""
    text = flow(AN_INTERRUPTED_TURN.format(on_crash=on_crash, more=more), head=head)
    case = Case(folder, text, [{"text": "3"}], by_turn=True)
    register(NAME, case.model)

    def die(number: int) -> None:
        if case.model.requests and not store.faults:
            store.faults[number] = "die before"

    store = FaultyStore(on_write=lambda number, _: die(number))
    with pytest.raises(ProcessDied), Engine(store, workdir=folder) as engine:
        engine.run(case.path, id="it")
    store.restart()
    assert len(case.model.requests) == 1
    return case, store


@pytest.mark.parametrize("checked", [False, True], ids=["alone", "beside a check"])
@pytest.mark.parametrize(
    ("choice", "requests", "ended"),
    [("retry", 2, {"answer": "3", "agent": "first"}), ("fail", 1, "Uncertain")],
)
# Shows F31
def test_an_operator_is_asked_about_an_interrupted_turn(
    tmp_path: Path, choice: str, requests: int, ended: Any, checked: bool
) -> None:
    (tmp_path / "tools.py").write_text(TOOLS + "\ndef calm(prompt: str) -> None: ...\n")
    head = HEAD + '  calm: {python: "tools:calm", effect: pure}\n'
    more = "checks: [{before: calm, parallel: true}]" if checked else ""
    case, store = interrupted(tmp_path, "ask", head=head, more=more)

    with Engine(store, workdir=tmp_path) as engine:
        stalled = engine.resume("it")
        [wait] = stalled.waits
        [reason] = engine.executions.why("it")
        asked = len(case.model.requests)
        done = engine.approvals.decide(wait["id"], choice).result

    assert (stalled.status, asked) == ("stalled", 1)
    assert (wait["kind"], wait["address"]) == (
        "question",
        "ask/first@1/first.ahead" if checked else "ask/first@1",
    )
    assert [one["id"] for one in wait["choices"]] == ["retry", "fail"]
    assert [*reason["commands"]] == ["fail", "retry"]
    assert done is not None
    assert len(case.model.requests) == requests
    assert ended in (done.outputs, (done.error or {}).get("type"))


@pytest.mark.parametrize(
    ("on_crash", "requests", "ended"),
    [("retry", 2, {"answer": "3", "agent": "first"}), ("fail", 1, "Uncertain")],
)
def test_an_agent_declares_what_follows_an_interrupted_turn(
    tmp_path: Path, on_crash: str, requests: int, ended: Any
) -> None:
    case, store = interrupted(tmp_path, on_crash)

    with Engine(store, workdir=tmp_path) as engine:
        done = engine.resume("it")

    assert len(case.model.requests) == requests
    assert ended in (done.outputs, (done.error or {}).get("type"))


def test_a_turn_that_asks_after_a_crash_is_still_retried_after_an_error(tmp_path: Path) -> None:
    text = flow(AN_INTERRUPTED_TURN.format(on_crash="ask", more=""))
    failing: list[Any] = [{"raise": "ModelError", "retryable": True}, {"text": "3"}]
    case = Case(tmp_path, text, failing, by_turn=True)

    assert case.run().outputs == {"answer": "3", "agent": "first"}
    assert len(case.model.requests) == 2
