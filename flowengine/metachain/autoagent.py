"""What programs of AutoAgent call: `MetaChain`, and two functions beside a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flowengine.agents.agent import Agent, Response
from flowengine.metachain.chain import Runner


class MetaChain(Runner):
    """A `Runner` by the name that it has there."""

    def get_chat_completion(
        self,
        agent: Agent,
        history: list[dict[str, Any]],
        context_variables: dict[str, Any] | None = None,
        *,
        model: str | None = None,
    ) -> dict[str, Any]:
        """Ask the model of an agent once, with its instructions and tools; no call is run.

        Args:
            agent: The agent.
            history: The conversation so far.
            context_variables: For instructions that are a function.
            model: In place of the agent's.

        Returns:
            The message of the assistant.
        """
        found = self.run(
            agent, history, context_variables, max_turns=1, execute_tools=False, model=model
        )
        return next(one for one in found.messages if one["role"] == "assistant")

    def handle_tool_calls(
        self,
        tool_calls: Sequence[Any],
        functions: Sequence[Any],
        context_variables: dict[str, Any] | None = None,
    ) -> Response:
        """Run calls that a model has made, as a run does it.

        Args:
            tool_calls: `{"id", "function": {"name", "arguments"}}` each, or objects with such
                attributes; the arguments as JSON text.
            functions: The tools.
            context_variables: For those that take them.

        Returns:
            A message for each call, the agent that was handed over to, and the context.
        """
        from flowengine.agents.models.registry import using
        from flowengine.agents.models.scripted import ScriptedModel

        if not tool_calls:
            return Response(context_variables=dict(context_variables or {}))
        agent = Agent(name="calls", model="scripted/calls", tools=list(functions))
        script: list[Any] = [{"calls": [_scripted(one) for one in tool_calls]}, {"text": "done"}]
        with using(ScriptedModel(script)):
            found = self.run(agent, [], context_variables, max_turns=2)
        found.messages = [one for one in found.messages if one["role"] != "assistant"]
        found.agent = None if found.agent is agent else found.agent
        return found


def _scripted(call: Any) -> dict[str, Any]:
    """Return a call that a model made elsewhere as a scripted reply has it."""
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
    """Ask the model of an agent once; see `MetaChain.get_chat_completion`."""
    return MetaChain().get_chat_completion(*args, **keywords)


def handle_tool_calls(*args: Any, **keywords: Any) -> Response:
    """Run calls that a model has made; see `MetaChain.handle_tool_calls`."""
    return MetaChain().handle_tool_calls(*args, **keywords)
