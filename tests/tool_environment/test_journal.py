"""Calls as executions of an engine: shown, decided and counted like any others."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.tool_environment import (
    LocalEnvironment,
    ToolResult,
    local_environment,
    tool,
    tool_message,
)
from tests.tool_environment.world import (
    DEFER,
    HANG,
    PNG,
    Asked,
    Counting,
    Slow,
    asked_in,
    call,
    echo,
    made,
    result_of,
    run,
    until,
)


# Shows T35
async def test_each_call_is_an_execution_of_its_task_and_its_tool_a_step() -> None:
    with Engine(None) as engine:
        answer = Asked(lambda one: one.args["text"] != "no")
        async with await made(echo, callback=answer, engine=engine, execution_id="day") as env:
            await env.execute_tools([call("echo", "1", text="a"), call("echo", "2", text="no")])
        listed = engine.executions.list(labels={"task": "day", "tool": "echo"}).items
        shown = [engine.executions.show(one["execution"]) for one in listed]
        found = {one["inputs"]["call"]: one for one in shown}
        ran, refused = found["1"], found["2"]
        assert (ran["status"], ran["inputs"]["args"]) == ("succeeded", {"text": "a"})
        steps = [(step["address"], step["status"]) for step in ran["steps"]]
        assert steps == [("call", "succeeded")]
        assert ran["outputs"] == {"made": {"result": {"content": "a"}}}
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

    async def main() -> tuple[str, str | None]:
        with Engine(tmp_path / "calls") as engine, Engine(tmp_path / "calls") as elsewhere:
            asked, approvals = Asked(DEFER), elsewhere.approvals
            async with await made(note, callback=asked, engine=engine, execution_id="x") as env:
                one = call("note", "1", text="a")
                running = asyncio.ensure_future(env.execute_tool(one))
                await until(lambda: asked.calls)
                [wait] = await asked_in(elsewhere)
                assert (wait["tool"], wait["subject"]) == ("note", {"text": "a"})
                if choice == "respond":
                    await approvals.respond_async(wait["id"], "it is there")
                elif choice == "reject":
                    await approvals.reject_async(wait["id"], comment="looked", images=[PNG])
                else:
                    edit = {"text": "b"} if choice == "edit" else {}
                    await approvals.approve_async(wait["id"], edit=edit, comment="looked")
                response = await running
                return str(tool_message(one, response)["content"]), response.status

    told, status = run(main())
    assert ran == {"approve": ["a"], "edit": ["b"], "reject": [], "respond": []}[choice]
    assert status == ("rejected" if choice == "reject" else "ok")
    assert ("looked" in told) is (choice != "respond")
    assert ("it is there" in told) is (choice == "respond")
    assert ('{"text": "b"}' in told) is (choice == "edit")


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
            await until(lambda: asked.calls)
            return str(engine.approvals.list().items[0]["id"])

    async def second(question: str) -> ToolResult:
        with Engine(tmp_path / "calls") as engine:
            form = other if changed else echo
            async with await made(form, callback=asked, engine=engine, execution_id="x") as env:
                running = asyncio.ensure_future(result_of(env, call("echo", "1", text="a")))
                [wait] = await asked_in(engine)
                assert wait["id"] == question
                if not changed:
                    await until(lambda: len(asked.calls) == 2)
                    await engine.approvals.approve_async(wait["id"])
                return await running

    result = run(second(run(first())))
    if changed:
        assert (result.status, result.ran) == ("invalid", "no")
        assert "has changed since" in str(result.message)
    else:
        assert (result.content, result.replayed) == ("a", False)


# Shows T38b
def test_what_was_decided_while_no_process_had_it_is_done_in_the_next_one(tmp_path: Path) -> None:
    asked = Asked(lambda one: DEFER if one.tool_call_id == "B" else True)
    both = [call("count", "A"), call("count", "B")]

    async def first(count: Counting) -> None:
        """Exit while a question is open, like a killed process."""
        with Engine(tmp_path / "calls") as engine:
            env = await made(count.tool, callback=asked, engine=engine, execution_id="x")
            asyncio.ensure_future(env.execute_tools(both))  # noqa: RUF006
            await until(lambda: count.n == 1 and len(asked.calls) == 2)
            await result_of(env, both[0])

    async def second(count: Counting) -> None:
        with Engine(tmp_path / "calls") as engine:
            async with await made(
                count.tool, echo, callback=asked, engine=engine, execution_id="x"
            ) as env:
                for replayed in (False, True):
                    one, other = [await result_of(env, each) for each in both]
                    assert (one.content, one.replayed) == ("1", True)
                    assert (other.content, other.replayed) == ("2", replayed)
                assert (await result_of(env, call("echo", "A", text="a"))).status == "invalid"

    counting = Counting(tmp_path)
    run(first(counting))
    with Engine(tmp_path / "calls") as engine:
        [wait] = engine.approvals.list().items
        engine.approvals.approve(wait["id"])  # it cannot run here
    assert counting.n == 1
    run(second(counting))
    assert (counting.n, len(asked.calls)) == (2, 2)


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


KILLED = """
import asyncio, os, sys
from flowengine import Engine
from flowengine.tool_environment import LocalEnvironment, tool

@tool
def act() -> None:
    open(sys.argv[1] + "/acted", "a").write("x")
    os._exit(9)

async def main():
    env = LocalEnvironment(engine=Engine(sys.argv[1] + "/calls"), execution_id="x")
    await env.register_tool(act)
    await env.execute_tool({"tool_call_id": "1", "tool_name": "act"})

asyncio.run(main())
"""


@pytest.mark.endurance
# Shows T5
def test_what_the_process_died_in_is_uncertain_and_does_not_run_again(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, tmp_path], check=False, timeout=HANG)
    assert done.returncode == 9

    @tool
    def act() -> None:
        """Act."""
        raise AssertionError

    source = act

    async def main(*expected: Any) -> None:
        async with await made(source, engine=engine, execution_id="x") as env:
            result = await result_of(env, call("act", "1"))
            assert (result.status, result.ran, result.content) == expected
            assert (tmp_path / "acted").read_text() == "x"

    with Engine(tmp_path / "calls") as engine:
        run(main("invalid", "no", None))  # its code is another one
        [due] = engine.due()
        assert engine.resume(due.execution).status == "stalled"
        [question] = engine.approvals.list(kinds=["question"]).items
        engine.approvals.decide(question["id"], "result", value="it has acted")
        run(main("ok", "no", "it has acted"))


# Shows T42
async def test_a_call_that_two_processes_make_runs_once(tmp_path: Path) -> None:
    slow, other = Slow(), Slow()
    with Engine(tmp_path / "calls") as one, Engine(tmp_path / "calls") as two:
        first = await made(slow.tool, engine=one, execution_id="x")
        second = await made(slow.tool, engine=two, execution_id="x")
        running = asyncio.ensure_future(first.execute_tool(call("slow", "1")))
        await slow.began.wait()
        refused = await result_of(second, call("slow", "1"))
        assert (refused.status, refused.ran) == ("error", "maybe")
        slow.go_on.set()
        assert (await running).status == "ok"
        result = await result_of(second, call("slow", "1"))
        assert (result.content, result.replayed) == ("done", True)
        assert not other.began.is_set()
        await first.dispose()
        await second.dispose()


def test_the_loops_of_several_threads_share_an_environment(tmp_path: Path) -> None:
    count, env, one = Counting(tmp_path), LocalEnvironment(), call("count", "1")
    env.register_tool_approval_callback(Asked())
    run(env.register_tool(echo))
    run(env.register_tool(count.tool))
    assert run(env.approve_tool(one)).error is None
    assert run(env.execute_tool(one)).status == "ok"  # on another loop
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
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local_environment, "_PRUNED", 3)
    monkeypatch.setattr(local_environment, "_KEPT", "0s")
    async with await made(echo) as env:
        for number in range(10):
            assert (await result_of(env, call("echo", text=str(number)))).status == "ok"
        assert len(env.engine.executions.list().items) < 4


@pytest.mark.parametrize("runs", [False, True])
def test_a_call_that_somebody_cancels_is_aborted_and_stays_so(runs: bool, tmp_path: Path) -> None:
    async def first(slow: Slow) -> ToolResult:
        with Engine(tmp_path / "calls") as engine, Engine(tmp_path / "calls") as elsewhere:
            callback = Asked(True if runs else DEFER)
            options: Any = {"callback": callback, "engine": engine, "execution_id": "x"}
            async with await made(slow.tool, **options) as env:
                running = asyncio.ensure_future(result_of(env, call("slow", "1")))
                await until(slow.began.is_set if runs else lambda: callback.calls)
                [listed] = elsewhere.executions.list().items
                await elsewhere.executions.cancel_async(listed["execution"])
                return await running

    async def second(slow: Slow) -> ToolResult:
        slow.go_on.set()
        with Engine(tmp_path / "calls") as engine:
            async with await made(slow.tool, engine=engine, execution_id="x") as env:
                return await result_of(env, call("slow", "1"))

    aborted, again = run(first(Slow())), Slow()
    replayed = run(second(again))
    partial = ("maybe", "so far") if runs else ("no", None)
    assert (aborted.status, aborted.ran, aborted.content) == ("aborted", *partial)
    assert (replayed.status, replayed.ran, replayed.replayed) == ("aborted", partial[0], True)
    assert not again.began.is_set()
