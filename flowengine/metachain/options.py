"""Arguments of the methods that run agents, and the validation of their inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from flowengine.errors import UsageError

if TYPE_CHECKING:
    from flowengine.agents.agent import Agent


class ResumeOptions(TypedDict, total=False):
    """Arguments of every method that resumes a run."""

    agents: Sequence[Agent]
    """Further agents that the agent can hand off to, besides those used by its functions."""
    runtime_resources: Mapping[str, Any] | None
    """Objects for its functions, by parameter names that the agents list in `environments`. They
    are never stored."""


class RunOptions(ResumeOptions, total=False):
    """Arguments of every method that starts a run."""

    model: str | None
    """Overrides the model of every agent."""
    id: str | None
    """Id of the execution. A second run with the same id continues the first."""
    session: str
    """Name of a conversation that each run with this name continues, in a single execution. A run
    starts with the user's next message. Without an engine, the store of the directory keeps it."""
    budget: Mapping[str, Any]
    """Limits on all calls together, as `budget` of a flow: `{"tokens": 50_000, "cost_usd": 1}`. In
    a session, they apply to all runs together."""
    policies: Sequence[Mapping[str, Any]]
    """Rules about calls, as `policies` of a flow: `[{"deny": "pay", "agent": "Clerk"}]`."""
    labels: Mapping[str, str]
    """Labels of the execution, for searches."""


def check_inputs(messages: Any, context_variables: Any) -> None:
    """Check the inputs of a run before any model is called or environment opened.

    Args:
        messages: The conversation so far.
        context_variables: Variables by name.

    Raises:
        UsageError: The message names the invalid input.
    """
    if not isinstance(context_variables, dict) or not all(
        isinstance(key, str) for key in context_variables
    ):
        raise UsageError("context_variables is not a dict with names", hint="give {'name': value}")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise UsageError(
            "messages is not a list of dicts",
            hint="give [{'role': 'user', 'content': '…'}]",
        )
    open_calls: set[str] = set()
    for place, message in enumerate(messages):
        role = message.get("role")
        if role == "system":
            raise UsageError(
                f"messages[{place}] is a system message",
                hint="the instructions of the agent are sent as such: Agent(instructions=…)",
            )
        if role not in {"user", "assistant", "tool"}:
            raise UsageError(
                f"messages[{place}] has the role {role!r}",
                hint="say 'user', 'assistant' or 'tool'",
            )
        open_calls |= {str(item.get("id")) for item in message.get("tool_calls") or ()}
        if role == "tool" and str(message.get("tool_call_id")) not in open_calls:
            raise UsageError(
                f"messages[{place}] answers the call {message.get('tool_call_id')!r}, which no "
                "message before it makes",
                hint="put the assistant's message with the call before it",
            )
