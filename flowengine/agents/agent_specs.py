"""The specification from which the flow of an agent is generated.

It is the same whether a file or a Python object declares the agent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

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


When = Literal["before_turn", "after_turn", "before_call", "after_call"]
_TURN = ("agent", "turn", "prompt")
HOOK_ARGUMENTS: Mapping[When, Sequence[str]] = {
    "before_turn": (*_TURN, "messages", "tokens"),
    "after_turn": (*_TURN, "text", "calls", "tokens"),
    "before_call": (*_TURN, "tool", "arguments"),
    "after_call": (*_TURN, "tool", "arguments", "result", "error"),
}
"""When a hook runs → the arguments that it can take."""
OF_CALLS = ("before_call", "after_call")
"""Hooks that are about single calls."""
CHECK_ARGUMENTS = ("prompt", "answer")
"""Arguments that a check can take."""


class Helper(NamedTuple):
    """A tool that stands around the work of an agent: a hook, a check, or one that summarizes."""

    place: str
    """The id of its step, without the name of the agent: `before_turn.NAME`."""
    tool: ToolStep
    says: str = ""
    """What the step shows to users. Empty: it summarizes, and shows the call."""
    room: int = 0
    """Maximum characters of a summary."""


@dataclass(frozen=True)
class AgentSpec:
    """An agent."""

    name: str
    description: str
    models: Sequence[str | None]
    """Its model, null if it names none, followed by its fallbacks."""
    tools: Sequence[ToolStep]
    handoffs: Sequence[str]
    reaches: Sequence[str]
    """Agents that its tools can hand off to, in addition to the `handoffs` offered to the model."""
    max_turns: int
    last: str
    retry: Mapping[str, Plain]
    on_crash: Literal["", "ask", "fail"]
    """The treatment of an interrupted model call: `ask`, `fail`, or empty text to repeat it."""
    settings: Mapping[str, Plain]
    helpers: Sequence[Helper]
    call_limit: tuple[str, int] | None
    """Identity of the agent within an execution, and the number of calls it can make there."""
    code: Plain | None
    """The environment in which its programs run, as in a step. None: it has no `code`."""
    constants: Mapping[str, Plain]
    """Constants of its rounds, in addition to those that the surrounding flow determines."""
