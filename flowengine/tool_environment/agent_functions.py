"""Tools of an environment as Python functions for agents.

An agent calls them like any other functions. Each call becomes a `ToolCall`, which the environment
approves and runs. The model receives its response.
"""

from __future__ import annotations

import inspect
from base64 import b64encode
from collections.abc import Callable, Iterable
from typing import Any

from flowengine.sdk import StepContext
from flowengine.sdk.plain_values import to_plain
from flowengine.sdk.python_functions.live_signature import given_parameters, resolved_hints
from flowengine.sdk.tool_calls import Environment, ToolCall, check_environment
from flowengine.tool_environment.tool_messages import answer_of
from flowengine.tool_environment.tools import ToolDefinition, define

STEP = "step_of_call"
"""Name of the parameter that receives the step of the call."""


def through(environment: Environment, tools: Iterable[Any]) -> list[Callable[..., Any]]:
    """Return functions for an agent that make their calls through an environment.

    Args:
        environment: Approves and runs the calls. A `LocalEnvironment` must have the tools.
        tools: Functions, classes with `execute`, or instances of these.

    Returns:
        A coroutine function for each tool, with its name, description and arguments.

    Raises:
        UsageError: A method of the environment is missing.
        RegistrationError: One of the values is not a tool.
    """
    checked = check_environment(environment)
    return [_function(checked, define(each)) for each in tools]


def _function(environment: Environment, definition: ToolDefinition) -> Callable[..., Any]:
    async def call_through(*, step_of_call: StepContext, **given: Any) -> Any:
        call = ToolCall(
            tool_call_id=step_of_call.idempotency_key,
            tool_name=definition.name,
            args={name: _plain(value) for name, value in given.items()},
        )
        text, images = answer_of(await environment.execute_tool(call))
        if not images:
            return text
        from flowengine.agents.agent import Result

        return Result(value=text, image=[*images])

    options: Any = call_through
    options.effect = definition.options.effect
    options.supports_parallel_execution = definition.options.supports_parallel_execution
    if getattr(environment, "keeps_calls", False):
        options.on_crash = "retry"  # the environment records the outcome of calls
    source = definition.function
    hints = resolved_hints(source)
    hints.pop("return", None)
    skipped = {"self", definition.signature.context}
    parameters = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in given_parameters(source)
        if parameter.name not in skipped and parameter.kind is not parameter.VAR_KEYWORD
    ]
    own = inspect.Parameter(STEP, inspect.Parameter.KEYWORD_ONLY, annotation=StepContext)
    call_through.__name__ = call_through.__qualname__ = definition.name
    call_through.__doc__ = source.__doc__ or definition.description
    call_through.__signature__ = inspect.Signature([*parameters, own])  # type: ignore[attr-defined]
    named = {parameter.name for parameter in parameters}
    call_through.__annotations__ = {
        **{name: hint for name, hint in hints.items() if name in named},
        STEP: StepContext,
    }
    return call_through


def _plain(value: Any) -> Any:
    """Return an argument in the form sent by the model. Agents have converted it already."""
    if isinstance(value, set | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return to_plain(value)
