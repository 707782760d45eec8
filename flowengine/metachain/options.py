"""Keyword arguments of the methods that run agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

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
