"""Unfinished conversations of agents, from the store of an engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine.agents.generated_calls import calls_of
from flowengine.engines.inspection.subflows import Subflow, subflows
from flowengine.engines.starting.beginning import exists

if TYPE_CHECKING:
    from flowengine.engines.engine import Engine

_KEYS = frozenset({"messages", "context", "active", "calls", "asked", "end", "text"})
"""State keys of the flow that runs agents."""


class Conversation(NamedTuple):
    """A conversation so far."""

    messages: list[dict[str, Any]]
    """Includes the results of completed calls while other calls of the reply are still open."""
    context: dict[str, Any]
    """The context variables after these messages."""
    active: str
    """Id of the agent that was active last."""
    calls: Mapping[str, Mapping[str, Any]]
    """Calls of the newest reply, by their places in it."""
    asked: int
    """Index of the user's newest message, or -1."""
    end: Mapping[str, Any]
    """How the work on that message ended, if it has."""
    text: str
    """The last text of the agents."""
    failed: str
    """Type and message of a model error without a fallback, or empty."""


def conversations(engine: Engine, execution: str) -> dict[str, Conversation]:
    """Return the conversations of an execution, by the addresses of their steps.

    Args:
        engine: The engine with the execution.
        execution: Its full id. If it does not exist yet, the result is empty.
    """
    if not exists(engine._host, execution):
        return {}
    flows = subflows(engine._read(execution))
    return {item.address: _of(item) for item in flows if item.state.keys() >= _KEYS}


def _of(subflow: Subflow) -> Conversation:
    state = subflow.state
    messages, context = list(state["messages"]), dict(state["context"])
    for made in subflow.items.get(calls_of(state["active"]), ()):
        messages += made["messages"]
        context |= made["context"]
    calls = {str(call["place"]): call for call in state["calls"]}
    asked, end, text = (state[name] for name in ("asked", "end", "text"))
    failed = state.get("failed", "")
    return Conversation(messages, context, state["active"], calls, asked, end, text, failed)
