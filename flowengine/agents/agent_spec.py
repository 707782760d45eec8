"""The specification from which the flow of an agent is generated.

It is the same whether a file or a Python object declares the agent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flowengine.agents.generated_checks import AgentCheck
from flowengine.agents.generated_reductions import Reducer
from flowengine.agents.tool_steps import ToolStep
from flowengine.sdk import Plain

RETRY: Mapping[str, Plain] = {
    "attempts": 3,
    "delay": "5s",
    "backoff": 2,
    "max_delay": "10s",
    "jitter": 0.2,
}
"""Default retry of a model call. The pauses are 4 to 10 seconds long."""


@dataclass(frozen=True)
class AgentSpec:
    """An agent."""

    name: str
    description: str
    model: str | None
    fallbacks: Sequence[str]
    tools: Sequence[ToolStep]
    handoffs: Sequence[str]
    reaches: Sequence[str]
    """Agents that its tools can hand off to, in addition to the `handoffs` offered to the model."""
    max_turns: int
    last: str
    retry: Mapping[str, Plain]
    settings: Mapping[str, Plain]
    context: Reducer | None
    checks: Sequence[AgentCheck]
    call_limit: tuple[str, int] | None
    """Identity of the agent within an execution, and the number of calls it can make there."""
    constants: Mapping[str, Plain]
    """Constants of its turns, in addition to those that the surrounding flow determines."""
