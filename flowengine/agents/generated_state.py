"""The state of a generated flow, which is derived from the outputs of its steps."""

from __future__ import annotations

import json
from collections.abc import Mapping

from flowengine.agents import generated_checks, generated_reductions
from flowengine.agents.termination import NO_END
from flowengine.sdk import Plain

STATE = (
    *("messages", "context", "offer", "turns", "begun", "idle", "model_at"),
    *("mark", "summary", "asked", "earlier_replies", "last"),
)
"""State that a turn reads."""
ANSWER = (
    "${{ state.end.outcome == 'resolved' || state.end.value != null ? state.end.value : state.text"
    " }}"
)
"""The output: the answer, otherwise the last text."""
SPENT = "has(state.spent.reason)"
"""Whether a call exhausted a budget."""
NOTHING = json.dumps(NO_END)
"""An expression for work that has not ended."""


def declared(active: str, served: bool) -> Mapping[str, Plain]:
    """Return the declaration of the state.

    Args:
        active: The agent that starts.
        served: Whether agents have tools of servers.
    """
    renewed: dict[str, Plain] = {}
    if served:
        renewed = {
            "changed": {"type": "integer", "default": 0, "reducer": "add"},
            "renewed": {"type": "integer", "default": 0},
        }
    return {
        "messages": {"type": "array", "default": [], "reducer": "append"},
        "context": {"type": "object", "default": {}, "reducer": "merge"},
        "offer": {"type": "object", "default": {}},
        "turns": {"type": "integer", "default": 0, "reducer": "add"},
        "begun": {"type": "integer", "default": 0},
        "model_at": {"type": "integer", "default": 0, "reducer": "add"},
        "idle": {"type": "integer", "default": 0},
        "spent": {"type": "object", "default": {}, "reducer": "merge"},
        "calls": {"type": "array", "default": []},
        "active": {"type": "string", "default": active},
        "text": {"type": "string", "default": ""},
        "end": {"type": "object", "default": NO_END},
        "handed": {"type": "object", "default": {}, "reducer": "merge"},
        "last": {"type": "object", "default": {}},
        **generated_reductions.STATE,
        **renewed,
        **generated_checks.STATE,
    }
