"""Tools of an environment for agents: as Python functions, and their results as messages."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from flowengine.agents.agent import Response, Result
from flowengine.agents.models import Listener, Model, ModelReply, ModelRequest, resolve, using
from flowengine.agents.tool_answers import as_text
from flowengine.errors import UsageError
from flowengine.execution_environment import EnvironmentManager
from flowengine.execution_environment import manager as of_process
from flowengine.runner.agent import Agent
from flowengine.runner.chain import Runner
from flowengine.sdk import StepContext, StepError
from flowengine.sdk.python.live_signature import given_parameters, resolved_hints
from flowengine.sdk.texts.untrusted import marked, marked_failure
from flowengine.sdk.tools.tool_calls import (
    Environment,
    EnvironmentResponse,
    ToolCall,
    ToolResult,
    check_environment,
)
from flowengine.tool_environment.local_environment import LocalEnvironment
from flowengine.tool_environment.observers import check_callback
from flowengine.tool_environment.ready_tools import SHELL, execute_command
from flowengine.tool_environment.tools import ToolDefinition, define

# The result of a call as a message for the model, including images.

_TOOK_EFFECT = {
    "no": "Nothing was done.", "maybe": "It may have acted in part.", "yes": "It had ended.",
}  # fmt: skip


def tool_message(call: ToolCall, response: EnvironmentResponse) -> dict[str, Any]:
    """Return the message that answers a call, in the format of chat completions.

    The text describes the outcome. With images, the content is a list of parts.

    Args:
        call: The call.
        response: The response to the call.
    """
    text, images = answer_of(response)
    content: Any = text
    if images:
        content = [{"type": "text", "text": text}] if text else []
        content += [{"type": "image_url", "image_url": {"url": url}} for url in images]
    return {
        "role": "tool",
        "tool_call_id": call.tool_call_id,
        "name": call.tool_name,
        "content": content,
    }


def answer_of(response: EnvironmentResponse) -> tuple[str, list[str]]:
    """Return the text and the URLs of the images with which a model learns of an outcome."""
    result = response.tool_result
    if result is None:
        return f"Error: {response.error.message}" if response.error is not None else "", []
    texts = [_what_happened(result), *_additions(result)]
    images = [*result.images, *result.feedback_images]
    return "\n\n".join(filter(None, texts)), [image.url for image in images]


def _what_happened(result: ToolResult) -> str:
    content, writer, why = as_text(result.content), result.written_by, result.message or ""
    if content and writer is not None:
        content = marked(content, writer)
    if result.success:
        return content
    if result.status == "error":
        message = f"Error: {why}" if writer is None else marked_failure(why, writer)
    else:
        status = "lost" if result.status == "uncertain" else result.status.replace("_", " ")
        message = f"The call was {status}. {_TOOK_EFFECT[result.ran]}"
    if result.status == "invalid":
        message = f"{message} {why}"
    return f"{message}\n\nWhat it had produced:\n{content}" if content else message


def _additions(result: ToolResult) -> list[str]:
    texts = []
    if result.args is not None:
        args = json.dumps(result.args, ensure_ascii=False, default=str)
        texts.append(f"The arguments were changed before it ran: {args}")
    if result.feedback:
        texts.append(f"Comment of the person who decided: {result.feedback}")
    texts += [
        f"Kept as a file of {file['size']} bytes: {file['name']}" for file in result.artifacts
    ]
    return texts


# Tools of an environment as Python functions for agents.
#
# An agent calls them like any other functions. Each call becomes a `ToolCall`, which the
# environment approves and runs. The model receives its response.

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
            args=to_jsonable_python(given, bytes_mode="base64"),
        )
        text, images = answer_of(await environment.execute_tool(call))
        if not images:
            return text

        return Result(value=text, image=[*images])

    options: Any = call_through
    options.effect = definition.options.effect
    options.supports_parallel_execution = definition.options.supports_parallel_execution
    if getattr(environment, "keeps_calls", False):
        options.on_crash = "retry"  # the environment records the outcome of calls
    source = definition.function
    hints = resolved_hints(source)
    hints.pop("return", None)
    skipped = {"self", *definition.context}
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


# `Client`, which runs one task of an agent with tools for a directory.

_INSIDE = "/workspace/project"
"""Its path in the sandbox."""


class Client:
    """Runs tasks with tools in a working directory.

    Args:
        cwd: The directory. `execute_command` runs there, in a sandbox without access to others.
        manager: Opens the sandbox. Default: the manager of the process.
    """

    def __init__(
        self, cwd: str | PathLike[str] = ".", *, manager: EnvironmentManager | None = None
    ) -> None:
        self.cwd = Path(cwd).absolute()
        self._manager = manager or of_process()

    async def execute_task(
        self,
        *,
        model: str | Model,
        task: str,
        tools: Iterable[Any] = (execute_command,),
        on_tool_approval: Any = None,
        instructions: str = "You are a helpful agent.",
        api_key: str | None = None,
        max_turns: int = 30,
    ) -> Response:
        """Run a task until the model has answered.

        Args:
            model: `provider/model`, or a `Model`.
            task: The task.
            tools: The tools of the agent. Default: `execute_command`.
            on_tool_approval: Called with tool name, call id and arguments before each call. It
                returns an `ApprovalResponse`, a mapping with its fields, or a boolean, and can be a
                coroutine function. None: calls are approved automatically.
            instructions: Instructions for the model.
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
        async with self._environment() as environment:
            if on_tool_approval is not None:
                check_callback(on_tool_approval, 3, "on_tool_approval")
                environment.register_tool_approval_callback(
                    lambda call: on_tool_approval(call.tool_name, call.tool_call_id, call.args)
                )
            given = list(tools)
            for each in given:
                await environment.register_tool(each)
            shown = model if isinstance(model, str) else "task/model"
            functions = through(environment, given)
            agent = Agent(name="task", model=shown, instructions=instructions, functions=functions)
            if api_key is not None:
                model = _WithKey(resolve(model) if isinstance(model, str) else model, api_key)
            with nullcontext() if isinstance(model, str) else using(model):
                messages = [{"role": "user", "content": task}]
                return await Runner().run_async(agent, messages, max_turns=max_turns)

    def _environment(self) -> LocalEnvironment:
        task = os.urandom(8).hex()
        folder = {"kind": "files", "config": {"path": str(self.cwd), "mode": "rw"}}
        folder |= {"owner_id": task, "scope": "execution"}
        shell = {
            "kind": "bash",
            "mounts": {_INSIDE: self._manager.declare(folder)["id"]},
            "policy": {"root": _INSIDE, "confine": "cwd"},
        }
        return LocalEnvironment(
            manager=self._manager, execution_id=task, environments={SHELL: shell}
        )


class _WithKey:
    """A model called with a key that is not visible to others."""

    def __init__(self, model: Model, key: str) -> None:
        self._model, self._key, self.facts = model, key, model.facts

    async def complete(self, request: ModelRequest, listen: Listener | None = None) -> ModelReply:
        """Call the model once."""
        try:
            with_key = replace(request, settings={**request.settings, "api_key": self._key})
            return await self._model.complete(with_key, listen)
        except StepError as error:  # providers may quote a wrong key
            error.message = error.message.replace(self._key, "***")
            error.args = (error.message,)
            raise
