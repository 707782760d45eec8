"""The exchanged data, and the requirements for an environment."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
from pydantic import ValidationError

from flowengine.errors import UsageError
from flowengine.sdk.processes import processes
from flowengine.tool_environment import (
    ApprovalResponse,
    Environment,
    EnvironmentResponse,
    LocalEnvironment,
    ObserverResult,
    ResponseError,
    ToolCall,
    ToolResult,
    check_environment,
    through,
)
from tests.rows import each_row
from tests.tool_environment.world import call, echo


class TwoMethods:
    """The minimum of an environment."""

    async def approve_tool(self, call: ToolCall) -> EnvironmentResponse:
        return EnvironmentResponse(result=ApprovalResponse(approved=True))

    async def execute_tool(self, call: ToolCall) -> EnvironmentResponse:
        return EnvironmentResponse(
            result=ToolResult(
                tool_call_id=call.tool_call_id,
                tool_name=call.tool_name,
                success=True,
                status="ok",
                content="done",
            )
        )


# Shows T1
def test_an_object_with_two_methods_is_an_environment() -> None:
    fake = TwoMethods()

    assert isinstance(fake, Environment)
    assert check_environment(fake) is fake
    assert isinstance(LocalEnvironment(), Environment)


@each_row("method", ["approve_tool", "execute_tool"])
# Shows T1
def test_what_lacks_a_method_is_refused_and_the_method_named(method: str) -> None:
    class Lacking(TwoMethods):
        pass

    setattr(Lacking, method, None)

    with pytest.raises(UsageError, match=method):
        check_environment(Lacking())
    with pytest.raises(UsageError, match=method):
        through(Lacking(), [])


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
    packed = msgpack.packb(made.model_dump())
    assert ToolCall.model_validate(msgpack.unpackb(packed)) == made


# Shows T2
def test_defaults_are_each_instances_own() -> None:
    one, other = ApprovalResponse(approved=True), ApprovalResponse(approved=True)
    result = ToolResult(tool_call_id="1", tool_name="t", status="ok", success=True)

    assert (one.images, one.feedback) == ([], None)
    assert one.images is not other.images
    assert result.observer_results == {}
    assert ObserverResult(observer_name="o").observer_result is None


# Shows T4
def test_a_response_is_a_result_or_an_error_and_never_both() -> None:
    result = ToolResult(tool_call_id="1", tool_name="t", status="ok", success=True)
    error = ResponseError(code="error", message="no")

    with pytest.raises(ValidationError):
        EnvironmentResponse(result=result, error=error)
    with pytest.raises(ValidationError):
        EnvironmentResponse()


@each_row("status", ["invalid", "rejected", "expired"])
# Shows T5
def test_what_never_ran_cannot_say_that_it_ran(status: Any) -> None:
    with pytest.raises(ValidationError):
        ToolResult(tool_call_id="1", tool_name="t", status=status, success=False, ran="yes")
    with pytest.raises(ValidationError):
        ToolResult(tool_call_id="1", tool_name="t", status=status, success=True, ran="no")


def children() -> set[int]:
    """Return the processes started by this one. Others on the machine come and go."""
    return {process.pid for process in processes() if process.parent == os.getpid()}


# Shows T6
async def test_a_new_environment_starts_nothing() -> None:
    threads, tasks = threading.active_count(), len(asyncio.all_tasks())
    before = children()

    env = LocalEnvironment()

    assert threading.active_count() == threads
    assert len(asyncio.all_tasks()) == tasks
    assert children() <= before
    assert dict(env.observers) == {}
    assert env.authority is not None
    assert env.questions() == []
    await env.register_tool(echo)
    response = await env.execute_tool(call("echo", text="a"))
    assert response.status == "ok"
    await env.dispose()
