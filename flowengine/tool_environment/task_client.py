"""`Client`, which runs one task of an agent with tools for a directory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowengine.agents.models import Listener, Model, ModelReply, ModelRequest, resolve, using
from flowengine.errors import UsageError
from flowengine.sdk import StepError
from flowengine.tool_environment.authority import check_callback
from flowengine.tool_environment.local_environment import LocalEnvironment
from flowengine.tool_environment.shell_command import SHELL, execute_command

if TYPE_CHECKING:
    from flowengine.agents import Response
    from flowengine.execution_environment import EnvironmentManager

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
        from flowengine.execution_environment import manager as of_process

        self.cwd = Path(cwd).absolute()
        self._manager = manager or of_process()

    async def execute_task(
        self,
        *,
        model: str | Model | Mapping[str, str],
        task: str,
        tools: Iterable[Any] = (execute_command,),
        on_tool_approval: Any = None,
        instructions: str = "You are a helpful agent.",
        api_key: str | None = None,
        max_turns: int = 30,
    ) -> Response:
        """Run a task until the model has answered.

        Args:
            model: `provider/model`, a `Model`, or `{"id": "provider/model", "apiKey": key}`.
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
        from flowengine.agents import Agent
        from flowengine.metachain import Runner
        from flowengine.tool_environment.agent_functions import through

        if isinstance(model, Mapping):
            model, api_key = _read(model, api_key)
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
            name = model if isinstance(model, str) else "task/model"
            agent = Agent(
                name="task",
                model=name,
                instructions=instructions,
                functions=through(environment, given),
            )
            called: AbstractContextManager[Any] = nullcontext()
            if not isinstance(model, str) or api_key is not None:
                found = resolve(model) if isinstance(model, str) else model
                called = using(_WithKey(found, api_key))
            with called:
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


def _read(model: Mapping[str, str], api_key: str | None) -> tuple[str, str | None]:
    """Return the name and the key of a model from a mapping with both.

    Raises:
        UsageError: The mapping has other keys, or the key is given twice.
    """
    names = [*model]
    unknown = [name for name in names if name not in ("id", "apiKey", "api_key")]
    id, keys = model.get("id"), [model[name] for name in ("apiKey", "api_key") if name in model]
    if not isinstance(id, str) or unknown or len(keys) > 1:
        raise UsageError(
            f"model is a mapping with the keys {names}",
            hint="give {'id': 'provider/model', 'apiKey': key}, or the name and api_key=",
        )
    if keys and api_key is not None:
        raise UsageError("the key of the model is given twice", hint="leave out api_key")
    return id, keys[0] if keys else api_key


class _WithKey:
    """A model called with a key that is not visible to others.

    Args:
        model: The model.
        key: The key, if needed.
    """

    def __init__(self, model: Model, key: str | None) -> None:
        self._model = model
        self._key = key
        self.facts = model.facts

    async def complete(self, request: ModelRequest, listen: Listener | None = None) -> ModelReply:
        """Call the model once."""
        if self._key is None:
            return await self._model.complete(request, listen)
        try:
            with_key = replace(request, settings={**request.settings, "api_key": self._key})
            return await self._model.complete(with_key, listen)
        except StepError as error:  # providers may quote a wrong key
            error.message = error.message.replace(self._key, "***")
            error.args = (error.message,)
            raise
