"""Agents with the tools of an environment: their tools as functions, and tasks in a directory."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from os import PathLike
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from flowengine.agents.agent import Response, Result
from flowengine.agents.models.keyed import KeyedModel
from flowengine.agents.models.registry import resolve, using
from flowengine.errors import UsageError
from flowengine.runner.agent import Agent
from flowengine.runner.chain import Runner
from flowengine.sdk import StepContext
from flowengine.sdk.python.live_signature import given_parameters, resolved_hints
from flowengine.sdk.tools.tool_calls import Environment, ToolCall, check_environment
from flowengine.tool_environment.calls import answer_of
from flowengine.tool_environment.local_environment import LocalEnvironment
from flowengine.tool_environment.tools import SHELL, ToolDefinition, define, execute_command

STEP = "step_of_call"
"""Name of the parameter that receives the step of the call."""


def through(environment: Environment, tools: Iterable[Any]) -> list[Callable[..., Any]]:
    """Return functions for an agent that make their calls through an environment.

    Args:
        environment: Approves and runs the calls. A `LocalEnvironment` must have the tools.
        tools: Functions, or classes derived from `Tool`.

    Returns:
        A coroutine function for each tool, with its name, description and arguments.

    Raises:
        UsageError: A method of the environment is missing, or one of the values is not a tool.
    """
    return [_function(check_environment(environment), define(each)) for each in tools]


def _function(environment: Environment, definition: ToolDefinition) -> Callable[..., Any]:
    async def call_through(*, step_of_call: StepContext, **given: Any) -> Any:
        call = ToolCall(
            tool_call_id=step_of_call.idempotency_key,
            tool_name=definition.name,
            args=to_jsonable_python(given, bytes_mode="base64"),
        )
        text, images = answer_of(await environment.execute_tool(call))
        return Result(value=text, image=[*images]) if images else text

    function, options = definition.options.execute, definition.options
    parameters = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in given_parameters(function)
        if parameter.name not in definition.context and parameter.kind is not parameter.VAR_KEYWORD
    ]
    named, hints = {parameter.name for parameter in parameters}, resolved_hints(function)
    own = inspect.Parameter(STEP, inspect.Parameter.KEYWORD_ONLY, annotation=StepContext)
    made: Any = call_through
    limits, parallel = getattr(options, "limits", None), options.supports_parallel_execution
    vars(made).update(effect=options.effect, supports_parallel_execution=parallel, limits=limits)
    if getattr(environment, "keeps_calls", False):
        made.on_crash = "retry"  # the environment records the outcome of calls
    made.__name__ = made.__qualname__ = definition.name
    made.__doc__ = function.__doc__ or definition.description
    made.__signature__ = inspect.Signature([*parameters, own])
    known = {name: hint for name, hint in hints.items() if name in named}
    made.__annotations__ = known | {STEP: StepContext}
    return call_through


# `Client`, which runs one task of an agent with tools for a directory.

_INSIDE = "/workspace/project"
"""Its path in the sandbox."""


class Client:
    """Runs tasks with tools in a working directory.

    Args:
        cwd: The directory. `execute_command` runs there, in a sandbox without access to others.
    """

    def __init__(self, cwd: str | PathLike[str] = ".") -> None:
        self.cwd = Path(cwd).absolute()

    async def execute_task(
        self,
        *,
        model: str,
        task: str,
        tools: Iterable[Any] = (execute_command,),
        on_tool_approval: Any = None,
        api_key: str | None = None,
        max_turns: int = 30,
    ) -> Response:
        """Run a task until the model has answered.

        Args:
            model: `provider/model`.
            task: The task.
            tools: The tools of the agent. Default: `execute_command`.
            on_tool_approval: Called with tool name, call id and arguments before each call. It
                returns an `ApprovalResponse`, a mapping with its fields, or a boolean, and can be a
                coroutine function. None: calls are approved automatically.
            api_key: Key of the model's provider. It does not appear in journals, events or
                messages.
            max_turns: Maximum model calls.

        Returns:
            The answer of the agent, and how its work ended.

        Raises:
            UsageError: The working directory does not exist, or the agent cannot be run.
        """
        if not self.cwd.is_dir():
            raise UsageError(f"the working directory {self.cwd} does not exist")
        async with LocalEnvironment() as environment:
            folder = {"kind": "files", "config": {"path": str(self.cwd), "mode": "rw"}}
            folder |= {"owner_id": environment.execution_id, "scope": "session"}
            environment.environments[SHELL] = {
                "kind": "bash",
                "mounts": {_INSIDE: environment.engine.environments.declare(folder)["id"]},
                "policy": {"root": _INSIDE, "confine": "cwd"},
            }
            if on_tool_approval is not None:
                environment.register_tool_approval_callback(
                    lambda call: on_tool_approval(call.tool_name, call.tool_call_id, call.args)
                )
            for each in (given := list(tools)):
                await environment.register_tool(each)
            agent = Agent(name="task", model=model, functions=through(environment, given))
            with nullcontext() if api_key is None else using(KeyedModel(resolve(model), api_key)):
                return await Runner().run_async(agent, task, max_turns=max_turns)
