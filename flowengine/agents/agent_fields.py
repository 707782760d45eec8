"""What is said of an agent in Python."""

from __future__ import annotations

import os
from collections.abc import Callable
from os import PathLike
from typing import Any, Literal

from pydantic import Field

from flowengine.agents.agent_as_tool import is_tool
from flowengine.agents.agent_tools import AgentWithTools
from flowengine.agents.first_messages import VARIABLE
from flowengine.errors import UsageError

Instructions = str | Callable[..., str]


class AgentFields(AgentWithTools):
    """The fields of an agent."""

    model: str = Field(default_factory=lambda: os.environ.get(VARIABLE) or "gpt-4o")
    """Default: the one that the variable `FLOWENGINE_MODEL` names, otherwise `gpt-4o`."""
    instructions: Instructions = "You are a helpful agent."
    """Text, or a function that returns it: called before every turn, with the context variables if
    it has a parameter."""
    tool_choice: str | None = None
    """`auto`, `none`, `required`, or the name of a tool that must be called."""
    parallel_tool_calls: bool = True
    context_variables_description: str = ""
    """Added to the instructions."""

    description: str = ""
    fallbacks: list[str] = Field(default_factory=list)
    """Models that are tried in order when one cannot answer."""
    retry: dict[str, Any] | int | None = None
    """Of one call of a model, as `retry` in a flow file; default: 3 attempts, pauses of 4 to 10
    seconds."""
    function_calling: Literal["native", "text"] | None = None
    settings: dict[str, Any] = Field(default_factory=dict)
    """Passed to the provider: `temperature`, `max_tokens`, …"""
    repeats: int = Field(default=3, ge=0)
    """How many times in a row the same call may fail in the same way before the agent is told; if
    it calls it again, its work ends. 0: no limit."""
    returns: Any = None
    """What an answer has to be: a type, such as a pydantic model or a dataclass, of which the
    response has an instance; or a JSON Schema. None: text."""
    context: dict[str, Any] | str | Callable[..., str] | None = None
    """What happens when the conversation no longer fits the model: `{"max_tokens": 50_000,
    "reduce": "drop"}`. Default of `max_tokens`: as many as fit the model. `reduce` is `drop`,
    `summarize`, or a function that takes `messages` and perhaps `summary` and returns the new
    summary. A text stands for `{"reduce": text}`. None: the run fails."""
    checks: list[Any] = Field(default_factory=list)
    """Functions that check what the agent is asked, `{"before": on_topic}`, and its answers,
    `{"after": cites_sources}`: they pass by returning and fail by raising. `"then": "end"` ends the
    work, `"tell"` tells the model; default: `end` before, `tell` after."""
    skills: list[str | PathLike[str]] = Field(default_factory=list)
    """Folders with a `SKILL.md`, as paths or globs; relative ones start at the current folder."""

    @property
    def beside(self) -> list[Any]:
        """Functions that it does not call by itself: those that check, or summarize."""
        reduce = self.context.get("reduce") if isinstance(self.context, dict) else self.context
        named = [one for check in self.checks if isinstance(check, dict) for one in check.values()]
        return [one for one in (*named, reduce) if is_tool(one)]

    def answer_schema(self) -> dict[str, Any] | None:
        """Return the JSON Schema that an answer has to fit; None: it is text.

        Raises:
            UsageError: `returns` has none.
        """
        if self.returns is None or isinstance(self.returns, dict):
            return self.returns
        from flowengine.sdk.python_functions.live_types import schema_of

        try:
            return schema_of(self.returns)
        except Exception as error:
            raise UsageError(
                f"agent {self.name!r}: returns={self.returns!r} has no JSON Schema: {error}",
                hint="say a pydantic model, a dataclass, another plain type, or a JSON Schema",
            ) from None
