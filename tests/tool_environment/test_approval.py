# Shows T36b, T37
"""Approval: who decides, what a decision changes, and what other processes know of a call."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.errors import UsageError
from flowengine.tool_environment import (
    ApprovalResponse,
    CallbackAuthority,
    EnvironmentResponse,
    LocalEnvironment,
    ToolCall,
    ToolResult,
    through,
    tool,
    tool_message,
)
from tests.tool_environment.world import (
    DEFER,
    PNG,
    Asked,
    Counting,
    Seen,
    Slow,
    asked_in,
    call,
    echo,
    made,
    result_of,
    run,
    until,
)


@pytest.mark.parametrize("kind", ["sync", "async"])
# Shows T27, T34
async def test_a_callback_gets_each_call_once_before_it_runs(kind: str, tmp_path: Path) -> None:
    count = Counting(tmp_path)
    seen: list[tuple[ToolCall, int]] = []

    def ask(one: ToolCall) -> ApprovalResponse:
        seen.append((one, count.n))
        return ApprovalResponse(approved=True)

    async def async_ask(one: ToolCall) -> ApprovalResponse:
        return ask(one)

    callback = ask if kind == "sync" else async_ask
    async with await made(count.tool, echo, callback=callback) as env:
        listened = Seen(env)
        one, other = call("count"), call("echo", text="a")
        await env.execute_tools([one, other])
        assert [each.tool_call_id for each, _ in seen] == [one.tool_call_id, other.tool_call_id]
        assert (seen[0][1], seen[1][0].args, count.n) == (0, {"text": "a"}, 1)
        assert all(each.is_approval_pending for each, _ in seen)
        assert [m["call"]["is_approval_pending"] for m in listened.of("result")] == [False] * 2


# Shows T31, T47
async def test_approving_by_itself_does_not_cover_what_requires_approval(tmp_path: Path) -> None:
    count = Counting(tmp_path)

    @tool(approval="required")
    def delete() -> str:
        """Delete."""
        return count.tool()

    @tool(approval="none")
    def look() -> str:
        """Look."""
        return "seen"

    for auto, asks in (
        ("asking", {"delete"}), ("everything", set()), ("nothing", {"delete", "echo"})
    ):  # fmt: skip
        async with LocalEnvironment(auto_approve=auto) as env:  # type: ignore[arg-type]
            for each in (delete, look, echo):
                await env.register_tool(each)
            calls = [call("delete"), call("look"), call("echo", text="a")]
            all_of = asyncio.ensure_future(env.execute_tools(calls))
            if asks:
                waits = await asked_in(env.engine, number=len(asks))
                assert {wait["tool"] for wait in waits} == asks
                for wait in waits:
                    await env.engine.approvals.approve_async(wait["id"])
            assert [each.status for each in await all_of] == ["ok"] * 3
    assert count.n == 3


# Shows T32
async def test_a_cleared_callback_is_not_asked_and_an_open_question_keeps_its_own() -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def callback(one: ToolCall) -> ApprovalResponse:
        asked.set()
        await go_on.wait()
        return ApprovalResponse(approved=False, feedback="mine")

    async with await made(echo, callback=callback) as env:
        open_one = asyncio.ensure_future(env.execute_tool(call("echo", text="a")))
        await asked.wait()
        asked.clear()
        env.clear_tool_approval_callback()
        assert (await env.execute_tool(call("echo", text="b"))).status == "ok"
        assert not asked.is_set()
        go_on.set()
        response = await open_one
        assert response.status == "rejected"
        assert "mine" in str(response.error)


# Shows T33
async def test_approving_asks_the_authority_and_runs_nothing(tmp_path: Path) -> None:
    class Own:
        def __init__(self) -> None:
            self.calls: list[str] = []

        async def approve_tool(self, one: ToolCall) -> EnvironmentResponse:
            self.calls.append(one.tool_call_id)
            return EnvironmentResponse(result=ApprovalResponse(approved=False, feedback="own"))

    count = Counting(tmp_path)
    asked = Asked(ApprovalResponse(approved=True, feedback="fine"))
    async with await made(count.tool, callback=asked) as env:
        one = call("count", "1")
        assert await env.approve_tool(one) == await CallbackAuthority(asked).approve_tool(one)
        assert count.n == 0
        changed = await env.execute_tool(call("count", "1", more=1))
        assert changed.status == "invalid"  # another call
        assert (await result_of(env, one)).feedback == "fine"
        assert (count.n, len(asked.calls)) == (1, 2)
        own = Own()
        env.authority = own
        result = await result_of(env, call("count", "2"))
        assert (result.status, result.message) == ("rejected", "rejected by Own: own")
        assert (own.calls, len(asked.calls)) == (["2"], 2)
        assert (await env.approve_tool(call("count", "3", more=1))).status == "invalid"
        assert own.calls == ["2"]


# Shows T38b, T29, T28, T37
async def test_several_calls_are_decided_one_by_one_in_call_order(tmp_path: Path) -> None:
    answers: dict[str, Any] = {
        "A": {"approved": True},
        "B": {"approved": False, "feedback": "not this", "images": [PNG]},
        "C": {"approved": True, "decision": "edit", "args": {"text": "c2"}, "feedback": "so"},
        "D": {"approved": False, "decision": "respond", "content": "it is 7"},
    }
    async with await made(echo, callback=Asked(lambda one: answers[one.tool_call_id])) as env:
        calls = [call("echo", name, text=name.lower()) for name in answers]
        responses = await env.execute_tools(calls)
        told = [tool_message(*each) for each in zip(calls, responses, strict=True)]
        assert [each["tool_call_id"] for each in told] == [*answers]
        assert [each.status for each in responses] == ["ok", "rejected", "ok", "ok"]
        assert [each.ran for each in responses] == ["yes", "no", "yes", "no"]
        assert told[0]["content"] == "a"
        assert "rejected" in told[1]["content"][0]["text"]
        assert "not this" in told[1]["content"][0]["text"]
        assert told[1]["content"][1]["image_url"]["url"].startswith("data:image/png;base64,")
        assert told[2]["content"].startswith("c2")
        assert '{"text": "c2"}' in told[2]["content"]
        assert "so" in told[2]["content"]
        assert told[3]["content"] == "it is 7"


# Unclear answers


class Raising:
    async def __call__(self, one: ToolCall) -> bool:
        raise OSError("no terminal")


class Exiting:
    def __call__(self, one: ToolCall) -> bool:
        raise SystemExit


def edit(**args: Any) -> dict[str, Any]:
    return {"approved": True, "decision": "edit", "args": args}


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (Raising(), "no terminal"),
        (Exiting(), "SystemExit"),
        (lambda one: one, "ToolCall"),
        (lambda: True, "positional argument"),
        ("yes", "str is not a decision"),
        (None, "NoneType is not a decision"),
        ({"approved": "true"}, "approved"),
        ({"approved": True, "decision": "edit"}, "'args' belongs"),
        ({"approved": True, "images": [b"no image"]}, "image"),
        ({"approved": True, "images": [PNG] * 10}, "images"),
        ({"approved": True, "images": [PNG + b"x" * 50_000_000]}, "larger"),
        ({"approved": True, "feedback": "x" * 1_000_000}, "feedback"),
        ({"approved": True, "surplus": 1}, "surplus"),
        (edit(name="Ana", x="y"), "'x'"),
        (edit(name=7), "'name' must remain text"),
        (edit(), "does not fit"),
    ],
)
# Shows T40b, T100, T98b
async def test_doubt_means_no_and_says_why(answer: Any, cause: str) -> None:
    ran: list[str] = []

    @tool
    def greet(name: str = "you") -> None:
        """Greet."""
        ran.append(name)

    callback = answer if callable(answer) else Asked(answer)
    async with await made(greet, callback=callback) as env:
        result = await result_of(env, call("greet", name="Ana"))
        assert (result.status, result.ran) == ("rejected", "no")
        assert cause in str(result.message)
        assert env.engine.approvals.list().items == []
        assert ran == []


# Shows T40b
async def test_a_callback_that_takes_too_long_means_no(tmp_path: Path) -> None:
    never, count = threading.Event(), Counting(tmp_path)
    async with await made(count.tool) as env:
        env.register_tool_approval_callback(lambda one: never.wait(), timeout=0.05)
        result = await result_of(env, call("count"))
        assert result.status == "rejected"
        assert "within 0.05 s" in str(result.message)
        never.set()
        assert count.n == 0
        with pytest.raises(UsageError):
            env.register_tool_approval_callback(7)  # type: ignore[arg-type]


# Every way, one gate


class Step:
    """The part of the calling step that a function needs."""

    def __init__(self, key: str) -> None:
        self.idempotency_key = key


async def executed(env: LocalEnvironment, one: ToolCall) -> None:
    await env.execute_tools([one, one])


async def arriving(env: LocalEnvironment, one: ToolCall) -> None:
    await env.register_request_tool_call(one)
    await env.update_request_tool_params(one, is_final=True)
    await env.execute_tool(one.tool_call_id)


async def after_a_rejection(env: LocalEnvironment, one: ToolCall) -> None:
    await env.approve_tool(one)
    await env.execute_tool(one)


async def by_an_agents_function(env: LocalEnvironment, one: ToolCall) -> None:
    [function] = through(env, [tool(name="count")(lambda: None)])
    assert "rejected" in await function(step_of_call=Step(one.tool_call_id))


@pytest.mark.parametrize("way", [executed, arriving, after_a_rejection, by_an_agents_function])
# Shows T35, T28
async def test_no_way_leads_around_the_gate(way: Any, tmp_path: Path) -> None:
    count = Counting(tmp_path)
    async with await made(count.tool, callback=Asked(False)) as env:
        await way(env, call("count"))
        assert count.n == 0


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
        denied = await result_of(env, call("count"))
        assert (denied.status, denied.ran, count.n) == ("rejected", "no", 0)
        assert "rules.yaml" in str(denied.message)
        assert (await result_of(env, call("echo", text="a"))).status == "ok"
        asking = asyncio.ensure_future(env.execute_tool(call("echo", "1", text="b")))
        [wait] = await asked_in(env.engine)  # regardless of approvals by the program
        await env.engine.approvals.reject_async(wait["id"])
        assert (await asking).status == "rejected"
        env.register_tool_approval_callback(lambda one: one.args["text"] != "c")
        assert (await result_of(env, call("echo", text="c"))).status == "ok"  # allowed
        assert (await result_of(env, call("echo", text="d"))).status == "ok"


# Previews


@tool(name="put", preview=lambda args: f"+{args['text']} by c4n4ry")
def put(text: str) -> str:
    """Put a text."""
    return text


# Shows T50
async def test_whoever_is_asked_sees_the_preview_with_secrets_masked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TOKEN", "c4n4ry")
    defer = Asked(DEFER)
    secrets = {"TOKEN": {"env": "TOKEN"}}
    async with await made(put, callback=defer, secrets=secrets) as env:
        working = asyncio.ensure_future(env.execute_tool(call("put", text="hello")))
        await until(lambda: defer.calls)
        [wait] = env.engine.approvals.list().items
        assert wait["preview"] == defer.calls[0].preview == "+hello by ***"
    assert (await working).status == "aborted"


# Calls as executions of an engine: shown, decided and counted like any others


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
