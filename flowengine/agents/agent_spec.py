"""An agent as its flow is generated from it, whether a file or a Python object declares it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flowengine.agents.generated_checks import Check
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
"""Of one call of a model, where the agent says nothing else: pauses of 4 to 10 seconds."""


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
    """Agents that a tool of it may hand over to, besides the `handoffs` that it is offered."""
    max_turns: int
    last: str
    retry: Mapping[str, Plain]
    settings: Mapping[str, Plain]
    context: Reducer | None
    checks: Sequence[Check]
    call_limit: tuple[str, int] | None
    """Which agent it is among all of an execution, and how many calls it may make there."""
    constants: Mapping[str, Plain]
    """What its turns know for good, besides what the flow around them decides."""
