# Shows G5
"""Sessions of a store: read, seeded, branched, trimmed, ended, deleted, and used by many."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from flowengine import Agent, AgentRunFailed, Conflict, Engine, NotFound, Sessions, UsageError
from flowengine.testing import call, scripted
from tests.agents.session_messages import send
from tests.rows import each_row

HI = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]


class Deps:
    name = "Ana"


pytestmark = pytest.mark.wherever("engine")  # stores are compared in the tests of the journal


@pytest.fixture(params=["folder", "memory"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    store = tmp_path / "store" if request.param == "folder" else None
    with Engine(store, durability="none") as engine:
        yield engine


def clerk(**more: Any) -> Agent:
    return Agent(name="Clerk", model="scripted/x", **more)


def talk(engine: Engine, name: str, *said: str) -> None:
    with scripted(*(f"re {one}" for one in said)):
        for one in said:
            assert clerk().run(one, session=name, engine=engine).output == f"re {one}"


def said(engine: Engine, name: str) -> list[str]:
    """Return what was said in a session."""
    return [message["content"] for message in Sessions(engine).read(name).messages]


def names(engine: Engine, **more: Any) -> list[str]:
    return [item["labels"]["session"] for item in Sessions(engine).list(**more).items]


def test_sessions_are_listed_by_name_and_read_without_a_run(engine: Engine) -> None:
    for name in ("ana", "bob"):
        talk(engine, name, "1", "2")
    with scripted("no session"):
        clerk().run("hi", engine=engine)
    assert names(engine) == ["bob", "ana"]
    assert names(engine, search="ana") == ["ana"]
    page = Sessions(engine).list(limit=1)
    assert (page.items[0]["title"], page.items[0]["status"]) == ("Clerk", "waiting")
    assert names(engine, after=page.next) == ["ana"]
    read = Sessions(engine).read("ana")
    assert (said(engine, "ana"), read.active) == (["1", "re 1", "2", "re 2"], "Clerk")


def test_a_session_is_seeded_with_an_earlier_conversation(engine: Engine) -> None:
    seen: list[str] = []

    def note(deps: Deps, context_variables: dict[str, Any]) -> str:
        """Note it."""
        seen.append(deps.name + context_variables["city"])
        return "noted"

    agent = Agent(name="Clerk", model="scripted/x", tools=[note], deps=Deps)
    Sessions(engine).seed("ana", agent, HI, {"city": "Oslo"})
    assert engine.executions.list().items[0]["status"] == "waiting"
    assert said(engine, "ana") == ["hi", "hello"]
    with scripted(call("note"), "Noted.") as model:
        response = agent.run("note it", session="ana", engine=engine, deps=Deps())
    assert (response.output, seen) == ("Noted.", ["AnaOslo"])
    assert [one["content"] for one in model.requests[0].messages][1:] == ["hi", "hello", "note it"]
    assert [one["role"] for one in response.messages] == ["assistant", "tool", "assistant"]
    with pytest.raises(Conflict, match="a session 'ana' already"):
        Sessions(engine).seed("ana", agent, HI)

    asyncio.run(Sessions(engine).seed_async("empty", agent, []))
    with scripted("Well?"):
        assert len(agent.run("hi", session="empty", engine=engine, deps=Deps()).history) == 2


def test_a_branch_goes_its_own_way(engine: Engine) -> None:
    talk(engine, "ana", "1", "2", "3")
    Sessions(engine).branch("ana", "same")
    Sessions(engine).branch("ana", "early", drop=2)
    assert said(engine, "early") == ["1", "re 1"]
    talk(engine, "same", "3")  # the words of the newest message are a new message here
    talk(engine, "early", "other")
    assert said(engine, "same")[4:] == ["3", "re 3"] * 2
    assert said(engine, "early") == ["1", "re 1", "other", "re other"]
    assert said(engine, "ana") == ["1", "re 1", "2", "re 2", "3", "re 3"]
    Sessions(engine).branch("early", "again", drop=1)
    assert said(engine, "again") == ["1", "re 1"]
    with pytest.raises(UsageError, match="no 3 messages after its first"):
        Sessions(engine).branch("ana", "none", drop=3)
    with pytest.raises(Conflict, match="'early' already"):
        Sessions(engine).branch("ana", "early")


def test_a_branch_goes_on_with_the_agent_that_was_handed_off_to(engine: Engine) -> None:
    billing = Agent(name="Billing", model="scripted/x")
    triage = Agent(name="Triage", model="scripted/x", handoffs=[billing])
    with scripted(call("transfer_to_Billing"), "Billing here.", "Still here."):
        triage.run("money", session="ana", engine=engine)
        Sessions(engine).branch("ana", "bob")
        response = billing.run("and?", session="bob", engine=engine)
    assert (response.output, response.agent) == ("Still here.", billing)


def test_the_newest_messages_are_trimmed(engine: Engine) -> None:
    talk(engine, "ana", "1", "2", "3", "4")
    before = engine.executions.list().items[0]["execution"]
    assert Sessions(engine).trim("ana") == before
    assert said(engine, "ana") == ["1", "re 1", "2", "re 2", "3", "re 3"]
    asyncio.run(Sessions(engine).trim_async("ana", 2))
    talk(engine, "ana", "5")
    assert said(engine, "ana") == ["1", "re 1", "5", "re 5"]
    assert names(engine) == ["ana"]
    with pytest.raises(UsageError, match="after its first"):
        Sessions(engine).trim("ana", 2)


@pytest.mark.parametrize("step", ["_ended", "_forked"])
def test_trimming_that_was_cut_off_is_completed_by_repeating_it(
    engine: Engine, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is lost, wherever the process dies."""
    talk(engine, "ana", "1", "2", "3")

    def die(*args: Any, **more: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Sessions, step, die)
        with pytest.raises(KeyboardInterrupt):
            Sessions(engine).trim("ana")
    assert said(engine, "ana") == ["1", "re 1", "2", "re 2", "3", "re 3"]
    Sessions(engine).trim("ana")
    assert said(engine, "ana") == ["1", "re 1", "2", "re 2"]
    assert names(engine) == ["ana"]
    talk(engine, "ana", "4")


def test_two_who_trim_at_once_trim_once(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second finds the session that the first one has left."""
    talk(engine, "ana", "1", "2", "3")
    sessions = Sessions
    forked = sessions._forked  # the moment between two steps of `trim`

    def second(self: Any, *args: Any, **more: Any) -> Any:
        forked(self, *args, **more)
        return forked(self, *args, **more)

    with monkeypatch.context() as patched:
        patched.setattr(sessions, "_forked", second)
        with pytest.raises(Conflict, match="an execution session-ana already"):
            Sessions(engine).trim("ana")
    assert said(engine, "ana") == ["1", "re 1", "2", "re 2"]


def test_an_ended_session_can_be_read_and_branched(engine: Engine) -> None:
    talk(engine, "ana", "1", "2")
    assert Sessions(engine).end("ana").status == "cancelled"
    assert asyncio.run(Sessions(engine).end_async("ana")).status == "cancelled"
    assert said(engine, "ana") == ["1", "re 1", "2", "re 2"]
    with pytest.raises(UsageError, match="has ended: cancelled"):
        clerk().run("3", session="ana", engine=engine)
    Sessions(engine).branch("ana", "bob", drop=1)
    assert said(engine, "bob") == ["1", "re 1"]


def test_a_session_without_budget_says_whose_it_was_and_continues_as_another_one(
    engine: Engine,
) -> None:
    reply = {"text": "yes", "repeat": True, "usage": {"input_tokens": 90, "output_tokens": 30}}
    with scripted(reply):
        while (
            last := clerk().run("1", session="ana", engine=engine, budget={"tokens": 300})
        ).output:
            assert last.termination == "resolved"
    assert last.termination == "budget"
    assert str(last.reason).startswith("'Clerk' has ")
    with pytest.raises(UsageError, match="has ended: its budget is used up") as refused:
        clerk().run("2", session="ana", engine=engine)
    assert "Sessions(engine).branch('ana', NAME)" in str(refused.value.hint)
    Sessions(engine).branch("ana", "bob")
    talk(engine, "bob", "2")
    assert said(engine, "bob")[-2:] == ["2", "re 2"]


def test_a_deleted_session_leaves_its_name(engine: Engine) -> None:
    talk(engine, "ana", "1")
    Sessions(engine).delete("ana")
    assert names(engine) == []
    talk(engine, "ana", "2")
    assert said(engine, "ana") == ["2", "re 2"]
    asyncio.run(Sessions(engine).delete_async("ana"))
    for use in (Sessions(engine).read, Sessions(engine).end, Sessions(engine).delete):
        with pytest.raises(NotFound, match="no session 'ana'"):
            use("ana")


@each_row(
    "messages, message",
    [
        ([{"role": "user", "content": "hi"}], "do not end with an answer"),
        ([{"role": "system", "content": "hi"}], "is a system message"),
        ("hi", "is not a list of dicts"),
        (
            [{"role": "assistant", "content": "", "tool_calls": [{"id": "a"}]}],
            "do not end with an answer",
        ),
    ],
)
def test_a_seed_is_a_whole_conversation(messages: Any, message: str) -> None:
    with Engine(None) as engine, pytest.raises(UsageError, match=message):
        Sessions(engine).seed("ana", clerk(), messages)


# Several at once


def test_messages_sent_at_once_are_answered_in_order(engine: Engine) -> None:
    async def at_once(said: Sequence[str]) -> list[Any]:
        runs = [clerk().run_async(one, session="s", engine=engine) for one in said]
        return [*await asyncio.gather(*runs)]

    said = [f"m{number}" for number in range(6)]
    with scripted(*(f"re {one}" for one in said)):
        answers = [*asyncio.run(at_once(said[:3])), *asyncio.run(at_once(said[3:]))]
    assert [one.output for one in answers] == [f"re {one}" for one in said]
    assert [len(one.history) for one in answers] == [2, 4, 6, 8, 10, 12]


def test_the_same_message_twice_is_answered_twice(engine: Engine) -> None:
    async def twice() -> None:
        await clerk().run_async("start", session="s", engine=engine)
        runs = [clerk().run_async("ok", session="s", engine=engine) for _ in range(2)]
        assert [one.output for one in await asyncio.gather(*runs)] == ["one", "two"]

    with scripted("hello", "one", "two"):
        asyncio.run(twice())


def test_a_message_that_is_given_up_does_not_hold_up_the_next(engine: Engine) -> None:
    async def given_up() -> list[Any]:
        first = asyncio.ensure_future(clerk().run_async("1", session="s", engine=engine))
        second = asyncio.ensure_future(clerk().run_async("2", session="s", engine=engine))
        third = asyncio.ensure_future(clerk().run_async("3", session="s", engine=engine))
        await asyncio.sleep(0)
        second.cancel()
        return [*await asyncio.gather(first, second, third, return_exceptions=True)]

    with scripted("one", "three"):
        one, two, three = asyncio.run(given_up())
    assert isinstance(two, asyncio.CancelledError)
    assert (one.output, three.output) == ("one", "three")


def test_each_stream_has_the_parts_of_its_own_message(engine: Engine) -> None:
    billing = Agent(name="Billing", model="scripted/x")
    triage = Agent(name="Triage", model="scripted/x", handoffs=[billing])

    async def stream(said: str) -> list[Any]:
        parts = triage.stream_async(said, session="s", engine=engine)
        return [part async for part in parts]

    async def both() -> list[list[Any]]:
        return [*await asyncio.gather(stream("1"), stream("2"))]

    with scripted(call("transfer_to_Billing"), "one", "two"):
        first, second = asyncio.run(both())
    texts = [
        [(part.agent, part.text) for part in parts if part.kind == "text"]
        for parts in (first, second)
    ]
    assert texts == [[("Billing", "one")], [("Billing", "two")]]
    assert [part.kind for part in first].count("handoff") == 1
    assert [part.kind for part in second] == ["start", "text", "end", "response"]


def test_a_failed_message_does_not_lose_those_behind_it(engine: Engine) -> None:
    down = {"raise": "ModelError", "message": "down", "retryable": False}

    async def at_once() -> list[Any]:
        runs = [clerk().run_async(one, session="s", engine=engine) for one in ("1", "2")]
        return [*await asyncio.gather(*runs, return_exceptions=True)]

    with scripted(down, "two"):
        failed, answered = asyncio.run(at_once())
    assert isinstance(failed, AgentRunFailed)
    assert answered.output == "two"


def test_a_tool_does_not_wait_for_the_session_that_runs_it(engine: Engine) -> None:
    def ask(text: str) -> str:
        """Ask the session."""
        return str(agent.run(text, session="s", engine=engine).output)

    agent = clerk(tools=[ask])
    with scripted(call("ask", text="hm"), "It did not work."):
        response = agent.run("hi", session="s", engine=engine)
    assert "would wait for itself" in response.messages[1]["content"]


@pytest.mark.endurance
def test_of_200_messages_by_threads_of_two_processes_none_is_lost(tmp_path: Path) -> None:
    store = str(tmp_path)
    program = [sys.executable, "-m", "tests.agents.session_messages", store, "there", "100"]
    with subprocess.Popen(program) as other:
        send(store, "here", 100)
        assert other.wait(300) == 0
    with Engine(store) as engine:
        messages = said(engine, "all")
    wanted = {f"{name}{number}" for name in ("here", "there") for number in range(100)}
    assert (set(messages[::2]), len(messages)) == (wanted, 400)
    assert messages[1::2] == [f"re {one}" for one in messages[::2]]
