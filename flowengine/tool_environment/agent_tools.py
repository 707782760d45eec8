"""Agents as tools of an environment: the same gate, observers and abort."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from flowengine.sdk import ToolError
from flowengine.tool_environment.tools import Tool

if TYPE_CHECKING:
    from flowengine.agents.agent import Agent
    from flowengine.metachain import Runner


class AgentTool(Tool):
    """An agent that is asked by others: it gets a prompt, works with its tools, and answers.

    A call of it is approved, observed and aborted like any other. So are the calls that it makes
    itself, if its functions are those of `through`.

    Args:
        agent: The agent.
        name: By which it is called; default: the agent's, in snake case.
        chain: Runs it; default: one that keeps nothing.
    """

    def __init__(self, agent: Agent, *, name: str = "", chain: Runner | None = None) -> None:
        self.agent = agent
        self.chain = chain
        self.name = name or re.sub(r"[^a-z0-9]+", "_", agent.name.lower()).strip("_")
        self.description = agent.description or f"Asks {agent.name}, who answers."

    async def execute(self, prompt: str) -> Any:
        """Ask the agent.

        Args:
            prompt: What it is asked, with all that it has to know.

        Returns:
            Its answer.

        Raises:
            ToolError: It has none.
        """
        from flowengine.metachain import Runner

        chain = self.chain or Runner()
        asked = [{"role": "user", "content": prompt}]
        response = await chain.run_async(self.agent, asked)
        if response.termination == "resolved":
            return response.result
        why = response.reason or response.termination or "it waits for a decision"
        raise ToolError(f"{self.agent.name} has no answer: {why}", retryable=False)
