# Shows T36b, T37
"""Approval: who decides, the question's contents, and the scope of a decision."""

from __future__ import annotations

import asyncio
import base64
import threading
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.tool_environment import (
    ApprovalResponse,
    CallbackAuthority,
    CallBounds,
    DecisionError,
    EnvironmentResponse,
    LocalEnvironment,
    ToolCall,
    tool,
    tool_message,
)
from tests.tool_environment.world import (
    Asked,
    Counting,
    FakeClock,
    Seen,
    call,
    echo,
    made,
    run,
    until,
)

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.mark.parametrize("kind", ["sync", "async"])
# Shows T27
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
        one, other = (
            call("count"),
            call(
                "echo",
                text="a",
            ),
        )
        await env.execute_tool(one)
        await env.execute_tool(other)
        assert [each.tool_call_id for each, _ in seen] == [one.tool_call_id, other.tool_call_id]
        assert seen[0][1] == 0
        assert seen[1][0].args == {"text": "a"}
        assert count.n == 1


# Shows T31
async def test_without_a_callback_calls_are_approved_and_it_says_so_once(tmp_path: Path) -> None:
    count = Counting(tmp_path)
    env = LocalEnvironment()
    seen = Seen(env)
    await env.register_tool(count.tool)
    await env.execute_tool(call("count"))
    await env.execute_tool(call("count"))
    assert count.n == 2
    assert [each["by"] for each in seen.of("decided")] == ["auto", "auto"]
    assert seen.codes() == ["auto_approval"]
    await env.dispose()


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
        by_env = await env.approve_tool(one)
        by_authority = await CallbackAuthority(asked).approve_tool(one)
        assert by_env == by_authority
        assert count.n == 0
        await env.execute_tool(one)
        assert count.n == 1
        assert len(asked.calls) == 2  # the grant already existed
        own = Own()
        env.authority = own
        response = await env.execute_tool(call("count", "2"))
        assert response.status == "rejected"
        assert own.calls == ["2"]
        assert len(asked.calls) == 2


# Shows T34
async def test_a_call_is_pending_from_question_to_decision() -> None:
    asked = Asked()
    env = await made(echo, callback=asked)
    seen = Seen(env)
    await env.execute_tool(call("echo", text="a"))
    assert asked.calls[0].is_approval_pending
    assert seen.of("approval")[0]["call"]["is_approval_pending"] is True
    assert seen.of("result")[0]["call"]["is_approval_pending"] is False
    await env.dispose()


async def test_what_was_approved_runs_whatever_the_callback_changes_afterwards() -> None:
    kept: list[ToolCall] = []

    async def callback(one: ToolCall) -> bool:
        kept.append(one)

        async def change() -> None:
            one.args["text"] = "changed"

        asyncio.get_running_loop().call_soon(lambda: one.args.update(text="changed"))
        one.args["text"] = "changed at once"
        return True

    async with await made(echo, callback=callback) as env:
        given = call("echo", "1", text="a")
        response = await env.execute_tool(given)
        assert response.tool_result is not None
        assert response.tool_result.content == "a"
        assert kept[0].args != {"text": "a"}


@pytest.mark.parametrize("kept", [False, True])
async def test_other_arguments_under_an_old_grant_are_another_call(kept: bool) -> None:
    asked = Asked()
    engine = Engine(None) if kept else None
    async with await made(echo, callback=asked, engine=engine) as env:
        await env.approve_tool(call("echo", "1", text="a"))
        response = await env.execute_tool(call("echo", "1", text="b"))
        assert response.error is not None
        assert response.error.code == "duplicate_call"
        assert (await env.execute_tool(call("echo", "1", text="a"))).status == "ok"
        assert [each.args for each in asked.calls] == [{"text": "a"}]
    if engine is not None:
        engine.close()


# Shows T33
async def test_what_is_deferred_when_it_is_submitted_is_decided_when_it_is_made() -> None:
    asked = Asked({"approved": False, "decision": "defer"})
    async with await made(echo, callback=asked) as env:
        one = call("echo", "1", text="a")
        decision = (await env.approve_tool(one)).result
        assert isinstance(decision, ApprovalResponse)
        assert (decision.decision, env.questions()) == ("defer", [])
        running = asyncio.ensure_future(env.execute_tool(one))
        await until(env.questions)
        env.decide("1", {"approved": True})
        assert (await running).status == "ok"
        assert len(asked.calls) == 2


async def test_a_call_that_cannot_run_is_refused_before_anybody_is_asked_to_approve_it() -> None:
    asked = Asked()
    async with await made(echo, callback=asked) as env:
        response = await env.approve_tool(call("echo", "1", text=1))
        assert (response.status, asked.calls) == ("invalid", [])


# Edit, respond, defer


async def test_a_given_response_is_the_result_and_nothing_runs(tmp_path: Path) -> None:
    answer = ApprovalResponse(approved=False, decision="respond", content="it is 7")

    count = Counting(tmp_path)
    async with await made(count.tool, callback=Asked(answer)) as env:
        one = call("count")
        response = await env.execute_tool(one)
        assert (response.status, response.ran) == ("ok", "no")
        assert tool_message(one, response)["content"] == "it is 7"
        assert count.n == 0


# Shows T100
async def test_a_wrong_edit_is_refused_with_its_field_and_the_question_stays_open() -> None:
    defer = ApprovalResponse(approved=False, decision="defer")
    async with await made(echo, callback=Asked(defer)) as env:
        seen = Seen(env)
        running = asyncio.ensure_future(env.execute_tool(call("echo", "1", text="a")))
        await until(lambda: "deferred" in seen.types())
        for wrong, field in (
            ({"approved": True, "decision": "edit", "args": {"text": 1}}, "args"),
            ({"approved": True, "decision": "edit"}, ""),
            ({"approved": "true"}, "approved"),
            ({"approved": True, "images": [b"no image"]}, "images.0"),
            ({"approved": True, "images": [PNG] * 10}, "images"),
            ({"approved": True, "images": [PNG + b"x" * 50_000_000]}, "images.0"),
            ({"approved": True, "feedback": "x" * 1_000_000}, "feedback"),
            ({"approved": True, "feedback": 7}, "feedback"),
            ({"approved": True, "surplus": 1}, "surplus"),
        ):
            with pytest.raises(DecisionError) as raised:
                env.decide("1", wrong)
            assert raised.value.code == "invalid_decision"
            assert raised.value.field == field, wrong
            assert [each.tool_call_id for each in env.questions()] == ["1"]
        env.decide("1", {"approved": True, "decision": "edit", "args": {"text": "b"}})
        response = await running
        assert response.tool_result is not None
        assert response.tool_result.content == "b"


# Shows T38b, T29
async def test_several_calls_are_decided_one_by_one_in_call_order(tmp_path: Path) -> None:
    def answer(one: ToolCall) -> Any:
        return {
            "A": {"approved": True},
            "B": {"approved": False, "feedback": "not this"},
            "C": {"approved": True, "decision": "edit", "args": {"text": "c2"}},
        }[one.tool_call_id]

    async with await made(echo, callback=Asked(answer)) as env:
        calls = [call("echo", name, text=name.lower()) for name in "ABC"]
        responses = await env.execute_tools(calls)
        told = [tool_message(*each) for each in zip(calls, responses, strict=True)]
        assert [each["tool_call_id"] for each in told] == ["A", "B", "C"]
        assert [each.status for each in responses] == ["ok", "rejected", "ok"]
        assert told[0]["content"] == "a"
        assert "rejected" in told[1]["content"]
        assert told[2]["content"].startswith("c2")


# Shows T38b
def test_an_approved_call_does_not_wait_and_keeps_its_result(tmp_path: Path) -> None:
    def answer(one: ToolCall) -> Any:
        if one.tool_call_id == "A":
            return True
        return {"approved": False, "decision": "defer"}

    async def first(count: Counting) -> None:
        engine = Engine(tmp_path / "calls")
        env = await made(count.tool, callback=Asked(answer), engine=engine, execution_id="x")
        seen = Seen(env)
        both = asyncio.ensure_future(env.execute_tools([call("count", "A"), call("count", "B")]))
        await until(lambda: seen.of("result") and seen.of("deferred"))
        assert count.n == 1
        both.cancel()
        engine.close()

    async def second(count: Counting) -> None:
        engine = Engine(tmp_path / "calls")
        asked = Asked()
        async with await made(count.tool, callback=asked, engine=engine, execution_id="x") as env:
            one, other = await env.execute_tools([call("count", "A"), call("count", "B")])
            assert one.tool_result is not None
            assert one.tool_result.replayed
            assert other.status == "ok"
            assert [each.tool_call_id for each in asked.calls] == ["B"]
            assert count.n == 2
            changed = await env.execute_tool(call("echo", "A", text="a"))
            assert changed.error is not None
            assert changed.error.code == "duplicate_call"
        engine.close()

    counting = Counting(tmp_path)
    run(first(counting))
    run(second(counting))


# Unknown outcomes


class Raising:
    async def __call__(self, one: ToolCall) -> bool:
        raise OSError("no terminal")


class Exiting:
    def __call__(self, one: ToolCall) -> bool:
        raise SystemExit


@pytest.mark.parametrize(
    ("callback", "cause"),
    [
        (Raising(), "no terminal"),
        (Exiting(), "SystemExit"),
        (lambda one: {"approved": True, "decision": "edit", "args": {"x": 1}}, "x"),
        (lambda one: one, "ToolCall"),
    ],
)
# Shows T40b
async def test_doubt_means_no_and_says_why(callback: Any, cause: str, tmp_path: Path) -> None:
    count = Counting(tmp_path)
    async with await made(count.tool, callback=callback) as env:
        response = await env.execute_tool(call("count"))
        assert response.status == "rejected"
        assert cause in str(response.error)
        assert count.n == 0


@pytest.mark.parametrize(
    ("args", "why"),
    [({"more": "x"}, "'name' cannot be taken away"), ({"name": "B", "x": "y"}, "'x'")],
)
async def test_an_edit_keeps_the_arguments_and_adds_only_declared_ones(
    args: dict[str, str], why: str
) -> None:
    answer = {"approved": True, "decision": "edit", "args": args}

    @tool
    def greet(name: str = "you", **more: str) -> str:
        """Greet."""
        return name

    with Engine(None) as engine:
        async with await made(greet, callback=Asked(answer), engine=engine) as env:
            response = await env.execute_tool(call("greet", name="Ana"))
            assert (response.status, response.ran) == ("rejected", "no")
            assert why in str(response.error)
            assert engine.approvals.list().items == []


@pytest.mark.parametrize("kind", ["coroutine", "thread"])
# Shows T40b
async def test_a_callback_that_takes_too_long_means_no(kind: str, tmp_path: Path) -> None:
    never = threading.Event()

    async def hangs(one: ToolCall) -> bool:
        await asyncio.Event().wait()
        return True

    def blocks(one: ToolCall) -> bool:
        never.wait()
        return True

    clock, count = FakeClock(), Counting(tmp_path)
    async with await made(count.tool) as env:
        env.register_tool_approval_callback(hangs if kind == "coroutine" else blocks, timeout=30)
        running = asyncio.ensure_future(env.execute_tool(call("count")))
        await clock.until(running.done)
        response = await running
        assert response.status == "rejected"
        assert "within 30 s" in str(response.error)
        never.set()
        assert count.n == 0


@pytest.mark.parametrize("wrong", [None, 7, "yes", lambda: True, lambda a, b: True])
# Shows T96
async def test_what_cannot_be_called_with_a_call_is_no_callback(wrong: Any) -> None:
    from flowengine.tool_environment import RegistrationError

    asked = Asked()
    async with await made(echo, callback=asked) as env:
        if wrong is not None:
            with pytest.raises(RegistrationError):
                env.register_tool_approval_callback(wrong)
        with pytest.raises(RegistrationError):
            env.register_execute_callback(start=wrong or 1, end=wrong)
        await env.execute_tool(call("echo", text="a"))
        assert len(asked.calls) == 1


# Shows T5, T44b
async def test_a_question_can_expire(tmp_path: Path) -> None:
    count = Counting(tmp_path)
    defer = Asked({"approved": False, "decision": "defer"})
    async with await made(count.tool, callback=defer, bounds=CallBounds(question=0.01)) as env:
        response = await env.execute_tool(call("count", "1"))
        assert (response.status, response.ran) == ("expired", "no")
        with pytest.raises(DecisionError) as raised:
            env.decide("1", {"approved": True})
        assert raised.value.code == "not_open"
        assert count.n == 0


# Automatic approval


# Shows T47
async def test_approving_by_itself_does_not_cover_what_requires_approval() -> None:
    ran: list[str] = []

    @tool(approval="required")
    def delete() -> None:
        """Delete."""
        ran.append("delete")

    @tool(approval="none")
    def look() -> None:
        """Look."""
        ran.append("look")

    env = LocalEnvironment()
    seen = Seen(env)
    await env.register_tool(delete)
    await env.register_tool(look)
    waiting = asyncio.ensure_future(env.execute_tool(call("delete", "1")))
    assert (await env.execute_tool(call("look"))).status == "ok"
    await until(env.questions)
    assert ran == ["look"]
    env.decide("1", ApprovalResponse(approved=True), by="ana")
    assert (await waiting).status == "ok"
    assert [each["by"] for each in seen.of("decided")] == ["tool", "ana"]
    await env.dispose()

    explicit = LocalEnvironment(auto_approve="everything")
    seen = Seen(explicit)
    await explicit.register_tool(delete)
    assert (await explicit.execute_tool(call("delete"))).status == "ok"
    assert seen.of("decided")[0]["auto_approve"] == "everything"
    await explicit.dispose()

    nothing = LocalEnvironment(auto_approve="nothing")
    await nothing.register_tool(echo)
    waiting = asyncio.ensure_future(nothing.execute_tool(call("echo", text="a")))
    await until(nothing.questions)
    await nothing.dispose()
    assert (await waiting).status == "aborted"


# External decisions


# Shows T98b
async def test_decisions_that_do_not_count_change_nothing(tmp_path: Path) -> None:
    count = Counting(tmp_path)
    env = await made(
        count.tool,
        callback=Asked({"approved": False, "decision": "defer"}),
    )
    seen = Seen(env)
    running = asyncio.ensure_future(env.execute_tool(call("count", "1")))
    await until(lambda: "deferred" in seen.types())
    codes = []
    for one, decision, by in (
        ("2", {"approved": True}, "ana"),
        ("1", {"approved": True, "force": True}, "ana"),
    ):
        with pytest.raises(DecisionError) as raised:
            env.decide(one, decision, by=by)
        codes.append(raised.value.code)
        assert count.n == 0
        assert len(env.questions()) == 1
    env.decide("1", {"approved": True}, by="ana")
    assert (await running).status == "ok"
    with pytest.raises(DecisionError) as raised:
        env.decide("1", {"approved": True}, by="ana")
    codes.append(raised.value.code)
    assert codes == ["unknown_call", "invalid_decision", "not_open"]
    assert count.n == 1
    await env.dispose()
