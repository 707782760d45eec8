"""Keyword arguments of the calls that run agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from flowengine.agents.agent import Agent


class ResumeOptions(TypedDict, total=False):
    """What each way to resume a run takes."""

    agents: Sequence[Agent]
    """Others that the agent may hand over to, besides those that its functions name."""
    runtime_resources: Mapping[str, Any] | None
    """Objects for its functions, by the names of their parameters, which the agents name in
    `environments`. They are never stored."""


class RunOptions(ResumeOptions, total=False):
    """What each way to run an agent takes."""

    model: str | None
    """In place of the model of every agent."""
    id: str | None
    """Of the execution; a second run with it continues the first."""
    session: str
    """Name of a conversation, which each run with it continues: all are one execution, and a run
    begins by its user's next message. Without an engine, it is kept in the store of the folder."""
    budget: Mapping[str, Any]
    """What all calls together may use, as `budget` of a flow: `{"tokens": 50_000, "cost_usd": 1}`.
    Of a session: in all runs."""
    policies: Sequence[Mapping[str, Any]]
    """Rules about calls, as `policies` of a flow: `[{"deny": "pay", "agent": "Clerk"}]`."""
    labels: Mapping[str, str]
    """Of the execution, to find it by."""
