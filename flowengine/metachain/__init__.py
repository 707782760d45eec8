"""`Runner`: runs agents that are Python objects, as executions of a flow.

The flow is generated from the agents, and an engine runs it like any other. So what holds for
flows holds here: crash and resume, approvals, history.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flowengine.agents.agent import Agent, Response
from flowengine.metachain.chain import MetaChain, Runner
from flowengine.metachain.work import AgentRunFailed

if TYPE_CHECKING:
    from flowengine.metachain.streaming import StreamPart

__all__ = [
    "AgentRunFailed",
    "MetaChain",
    "Runner",
    "StreamPart",
    "get_chat_completion",
    "handle_tool_calls",
]


def __getattr__(name: str) -> Any:
    if name != "StreamPart":
        raise AttributeError(f"module 'flowengine.metachain' has no attribute {name!r}")
    from flowengine.metachain.streaming import StreamPart

    return StreamPart


def get_chat_completion(
    agent: Agent,
    history: list[dict[str, Any]],
    context_variables: dict[str, Any] | None = None,
    *,
    model: str | None = None,
) -> dict[str, Any]:
    """Ask the model of an agent once; see `Runner.get_chat_completion`.

    Args:
        agent: The agent.
        history: The conversation so far.
        context_variables: For instructions that are a function.
        model: In place of the agent's.

    Returns:
        The message of the assistant.
    """
    return Runner().get_chat_completion(agent, history, context_variables, model=model)


def handle_tool_calls(
    tool_calls: Sequence[Any],
    functions: Sequence[Any],
    context_variables: dict[str, Any] | None = None,
) -> Response:
    """Run calls that a model has made; see `Runner.handle_tool_calls`.

    Args:
        tool_calls: As the model made them.
        functions: The tools.
        context_variables: For those that take them.

    Returns:
        A message for each call, the agent that was handed over to, and the context.
    """
    return Runner().handle_tool_calls(tool_calls, functions, context_variables)
