"""Calls: what is a tool, what is a call, what becomes of the return value, and who sees it."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import threading
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
from pydantic import BaseModel, ValidationError

from flowengine.errors import Conflict, NotFound, UsageError
from flowengine.sdk.processes import processes
from flowengine.sdk.tools.tool_calls import (
    Environment,
    ObserverResult,
    ResponseError,
    check_environment,
)
from flowengine.tool_environment import (
    ApprovalResponse,
    EnvironmentResponse,
    LocalEnvironment,
    Tool,
    ToolCall,
    ToolContext,
    ToolResult,
    local_environment,
    through,
    tool,
    tool_message,
)
from tests.rows import each_row
from tests.tool_environment.world import (
    PNG,
    Asked,
    Counting,
    Seen,
    Slow,
    TwoMethods,
    Watching,
    call,
    echo,
    made,
    result_of,
    run,
)

# Data


# Shows T1
@each_row("method", ["approve_tool", "execute_tool"])
def test_an_object_with_two_methods_is_an_environment(method: str) -> None:
    fake = TwoMethods()
    assert check_environment(fake) is fake
    assert isinstance(LocalEnvironment(), Environment)
    setattr(fake, method, None)
    with pytest.raises(UsageError, match=method):
        check_environment(fake)
    with pytest.raises(UsageError, match=method):
        through(fake, [echo])


# Shows T2
def test_a_call_as_a_literal_validates_and_makes_round_trips() -> None:
    literal = {
        "type": "toolCall",
        "tool_call_id": "call_1",
        "tool_name": "read_file",
        "args": {"path": "a.txt", "lines": [1, 2], "deep": {"x": None, "y": 1.5}},
    }
    made = ToolCall.model_validate(literal)
    assert (made.is_approval_pending, made.is_loading) == (False, False)
    assert ToolCall.model_validate_json(made.model_dump_json()) == made
    assert ToolCall.model_validate(msgpack.unpackb(msgpack.packb(made.model_dump()))) == made


# Shows T2, T4, T5
def test_a_response_is_a_result_or_an_error_and_defaults_are_not_shared() -> None:
    one, other = ApprovalResponse(approved=True), ApprovalResponse(approved=True)
    assert (one.images, one.feedback) == ([], None)
    assert one.images is not other.images
    result = ToolResult(tool_call_id="1", tool_name="t", status="ok", success=True)
    assert result.observer_results == {}
    assert ObserverResult(observer_name="o").observer_result is None
    with pytest.raises(ValidationError):
        EnvironmentResponse(result=result, error=ResponseError(code="error", message="no"))
    with pytest.raises(ValidationError):
        EnvironmentResponse()
    for status in ("invalid", "rejected", "expired"):  # what never ran cannot say that it ran
        with pytest.raises(ValidationError):
            ToolResult.model_validate({**result.model_dump(), "status": status, "success": False})


# Shows T6
async def test_a_new_environment_starts_nothing() -> None:
    def children() -> set[int]:
        return {process.pid for process in processes() if process.parent == os.getpid()}

    threads, tasks, before = threading.active_count(), len(asyncio.all_tasks()), children()
    LocalEnvironment()
    assert (threading.active_count(), len(asyncio.all_tasks())) == (threads, tasks)
    assert children() <= before


# Tools


class Echo(Tool):
    name = "echo"

    def execute(self, text: str) -> str:
        """Return the text."""
        return text


@pytest.mark.parametrize("form", [echo, Echo])
# Shows T7, T10
async def test_a_function_and_a_class_are_tools(form: Any) -> None:
    async with await made(form) as env:
        assert (await result_of(env, call("echo", text="hello"))).content == "hello"
        for wrong in ({}, {"text": 1}, {"text": "a", "more": 1}, {"text": float("nan")}):
            result = await result_of(env, call("echo", **wrong))
            assert (result.status, result.ran) == ("invalid", "no")
            assert "text" in str(result.message) or "more" in str(result.message)


class Keeper(Tool):
    """Notes what it finds."""

    order: list[str]

    async def init(self, environment: Any) -> None:
        self.connection = object()
        self.mine = environment
        self.order.append("init")

    def execute(self, ctx: ToolContext) -> list[Any]:
        assert self.connection is not None
        assert self.mine is self.environment
        self.order.append("execute")
        found = [getattr(self, "k", None), ctx.state.get("k")]
        self.k = ctx.state["k"] = 1
        return found

    def dispose(self) -> None:
        self.order.append("dispose")


# Shows T8, T13, T15, T17
async def test_each_call_has_an_instance_that_is_prepared_once_and_state_stays() -> None:
    Keeper.order = []
    async with await made(Keeper) as env:
        contents = [(await result_of(env, call("keeper"))).content for _ in range(2)]
        assert contents == [[None, None], [None, 1]]
    assert Keeper.order == ["init", *(["execute", "dispose"] * 2), "dispose"]


@pytest.mark.parametrize("fault", [ValueError("no key"), SystemExit(3)])
# Shows T13
async def test_a_tool_whose_init_raises_is_not_registered(fault: BaseException) -> None:
    class Broken(Tool):
        def init(self, environment: Any) -> None:
            raise fault

        def execute(self) -> None:
            return None

    async with await made(echo) as env:
        with pytest.raises(UsageError, match=r"broken.*init.*" + type(fault).__name__):
            await env.register_tool(Broken)
        assert (await result_of(env, call("echo", text="a"))).status == "ok"


class Ended(Tool):
    """Is disposed of."""

    timeout = 0.05
    ended: list[str]

    async def execute(self, mode: str) -> str:
        if mode == "raise":
            raise ValueError("x")
        if mode == "hang":
            await asyncio.Event().wait()
        return mode

    def dispose(self) -> None:
        self.ended.append("ended")


# Shows T16
async def test_an_instance_is_disposed_of_once_whatever_came_of_the_call() -> None:
    Ended.ended = []
    env = await made(Ended, callback=Asked(lambda one: one.args["mode"] != "reject"))
    env.listen(lambda m: env.abort_step() if m["call"]["args"]["mode"] == "abort" else None)
    calls = [call("ended", mode=mode) for mode in ("ok", "raise", "reject", "hang", "abort", 7)]
    statuses = [(await result_of(env, each)).status for each in calls]
    assert statuses == ["ok", "error", "rejected", "timed_out", "aborted", "invalid"]
    assert len(Ended.ended) == 6
    await env.dispose()
    assert len(Ended.ended) == 7  # that of the environment


# Shows T11
async def test_tools_are_disposed_of_in_reverse_order_whatever_one_raises() -> None:
    ended: list[str] = []

    def ending(own_name: str, fault: Exception | None = None) -> type[Tool]:
        class Ending(Tool):
            name = own_name

            def execute(self) -> None:
                return None

            def dispose(self) -> None:
                ended.append(own_name)
                if fault is not None:
                    raise fault

        return Ending

    env = await made(ending("a"), ending("b", OSError("stuck")), ending("c"))
    await env.dispose()
    await env.dispose()
    assert ended == ["c", "b", "a"]


def no_hint_of_mine(x: Missing) -> None:  # type: ignore[name-defined]  # noqa: F821
    return None


class Stubborn(Tool):
    def __init__(self, needed: int) -> None:
        self.needed = needed

    def execute(self) -> None:
        return None


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (42, "42"),
        (object(), "object"),
        (tool(name="x" * 65)(lambda: None), "x" * 65),
        (tool(name="two words")(lambda: None), "two words"),
        (type("Empty", (Tool,), {}), "execute"),
        (no_hint_of_mine, "no_hint_of_mine"),
        (Stubborn, "needed"),
        (tool(name="posonly")(lambda a, /: None), "posonly"),
        (tool(name="echo")(lambda text: text), "already a tool 'echo'"),
    ],
)
# Shows T95
async def test_what_is_no_tool_is_refused_and_named(wrong: Any, named: str) -> None:
    async with await made(echo) as env:
        with pytest.raises(UsageError) as raised:
            await env.register_tool(wrong)
        assert named in str(raised.value)
        assert (await result_of(env, call("echo", text="a"))).status == "ok"


def test_a_timeout_is_read_where_it_is_declared() -> None:
    assert vars(tool(timeout="500ms")(lambda: None))["__flowengine_tool__"]["timeout"] == 0.5
    for wrong in ("soon", 0, True, 10**400):
        with pytest.raises(UsageError, match="the timeout of a tool is"):
            tool(timeout=wrong)


# Runs


# Shows T52
async def test_the_context_has_what_a_tool_may_use() -> None:
    seen: dict[str, Any] = {}

    @tool(supports_parallel_execution=True)
    async def look(ctx: ToolContext) -> None:
        """Look."""
        seen.update(vars(ctx), context=ctx)

    async with await made(look, execution_id="x1") as env:
        await env.execute_tool(call("look", "7"))
    shown = {name: seen[name] for name in ("tool_call_id", "execution_id", "parallel", "state")}
    assert shown == {"tool_call_id": "7", "execution_id": "x1", "parallel": True, "state": {}}
    assert seen["resources"] == {}
    assert callable(seen["context"].report)


def too_deep() -> None:
    too_deep()


def stops() -> None:
    raise StopIteration


async def raises_cancelled() -> None:
    raise asyncio.CancelledError


async def exits() -> None:
    raise SystemExit(3)


def exits_on_a_thread() -> None:
    raise SystemExit(3)


def fails() -> None:
    raise ValueError("x")


@pytest.mark.parametrize(
    "ending", [fails, too_deep, stops, raises_cancelled, exits, exits_on_a_thread]
)
# Shows T53, T4
async def test_a_raising_tool_is_an_error_without_a_traceback(ending: Any) -> None:
    async with await made(ending, echo) as env:
        one = call(ending.__name__)
        response = await env.execute_tool(one)
        assert (response.status, response.ran) == ("error", "yes")
        told = json.dumps(tool_message(one, response)) + response.model_dump_json()
        assert "Traceback" not in told
        assert os.path.dirname(__file__) not in told
        assert response.error is not None
        assert ending is not fails or response.error.message == "ValueError: x"
        assert (await result_of(env, call("echo", text="a"))).status == "ok"


class Point(BaseModel):
    x: int
    y: int


@dataclasses.dataclass
class Pair:
    one: int
    other: str


@pytest.mark.parametrize(
    ("returned", "content"),
    [
        (None, None),
        ("text", "text"),
        (b"bytes", "bytes"),
        (b"\xff", "\\xff"),
        (Point(x=1, y=2), {"x": 1, "y": 2}),
        (Pair(1, "a"), {"one": 1, "other": "a"}),
        ((1, 2), [1, 2]),
        (Path("a") / "b", "a/b"),
        ("begin" + "x" * 200_000 + "end", ...),
        (PNG, "image"),
    ],
)
# Shows T58
async def test_what_a_tool_returns_becomes_data(returned: Any, content: Any) -> None:
    @tool
    def give() -> Any:
        """Give."""
        return returned

    async with await made(give) as env:
        one = call("give")
        response = await env.execute_tool(one)
        result, message = response.tool_result, tool_message(one, response)["content"]
        assert result is not None
        if content == "image":
            assert [each.media_type for each in result.images] == ["image/png"]
            assert message[0]["type"] == "image_url"
        elif content is ...:
            assert result.content == returned
            assert len(message) < 110_000
            assert message.startswith("begin")
            assert message.endswith("end")
        else:
            assert (result.status, result.content) == ("ok", content)


# Shows T58
async def test_what_has_no_form_as_data_is_an_error_that_names_tool_and_type() -> None:
    @tool
    def lock() -> Any:
        """Give a lock."""
        return {"deep": [threading.Lock()]}

    async with await made(lock) as env:
        result = await result_of(env, call("lock"))
        assert (result.status, result.ran) == ("error", "yes")
        assert "'lock'" in str(result.message)
        assert "_thread.lock" in str(result.message)


# Shows T61b
async def test_secrets_are_in_nothing_that_leaves_a_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    canary = "c4n4ry-57a1n"
    monkeypatch.setenv("TOKEN", canary)
    told: list[Any] = []

    @tool
    def leak(how: str, ctx: ToolContext) -> Any:
        """Leak."""
        ctx.report({"at": canary})
        if how == "raise":
            raise ValueError(f"wrong: {canary}")
        return {"token": canary, "list": [f"x{canary}y"]}

    class Leaking:
        name = "leaking"
        description = "Leaks."

        async def execute(self, one: ToolCall, result: Any) -> Any:
            told.append((one.model_dump_json(), result.model_dump_json()))
            return {"again": result.content, "own": canary}

    env = await made(leak, secrets={"TOKEN": {"env": "TOKEN"}})
    env.register_observer(Leaking())
    seen = Seen(env)
    for how in ("return", "raise", canary):
        one = call("leak", how=how)
        response = await env.execute_tool(one)
        assert response.status == {"return": "ok", "raise": "error", canary: "invalid"}[how]
        told += [tool_message(one, response), response.model_dump_json()]
    engine = env.engine
    for listed in engine.executions.list().items:
        id = listed["execution"]
        told += [engine.executions.show(id), *engine.executions.events(id)]
    told.append([m for m in seen.messages if m["call"]["args"]["how"] != "***"])
    await env.dispose()
    assert "***" in str(told)
    assert canary not in str(told)


# Resources


# Shows T60b, T57
async def test_resources_are_opened_after_the_approval_and_stay_until_the_end() -> None:
    @tool(resources={"box": None})
    def work(ctx: ToolContext) -> int:
        """Work."""
        box = ctx.resources["box"]
        box.write(f"{len(list(box.list('*')))}.txt", "a")
        return len(list(box.list("*")))

    answer = Asked(lambda one: one.tool_call_id != "no")
    env = await made(work, callback=answer, environments={"box": {"kind": "files"}})
    manager = env.engine.environments
    assert (await result_of(env, call("work", "no"))).status == "rejected"
    assert manager.list() == []
    found = [(await result_of(env, call("work"))).content for _ in range(2)]
    assert found == [1, 2]
    assert [each["state"] for each in manager.list()] == ["ready"]
    missing = await result_of(env, call("execute_command", command="ls -la"))
    assert (missing.status, missing.ran) == ("invalid", "no")
    assert "'shell'" in str(missing.message)
    env.environments["box"] = {"kind": "files", "config": {"path": "/nowhere"}}
    failed = await result_of(env, call("work"))
    assert (failed.status, failed.ran) == ("error", "no")
    await env.dispose()


@pytest.mark.parametrize("kind", ["bash", "shell"])
# Shows T57
async def test_a_command_runs_in_the_managed_shell(kind: str) -> None:
    spec = {"kind": kind, "provider": "host", "limits": {"best_effort": True}}
    async with await made(environments={"shell": spec}) as env:
        command = "touch a.txt; ls -la; (exit 3)"
        result = await result_of(env, call("execute_command", command=command))
        assert result.status == "ok", result
        assert result.content["exit_code"] == 3
        assert "a.txt" in result.content["stdout"]
        assert "stderr" in result.content


# Calls that are wrong

GOOD = {"tool_call_id": "1", "tool_name": "count", "args": {}}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"tool_call_id": None}, ["tool_call_id"]),
        ({"tool_name": ""}, ["tool_name"]),
        ({"type": "functionCall"}, ["type"]),
        ({"args": "{}", "force": True}, ["args", "force"]),
    ],
)
# Shows T92
async def test_a_wrong_call_is_invalid_with_every_fault(
    change: dict[str, Any], named: list[str], tmp_path: Path
) -> None:
    asked, count = Asked(), Counting(tmp_path)
    async with await made(count.tool, callback=asked) as env:
        for way in (env.execute_tool, env.approve_tool):
            response = await way({**GOOD, **change})
            assert response.error is not None
            assert response.status == "invalid"
            assert all(f"'{field}'" in response.error.message for field in named)
        assert (asked.calls, count.n) == ([], 0)


# Shows T93
async def test_an_unknown_tool_is_told_with_the_known_ones_and_others_run() -> None:
    async with await made(echo) as env:
        unknown, known = await env.execute_tools([call("ehco", text="a"), call("echo", text="b")])
        assert unknown.error is not None
        assert "there is no tool 'ehco'" in unknown.error.message
        assert "echo, execute_command" in unknown.error.message
        assert known.status == "ok"


# Shows T94
async def test_an_id_that_is_used_twice(tmp_path: Path) -> None:
    count, slow = Counting(tmp_path), Slow()
    async with await made(count.tool, echo, slow.tool) as env:
        first = await result_of(env, call("count", "1"))
        again = await result_of(env, call("count", "1"))
        assert (first.content, again.content, again.replayed) == ("1", "1", True)
        running = asyncio.ensure_future(env.execute_tool(call("slow", "2")))
        await slow.began.wait()
        for id in ("1", "2"):
            other = await result_of(env, call("echo", id, text="a"))
            assert other.status == "invalid"
            assert "already" in str(other.message)
        same = asyncio.ensure_future(env.execute_tool(call("slow", "2")))
        slow.go_on.set()
        assert (await running) == (await same)
        assert count.n == 1


# Shows T94
def test_the_same_call_from_twenty_threads_runs_once(tmp_path: Path) -> None:
    count = Counting(tmp_path)
    env = LocalEnvironment()
    run(env.register_tool(count.tool))
    together = threading.Barrier(20)
    contents: list[Any] = []

    def thread() -> None:
        together.wait()
        contents.append(asyncio.run(result_of(env, call("count", "1"))).content)

    threads = [threading.Thread(target=thread) for _ in range(20)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert contents == ["1"] * 20
    assert count.n == 1
    run(env.dispose())


# Shows T19, T99
async def test_the_end_aborts_what_runs_and_withdraws_what_waits(tmp_path: Path) -> None:
    count, slow, asked = Counting(tmp_path), Slow(), asyncio.Event()

    async def callback(one: ToolCall) -> bool:
        if one.tool_name == "count":
            asked.set()
            await asyncio.Event().wait()
        return True

    async with await made(slow.tool, count.tool, callback=callback) as env:
        running = asyncio.ensure_future(env.execute_tool(call("slow")))
        waiting = asyncio.ensure_future(env.execute_tool(call("count")))
        arriving = await env.register_request_tool_call(call("count"))
        await slow.began.wait()
        await asked.wait()
    ran, withdrawn = await running, await waiting
    assert (ran.status, withdrawn.status, withdrawn.ran) == ("aborted", "aborted", "no")
    await env.dispose()
    for use in (
        env.execute_tool(arriving),
        env.approve_tool(arriving),
        env.register_tool(echo),
        env.register_request_tool_call(call("count")),
    ):
        with pytest.raises(UsageError, match="disposed"):
            await use
    assert count.n == 0


# Observers, callbacks and listeners


class CountingArguments:
    """The example in the documentation."""

    name = "argument-counter"
    description = "Counts the arguments."

    async def execute(self, one: ToolCall, result: ToolResult) -> dict[str, Any]:
        return {"argsCount": len(one.args)}


@tool
def join(a: str, b: str) -> str:
    """Join two texts."""
    return a + b


# Shows T75
async def test_observers_are_told_once_of_each_call_and_their_words_are_attached() -> None:
    async with await made(join) as env:
        log = Watching("log", says=lambda one, result: f"{one.tool_name}: {result.status}")
        env.observers["log"] = log
        env.register_observer(CountingArguments())
        result = await result_of(env, call("join", a="1", b="2"))
        assert list(result.observer_results) == ["log", "argument-counter"]
        assert result.observer_results["log"].observer_result == "join: ok"
        assert result.observer_results["argument-counter"].observer_result == {"argsCount": 2}
        [(one, seen)] = log.seen
        assert (one.args, seen.content) == ({"a": "1", "b": "2"}, "12")


# Shows T77, T56
async def test_they_see_failures_and_no_call_that_never_ran(tmp_path: Path) -> None:
    order: list[str] = []

    @tool
    def broken() -> None:
        """Break."""
        order.append("tool")
        raise ValueError

    def start(one: ToolCall) -> None:
        order.append(f"start {one.tool_call_id}")
        raise SystemExit

    async def end(one: ToolCall, result: Any) -> None:
        order.append(f"end {one.tool_call_id} {result.status}")
        result.content = "changed"
        raise ValueError

    count, slow = Counting(tmp_path), Slow()
    answer = Asked(lambda one: one.tool_name != "count")
    async with await made(broken, count.tool, echo, slow.tool, callback=answer) as env:
        log = Watching("log")
        env.register_observer(log)
        env.register_execute_callback(start, end)
        await env.execute_tool(call("broken", "1"))
        await env.execute_tool(call("count", "2"))
        await env.execute_tool(call("echo", "3", text=1))
        running = asyncio.ensure_future(env.execute_tool(call("slow", "4")))
        await slow.began.wait()
        env.abort_step()
        await running
        result = await result_of(env, call("echo", "5", text="a"))
        assert result.content == "a"
        env.clear_execute_callback()
        await env.execute_tool(call("broken", "6"))
        assert [one.tool_call_id for one, _ in log.seen] == ["1", "4", "5", "6"]
        assert [result.success for _, result in log.seen] == [False, False, True, False]
        assert order == [
            *("start 1", "tool", "end 1 error"),
            *("start 4", "end 4 aborted"),
            *("start 5", "end 5 ok"),
            "tool",
        ]


def raising(one: Any, result: Any) -> None:
    raise SystemExit("no")


# Shows T78, T79
async def test_one_that_raises_hangs_or_rewrites_changes_no_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local_environment, "BOUND", 0.05)
    together = asyncio.Barrier(2)

    class Hanging(Watching):
        async def execute(self, one: ToolCall, result: ToolResult) -> Any:
            await asyncio.Event().wait()

    class Meeting(Watching):
        async def execute(self, one: ToolCall, result: ToolResult) -> str:
            await together.wait()
            one.args["a"] = result.content = "changed"
            return self.name

    async with await made(join) as env:
        plain = await result_of(env, call("join", "1", a="1", b="2"))
        given = [Watching("raises", says=raising), Hanging("hangs"), Watching("odd", says=object())]
        for each in (*given, Meeting("one"), Meeting("other")):
            env.register_observer(each)
        result = await result_of(env, call("join", "2", a="1", b="2"))
        found = result.observer_results
        assert list(found) == ["raises", "hangs", "odd", "one", "other"]
        assert [each.error is not None for each in found.values()] == [True] * 3 + [False] * 2
        bare = {"observer_results": {}, "tool_call_id": "1"}
        assert result.model_copy(update=bare) == plain


# Shows T83
async def test_a_listener_follows_calls() -> None:
    @tool
    def reports(ctx) -> str:  # type: ignore[no-untyped-def]
        """Report."""
        ctx.report("50%")
        ctx.report({"done": 1.0})
        return "done"

    async with await made(reports) as env:
        seen = Seen(env)

        def fails(_: Any) -> None:
            raise OSError("no screen")

        stop = env.listen(fails)
        await env.execute_tool(call("reports", "1"))
        stop()
    kinds = ["call_registered", "parameters_updated", "approval", "execution"]
    assert seen.types() == [*kinds, "progress", "progress", "result"]
    assert [each["report"] for each in seen.of("progress")] == ["50%", {"done": 1.0}]
    [ended] = seen.of("result")
    assert (ended["tool_call_id"], ended["result"]["content"]) == ("1", "done")


# Arguments that arrive in parts


class Write(Tool):
    """Shows the text that it will write."""

    shown: list[dict[str, Any]]

    async def load_ui(self, partial: dict[str, Any]) -> dict[str, Any]:
        Write.shown.append(partial)
        return {"title": partial.get("path")}

    def execute(self, path: str, text: str = "") -> str:
        return f"{path}: {text}"


# Shows T21, T22, T25
async def test_the_tool_sees_what_has_arrived_and_nobody_is_asked_before_it_is_final() -> None:
    Write.shown, asked = [], Asked()
    async with await made(Write, callback=asked) as env:
        seen = Seen(env)
        assert (await env.register_request_tool_call(call("write", "1"))).is_loading
        with pytest.raises(Conflict):
            await env.register_request_tool_call(call("write", "1"))
        await env.update_request_tool_params(call("write", "1", path="a"))
        last = call("write", "1", path="a", text="b")
        assert (await env.update_request_tool_params(last)).is_loading
        final = await env.update_request_tool_params(last, is_final=True)
        assert not final.is_loading
        with pytest.raises(Conflict, match="final"):
            await env.update_request_tool_params(call("write", "1", path="c"))
        other = await env.execute_tool(call("write", "1", path="c"))
        assert other.status == "invalid"
        assert asked.calls == []
        assert (await result_of(env, last)).content == "a: b"
        assert [(one.args, one.is_loading) for one in asked.calls] == [(last.args, False)]
        assert Write.shown == [{"path": "a"}, {"path": "a", "text": "b"}]
        assert [each["view"] for each in seen.of("view")] == [{"title": "a"}] * 2
        for known in ("1", "nope"):  # it has ended, or there was none
            with pytest.raises(NotFound):
                await env.update_request_tool_params(call("write", known))


# Shows T23
async def test_parts_of_two_calls_interleave_character_by_character() -> None:
    async with await made(echo) as env:
        texts = {"a": "ä" * 50, "b": "b{}" * 40}
        for name in texts:
            await env.register_request_tool_call(call("echo", name))
        for at in range(max(map(len, texts.values()))):
            for name, text in texts.items():
                await env.update_request_tool_params(call("echo", name, text=text[: at + 1]))
        for name, text in texts.items():
            await env.update_request_tool_params(call("echo", name, text=text), is_final=True)
        responses = await env.execute_tools(["a", "b"])
        contents = [each.tool_result and each.tool_result.content for each in responses]
        assert contents == [*texts.values()]
