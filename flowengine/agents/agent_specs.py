"""The specification from which the flow of an agent is generated.

It is the same whether a file or a Python object declares the agent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from flowengine.agents.context_window import SUMMARY
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


@dataclass(frozen=True)
class AgentHook:
    """A tool that stands around the turns or the calls of an agent."""

    tool: ToolStep
    when: When
    arguments: Sequence[str]
    """The arguments that it takes, of those in `HOOK_ARGUMENTS`."""
    tools: Sequence[str] = ()
    """Globs for the names of the called tools. Empty: all."""


@dataclass(frozen=True)
class AgentCheck:
    """A tool that checks a prompt or an answer."""

    tool: ToolStep
    when: Literal["before", "after"]
    tells: bool
    """Whether the model receives the error of the check. Otherwise the error ends the step."""
    arguments: Sequence[str]
    """The arguments that it takes, of those in `CHECK_ARGUMENTS`."""
    beside: bool = False
    """Whether it checks a prompt beside the request to the model."""
    arriving: Plain = None
    """The function that also checks an answer while it arrives."""


@dataclass(frozen=True)
class Reducer:
    """How to reduce a conversation that no longer fits its model."""

    max_tokens: int | None = None
    """Maximum tokens of a request. None: as many as fit the model."""
    summarizes: bool = False
    """Whether the model summarizes the messages that are left out."""
    tool: ToolStep | None = None
    """The tool that summarizes them instead."""
    arguments: Sequence[str] = ()
    """Arguments that the tool takes."""
    clear: int = 0
    """Number of replies whose results stay when older ones are replaced by notes. 0: no notes."""

    @property
    def room(self) -> int:
        """Maximum characters of a summary."""
        if not self.summarizes and self.tool is None:
            return 0
        return SUMMARY if self.max_tokens is None else min(SUMMARY, self.max_tokens)


@dataclass(frozen=True)
class HandoffFilter:
    """The part of the conversation that an agent sees after a handoff, if not all of it."""

    sees: str | int
    """As `context_window.handed_over` takes it."""
    tool: ToolStep | None = None
    """The tool that summarizes the conversation."""
    arguments: Sequence[str] = ()
    """Arguments that the tool takes."""


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
    filters: Mapping[str, HandoffFilter]
    """Agent → the part of the conversation that it sees after a handoff, if not all of it."""
    max_turns: int
    last: str
    retry: Mapping[str, Plain]
    on_crash: Literal["", "ask", "fail"]
    """The treatment of an interrupted model call: `ask`, `fail`, or empty text to repeat it."""
    settings: Mapping[str, Plain]
    context: Reducer | None
    checks: Sequence[AgentCheck]
    hooks: Sequence[AgentHook]
    call_limit: tuple[str, int] | None
    """Identity of the agent within an execution, and the number of calls it can make there."""
    code: Plain | None
    """The environment in which its programs run, as in a step. None: it has no `code`."""
    constants: Mapping[str, Plain]
    """Constants of its turns, in addition to those that the surrounding flow determines."""

    @property
    def models(self) -> list[Plain]:
        """Its model, null if it names none, followed by its fallbacks."""
        return [self.model, *self.fallbacks]
