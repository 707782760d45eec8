"""An agent as its flow is generated from it, whether a file or a Python object declares it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flowengine.agents.generated_checks import Check
from flowengine.agents.generated_reductions import Reducer
from flowengine.agents.termination import REPEATS
from flowengine.agents.tool_steps import ToolStep
from flowengine.agents.turn_limit import TURNS
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
    description: str = ""
    model: str | None = None
    fallbacks: Sequence[str] = ()
    tools: Sequence[ToolStep] = ()
    handoffs: Sequence[str] = ()
    returns: Mapping[str, Plain] | None = None
    max_turns: int = TURNS
    last: str = "fail"
    retry: Mapping[str, Plain] = field(default_factory=lambda: RETRY)
    tool_choice: str | None = None
    parallel_tool_calls: bool = True
    function_calling: str | None = None
    settings: Mapping[str, Plain] = field(default_factory=dict)
    finish: str = "answer"
    context: Reducer | None = None
    checks: Sequence[Check] = ()
    repeats: int = REPEATS
    call_limit: tuple[str, int] | None = None
    """Which agent it is among all of an execution, and how many calls it may make there."""
    reaches: Sequence[str] = ()
    """Agents that a tool of it may hand over to, besides the `handoffs` that it is offered."""
    extra: Mapping[str, Plain] = field(default_factory=dict)
    """More constants of its turns."""
