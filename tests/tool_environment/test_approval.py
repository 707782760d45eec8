# Shows T36b, T37
"""Approval: who decides, what a decision changes, and how far it reaches."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.errors import InputError, UsageError
from flowengine.tool_environment import (
    ApprovalResponse,
    CallbackAuthority,
    EnvironmentResponse,
    LocalEnvironment,
    Tool,
    ToolCall,
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
    asked_in,
    call,
    echo,
    made,
    result_of,
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


# Shows T33
async def test_what_is_deferred_when_it_is_submitted_is_decided_when_it_is_made() -> None:
    asked = Asked(DEFER)
    async with await made(echo, callback=asked) as env:
        one = call("echo", "1", text="a")
        decision = (await env.approve_tool(one)).result
        assert isinstance(decision, ApprovalResponse)
        assert decision.decision == "defer"
        assert env.engine.approvals.list().items == []
        running = asyncio.ensure_future(env.execute_tool(one))
        [wait] = await asked_in(env.engine)
        await until(lambda: len(asked.calls) == 2)
        await env.engine.approvals.approve_async(wait["id"])
        assert (await running).status == "ok"


# Shows T36b
async def test_what_was_approved_runs_whatever_the_callback_changes_afterwards() -> None:
    async def callback(one: ToolCall) -> bool:
        asyncio.get_running_loop().call_soon(lambda: one.args.update(text="changed"))
        one.args["text"] = "changed at once"
        return True

    async with await made(echo, callback=callback) as env:
        assert (await result_of(env, call("echo", "1", text="a"))).content == "a"


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
        (edit(name=7), "'name' is a text"),
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


@pytest.mark.parametrize("kind", ["coroutine", "thread"])
# Shows T40b
async def test_a_callback_that_takes_too_long_means_no(kind: str, tmp_path: Path) -> None:
    never, count = threading.Event(), Counting(tmp_path)

    async def hangs(one: ToolCall) -> bool:
        await asyncio.Event().wait()
        return True

    def blocks(one: ToolCall) -> bool:
        never.wait()
        return True

    async with await made(count.tool) as env:
        env.register_tool_approval_callback(hangs if kind == "coroutine" else blocks, timeout=0.05)
        result = await result_of(env, call("count"))
        assert result.status == "rejected"
        assert "within 0.05 s" in str(result.message)
        never.set()
        assert count.n == 0
        with pytest.raises(UsageError):
            env.register_tool_approval_callback(7)  # type: ignore[arg-type]


# Shows T100
async def test_a_wrong_edit_of_another_approver_leaves_the_question_open() -> None:
    async with await made(echo, callback=Asked(DEFER)) as env:
        running = asyncio.ensure_future(env.execute_tool(call("echo", "1", text="a")))
        [wait] = await asked_in(env.engine)
        approvals = env.engine.approvals
        with pytest.raises(InputError):
            await approvals.approve_async(wait["id"], edit={"text": 1})
        assert len(approvals.list().items) == 1
        await approvals.approve_async(wait["id"], edit={"text": "b"})
        result = (await running).tool_result
        assert result is not None
        assert result.content == "b"


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


class Put(Tool):
    """Puts a text."""

    def execute(self, text: str) -> str:
        """Put a text."""
        return text

    def preview(self, args: dict[str, Any]) -> str:
        """Return the preview."""
        return f"+{args['text']} by c4n4ry"


@tool(name="put", preview=lambda args: f"+{args['text']} by c4n4ry")
def put(text: str) -> str:
    """Put a text."""
    return text


@pytest.mark.parametrize("source", [put, Put])
# Shows T50
async def test_whoever_is_asked_sees_the_preview_with_secrets_masked(
    source: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "c4n4ry")
    defer = Asked(DEFER)
    secrets = {"TOKEN": {"env": "TOKEN"}}
    async with await made(source, callback=defer, secrets=secrets) as env:
        working = asyncio.ensure_future(env.execute_tool(call("put", text="hello")))
        await until(lambda: defer.calls)
        [wait] = env.engine.approvals.list().items
        assert wait["preview"] == defer.calls[0].preview == "+hello by ***"
    assert (await working).status == "aborted"


async def test_a_preview_that_hangs_delays_no_decision_of_others() -> None:
    begun, over = threading.Event(), threading.Event()

    def hangs(args: dict[str, Any]) -> str:
        begun.set()
        over.wait()
        return ""

    asked, source = Asked(), tool(name="put", preview=hangs)(lambda text: text)
    with Engine(None) as engine:
        async with await made(source, callback=asked, engine=engine) as env:
            working = asyncio.ensure_future(env.execute_tool(call("put", text="hello")))
            await until(begun.is_set)
            [wait] = await asked_in(engine)
            await engine.approvals.approve_async(wait["id"])
            assert (await working).status == "ok"
            assert asked.calls == []
        over.set()
