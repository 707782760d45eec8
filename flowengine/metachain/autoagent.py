"""The interface of AutoAgent: `MetaChain`, and its two helper functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flowengine.agents.agent import Agent, Response
from flowengine.metachain.chain import Runner


class MetaChain(Runner):
    """A `Runner` under the name used by AutoAgent."""

    def get_chat_completion(
        self,
        agent: Agent,
        history: list[dict[str, Any]],
        context_variables: dict[str, Any] | None = None,
        *,
        model: str | None = None,
    ) -> dict[str, Any]:
        """Call the model of an agent once, with instructions and tools, without running calls.

        Args:
            agent: The agent.
            history: The conversation so far.
            context_variables: Variables for instructions that are a function.
            model: Overrides the model of the agent.

        Returns:
            The assistant message.
        """
        response = self.run(
            agent, history, context_variables, max_turns=1, execute_tools=False, model=model
        )
        return next(message for message in response.messages if message["role"] == "assistant")

    def handle_tool_calls(
        self,
        tool_calls: Sequence[Any],
        functions: Sequence[Any],
        context_variables: dict[str, Any] | None = None,
    ) -> Response:
        """Run tool calls of a model as a run does.

        Args:
            tool_calls: The calls, each as `{"id", "function": {"name", "arguments"}}` or an object
                with such attributes. The arguments are JSON text.
            functions: The tools.
            context_variables: Variables for tools that take them.

        Returns:
            A message for each call, the agent that was handed off to, and the context.
        """
        from flowengine.agents.models.registry import using
        from flowengine.agents.models.scripted import ScriptedModel

        if not tool_calls:
            return Response(context_variables=dict(context_variables or {}))
        agent = Agent(name="calls", model="scripted/calls", tools=list(functions))
        script: list[Any] = [
            {"calls": [_scripted(tool_call) for tool_call in tool_calls]},
            {"text": "done"},
        ]
        with using(ScriptedModel(script)):
            response = self.run(agent, [], context_variables, max_turns=2)
        response.messages = [
            message for message in response.messages if message["role"] != "assistant"
        ]
        response.agent = None if response.agent is agent else response.agent
        return response


def _scripted(call: Any) -> dict[str, Any]:
    """Return the scripted form of a call that a model made elsewhere."""
    function = _of(call, "function")
    arguments = _of(function, "arguments")
    return {
        "id": _of(call, "id") or "",
        "name": _of(function, "name"),
        "arguments": "{}" if arguments is None else arguments,
    }


def _of(thing: Any, name: str) -> Any:
    return thing.get(name) if isinstance(thing, Mapping) else getattr(thing, name, None)


def get_chat_completion(*args: Any, **keywords: Any) -> dict[str, Any]:
    """Call the model of an agent once, as `MetaChain.get_chat_completion` does."""
    return MetaChain().get_chat_completion(*args, **keywords)


def handle_tool_calls(*args: Any, **keywords: Any) -> Response:
    """Run tool calls of a model, as `MetaChain.handle_tool_calls` does."""
    return MetaChain().handle_tool_calls(*args, **keywords)
