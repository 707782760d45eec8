"""The steps of a generated flow that determine its agents' offer: models, and tools of servers.

`agent_offer` also opens the conversation (`first_messages.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flowengine.agents.agent_spec import RETRY, AgentSpec
from flowengine.sdk import Plain

OFFER, OFFER_AGAIN = "_offer", "_offer_again"


def first(agents: Sequence[AgentSpec], args: Plain, served: Plain, then: Plain) -> Plain:
    """Return the step that opens the conversation.

    Args:
        agents: Agents of the flow.
        args: Input of the step.
        served: Tools of servers to offer. None: the agents use no servers.
        then: The edges that follow.
    """
    asked = {**_models(agents), "args": args}
    step: dict[str, Plain] = {
        "id": OFFER,
        "agent_offer": asked,
        "effect": "idempotent",
        "set": {
            "messages": "${{ output.messages }}",
            "context": "${{ output.context }}",
            "offer": "${{ output.offer }}",
            "asked": "${{ output.asked }}",
        },
        "next": then,
    }
    if served is not None:
        asked["servers"] = served
        step["retry"] = dict(RETRY)
    return step


def again(agents: Sequence[AgentSpec], served: Plain, ways: list[Plain]) -> Plain:
    """Return the step that updates the offer after tools of a server have changed.

    Args:
        agents: Agents of the flow.
        served: Tools of servers to offer.
        ways: The edges to the active agent.
    """
    return {
        "id": OFFER_AGAIN,
        "join": {"need": "each"},
        "agent_offer": {**_models(agents), "servers": served, "again": True},
        "effect": "idempotent",
        "retry": dict(RETRY),
        "set": {"offer": "${{ output.offer }}", "renewed": "${{ state.changed }}"},
        "next": {"first": ways},
    }


def _models(agents: Sequence[AgentSpec]) -> dict[str, Plain]:
    models: dict[str, Any] = {
        agent.name: {"model": agent.model, "fallbacks": [*agent.fallbacks]} for agent in agents
    }
    for agent in agents:
        if agent.context is not None and agent.context.max_tokens is None:
            models[agent.name]["windows"] = True
    label = "${{ 'model' in execution.labels ? execution.labels.model : '' }}"
    return {"models": models, "model": label}
