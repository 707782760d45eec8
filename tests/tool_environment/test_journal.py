"""Calls as executions of an engine: shown, decided and counted like any others."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.tool_environment import (
    LocalEnvironment,
    ToolContext,
    ToolResult,
    calls,
    tool,
    tool_message,
)
from tests.replacing import Limits
from tests.tool_environment.test_approval import PNG
from tests.tool_environment.world import Asked, Counting, Seen, Slow, call, echo, made, run, until

DEFER = {"approved": False, "decision": "defer"}


# Shows T35
async def test_each_call_is_an_execution_of_its_task_and_its_tool_a_step() -> None:
    with Engine(None) as engine:
        answer = Asked(lambda one: one.args["text"] != "no")
        async with await made(echo, callback=answer, engine=engine, execution_id="day") as env:
            await env.execute_tools([call("echo", "1", text="a"), call("echo", "2", text="no")])
        listed = engine.executions.list(labels={"task": "day"}).items
        found = {one["execution"]: engine.executions.show(one["execution"]) for one in listed}
        ran, refused = found["day.1.0000"], found["day.2.0000"]
        assert (ran["status"], ran["inputs"]["args"]) == ("succeeded", {"text": "a"})
        steps = [(step["address"], step["status"]) for step in ran["steps"]]
        assert steps == [("call", "succeeded")]
        assert ran["outputs"] is not None
        assert ran["outputs"]["made"]["result"]["content"] == "a"
        assert refused["error"] is not None
        assert (refused["status"], refused["error"]["type"]) == ("failed", "Rejected")


@pytest.mark.parametrize("choice", ["approve", "edit", "reject", "respond"])
# Shows T35
def test_whoever_decides_in_another_process_is_heard(choice: str, tmp_path: Path) -> None:
    ran: list[str] = []

    @tool
    async def note(text: str) -> str:
        """Note a text."""
        ran.append(text)
        return "noted"

    async def main() -> dict[str, Any]:
        with Engine(tmp_path / "calls") as engine, Engine(tmp_path / "calls") as elsewhere:
            asked = Asked(DEFER)
            async with await made(note, callback=asked, engine=engine, execution_id="x") as env:
                seen = Seen(env)
                one = call("note", "1", text="a")
                running = asyncio.ensure_future(env.execute_tool(one))
                await until(lambda: seen.of("deferred"))
                [wait] = elsewhere.approvals.list().items
                assert (wait["tool"], wait["subject"]) == ("note", {"text": "a"})
                if choice == "respond":
                    await elsewhere.approvals.respond_async(
                        wait["id"], "it is there", comment="looked"
                    )
                elif choice == "reject":
                    await elsewhere.approvals.reject_async(
                        wait["id"], comment="looked", images=[PNG]
                    )
                else:
                    edit = {"text": "b"} if choice == "edit" else {}
                    await elsewhere.approvals.approve_async(wait["id"], edit=edit, comment="looked")
                response = await running
                assert env.questions() == []
                return {"told": tool_message(one, response)["content"], "status": response.status}

    found = run(main())
    told = str(found["told"])
    assert "looked" in told
    assert ran == {"approve": ["a"], "edit": ["b"], "reject": [], "respond": []}[choice]
    assert found["status"] == ("rejected" if choice == "reject" else "ok")
    assert ("it is there" in told) is (choice == "respond")
    assert ('{"text": "b"}' in told) is (choice == "edit")
    assert ("data:image/png;base64," in told) is (choice == "reject")


# Shows T46
async def test_the_rules_of_the_host_hold_for_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    rules = tmp_path / "flowengine" / "rules.yaml"
    rules.parent.mkdir()
    rules.write_text("""
rules:
  - {deny: count}
  - {ask: echo, when: "${{ args.text == 'b' }}"}
  - {allow: echo, when: "${{ args.text == 'c' }}"}
""")

    count = Counting(tmp_path)
    async with LocalEnvironment(auto_approve="everything") as env:
        await env.register_tool(count.tool)
        await env.register_tool(echo)
        denied = await env.execute_tool(call("count"))
        assert (denied.status, denied.ran, count.n) == ("rejected", "no", 0)
        assert "rules.yaml" in str(denied.error)
        assert (await env.execute_tool(call("echo", text="a"))).status == "ok"
        asking = asyncio.ensure_future(env.execute_tool(call("echo", "1", text="b")))
        await until(env.questions)  # regardless of approvals by the program
        env.decide("1", {"approved": False})
        assert (await asking).status == "rejected"
        env.register_tool_approval_callback(lambda one: one.args["text"] != "c")
        assert (await env.execute_tool(call("echo", text="c"))).status == "ok"  # allowed
        assert (await env.execute_tool(call("echo", text="d"))).status == "ok"


# Shows T61b
async def test_no_secret_is_in_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "c4n4ry")

    @tool
    def send(token: str, note: str, body: dict[str, str], ctx: ToolContext) -> str:
        """Send something."""
        assert "c4n4ry" not in body  # a masked key is that of another entry
        return token[::-1] + note + body["key"][::-1] + body["text"]

    args = {"token": "***", "note": "c4n4ry", "body": {"key": "***", "text": "edited", "***": ""}}
    edit = {"approved": True, "decision": "edit", "args": args, "feedback": "c4n4ry"}
    with Engine(None) as engine:
        env = await made(
            send,
            callback=Asked(edit),
            engine=engine,
            execution_id="x",
            secrets={"TOKEN": {"env": "TOKEN"}},
        )
        response = await env.execute_tool(
            call("send", "1", token="c4n4ry", note="?", body={"key": "c4n4ry", "c4n4ry": ""})
        )
        assert response.tool_result is not None
        # it was called with the secrets
        assert response.tool_result.content == "yr4n4c***yr4n4cedited"
        await env.dispose()
        assert "c4n4ry" not in str(
            [engine.executions.show("x.1.0000"), *engine.executions.events("x.1.0000")]
        )


@pytest.mark.parametrize("changed", [False, True])
# Shows T36b
def test_a_question_outlives_its_process_but_not_a_change_of_the_tool(
    changed: bool, tmp_path: Path
) -> None:
    @tool(name="echo")
    def other(text: str) -> str:
        """Return the text."""
        return text + "!"

    asked = Asked(DEFER)

    async def first() -> str:
        """Exit while the question is open, like a killed process."""
        with Engine(tmp_path / "calls") as engine:
            env = await made(echo, callback=asked, engine=engine, execution_id="x")
            asyncio.ensure_future(env.execute_tool(call("echo", "1", text="a")))  # noqa: RUF006
            await until(env.questions)
            return engine.approvals.list().items[0]["id"]

    async def second(question: str) -> Any:
        with Engine(tmp_path / "calls") as engine:
            tool = other if changed else echo
            async with await made(tool, callback=asked, engine=engine, execution_id="x") as env:
                running = asyncio.ensure_future(env.execute_tool(call("echo", "1", text="a")))
                await until(env.questions)
                [wait] = engine.approvals.list().items
                assert (wait["id"] == question) is not changed
                env.decide("1", {"approved": True})
                return (await running).tool_result

    result = run(second(run(first())))
    assert (result.content, result.replayed) == ("a!" if changed else "a", False)


# Shows T38b
def test_what_was_approved_while_no_process_had_it_runs_in_the_next_one(tmp_path: Path) -> None:
    asked = Asked(DEFER)

    async def first(count: Counting) -> None:
        """Exit while the question is open, like a killed process."""
        with Engine(tmp_path / "calls") as engine:
            env = await made(count.tool, callback=asked, engine=engine, execution_id="x")
            asyncio.ensure_future(env.execute_tool(call("count", "1")))  # noqa: RUF006
            await until(lambda: asked.calls)

    async def second(count: Counting) -> None:
        with Engine(tmp_path / "calls") as engine:
            env = await made(count.tool, callback=asked, engine=engine, execution_id="x")
            for _ in range(2):
                response = await env.execute_tool(call("count", "1"))
                assert response.status == "ok"
            await env.dispose()

    counting = Counting(tmp_path)
    run(first(counting))
    with Engine(tmp_path / "calls") as engine:
        [wait] = engine.approvals.list().items
        engine.approvals.approve(wait["id"])  # it cannot run here
    assert counting.n == 0
    run(second(counting))
    assert (counting.n, len(asked.calls)) == (1, 1)


@pytest.mark.parametrize(("effect", "status"), [("idempotent", "ok"), ("once", "uncertain")])
def test_an_interrupted_call_runs_again_only_if_its_tool_may(
    effect: Any, status: str, tmp_path: Path
) -> None:
    began: list[str] = []

    @tool(effect=effect)
    async def act() -> str:
        """Act."""
        began.append(effect)
        if len(began) == 1:
            await asyncio.Event().wait()
        return "done"

    async def first() -> None:
        """Exit while the tool runs, like a killed process."""
        with Engine(tmp_path / "calls") as engine:
            env = await made(act, engine=engine, execution_id="x")
            asyncio.ensure_future(env.execute_tool(call("act", "1")))  # noqa: RUF006
            await until(lambda: began)

    async def second() -> str | None:
        with Engine(tmp_path / "calls") as engine:
            async with await made(act, engine=engine, execution_id="x") as env:
                return (await env.execute_tool(call("act", "1"))).status

    run(first())
    assert run(second()) == status
    assert len(began) == (2 if status == "ok" else 1)


@pytest.mark.parametrize("aborted", [False, True])
# Shows T38b
async def test_a_call_that_two_processes_make_runs_once(aborted: bool, tmp_path: Path) -> None:
    slow, other = Slow(), Slow()
    with Engine(tmp_path / "calls") as one, Engine(tmp_path / "calls") as two:
        first = await made(slow.tool, engine=one, execution_id="x")
        second = await made(other.tool, engine=two, execution_id="x")
        seen = Seen(second)
        running = asyncio.ensure_future(first.execute_tool(call("slow", "1")))
        await slow.began.wait()
        waiting = asyncio.ensure_future(second.execute_tool(call("slow", "1")))
        await until(lambda: "call_registered" in seen.types())
        if aborted:
            second.abort_step()
            assert ((await waiting).status, (await waiting).ran) == ("aborted", "maybe")
        slow.go_on.set()
        assert (await running).status == "ok"
        result = (await waiting).tool_result
        assert result is not None
        assert (result.content, result.replayed) == ((None, False) if aborted else ("done", True))
        assert not other.began.is_set()
        await first.dispose()
        await second.dispose()


def test_what_was_approved_on_a_loop_that_has_ended_runs_on_another_one(tmp_path: Path) -> None:
    count, asked, env, one = Counting(tmp_path), Asked(), LocalEnvironment(), call("count", "1")
    env.register_tool_approval_callback(asked)
    run(env.register_tool(count.tool))

    assert run(env.approve_tool(one)).error is None
    assert count.n == 0
    assert run(env.execute_tool(one)).status == "ok"
    assert (count.n, len(asked.calls)) == (1, 1)
    run(env.dispose())


def test_the_loops_of_several_threads_share_an_engine() -> None:
    env = LocalEnvironment()
    env.register_tool_approval_callback(Asked())
    run(env.register_tool(echo))
    contents: list[Any] = []

    def thread(name: str) -> None:
        calls = [call("echo", text=f"{name}{number}") for number in range(5)]
        responses = run(env.execute_tools(calls))
        contents.extend(each.tool_result and each.tool_result.content for each in responses)

    threads = [threading.Thread(target=thread, args=(name,)) for name in "abcd"]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)

    assert sorted(contents) == [f"{name}{number}" for name in "abcd" for number in range(5)]
    run(env.dispose())


async def test_an_engine_in_memory_forgets_calls_that_have_ended(
    limits: Limits,
) -> None:
    limits(calls, _PRUNED=3)

    async with await made(echo) as env:
        for number in range(10):
            response = await env.execute_tool(call("echo", text=str(number)))
            assert response.status == "ok"
        assert len(env._executions.engine.executions.list().items) < 4


@pytest.mark.parametrize("runs", [False, True])
def test_a_call_that_somebody_cancels_says_so_and_runs_again_only_if_it_had_not_begun(
    runs: bool, tmp_path: Path
) -> None:
    async def first(slow: Slow) -> ToolResult | None:
        with Engine(tmp_path / "calls") as engine, Engine(tmp_path / "calls") as elsewhere:
            callback = Asked(True if runs else DEFER)
            options: Any = {"callback": callback, "engine": engine, "execution_id": "x"}
            async with await made(slow.tool, **options) as env:
                running = asyncio.ensure_future(env.execute_tool(call("slow", "1")))
                await until(slow.began.is_set if runs else env.questions)
                await elsewhere.executions.cancel_async("x.1.0000")
                response = await running
                assert engine.executions.show("x.1.0000")["status"] == "cancelled"
                assert "aborted" in str(response.error)
                assert env.questions() == []
                return response.tool_result

    async def second(slow: Slow) -> ToolResult | None:
        slow.go_on.set()
        with Engine(tmp_path / "calls") as engine:
            async with await made(slow.tool, engine=engine, execution_id="x") as env:
                return (await env.execute_tool(call("slow", "1"))).tool_result

    aborted, again = run(first(Slow())), Slow()
    next_one = run(second(again))
    assert aborted is not None
    assert next_one is not None
    partial = ("yes", "aborted") if runs else ("no", None)
    assert (aborted.status, aborted.ran, aborted.content) == ("aborted", *partial)
    if runs:
        assert (next_one.status, next_one.ran, next_one.replayed) == ("aborted", "maybe", True)
    else:
        assert next_one.status == "ok"
    assert again.began.is_set() is not runs
