"""Agents as tools of an environment, with the same approval, observers and abort."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flowengine.sdk import ToolError

if TYPE_CHECKING:
    from flowengine.agents.agent_tools import AgentAsTool


def asking(source: AgentAsTool) -> Callable[..., Any]:
    """Return the function of an agent that is a tool.

    Args:
        source: The result of `Agent.as_tool`.
    """

    async def ask(prompt: str) -> Any:
        """Ask the agent.

        Args:
            prompt: The request, with all necessary information.
        """
        from flowengine.metachain import Runner

        agent: Any = source.agent
        response = await Runner().run_async(agent, prompt, max_turns=source.max_turns)
        if response.termination == "resolved":
            return response.result
        why = response.reason or response.termination or "it waits for a decision"
        raise ToolError(f"{agent.name} has no answer: {why}", retryable=False)

    return ask
