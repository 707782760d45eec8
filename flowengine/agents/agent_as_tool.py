"""An agent in Python that another one calls as a tool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

ASKED: dict[str, Any] = {
    "type": "object",
    "properties": {
        "prompt": {
            "description": "What it is asked: text, or a list of parts.",
            "type": ["string", "array"],
        },
        "context": {"description": "Shown to the model as data.", "type": "object"},
        "files": {"description": "Files to mention to it.", "type": "array"},
    },
    "additionalProperties": False,
}
"""JSON Schema of what an agent is asked, by a step or another agent."""


class Named(Protocol):
    """An agent, as far as it matters here."""

    name: str


@dataclass(frozen=True)
class AgentAsTool:
    """What `Agent.as_tool` returns: it stands among the functions of another agent."""

    agent: Named
    name: str
    """By which the model calls it."""
    description: str
    max_turns: int | Mapping[str, Any]


def is_tool(value: object) -> bool:
    """Return whether a value is a function or an agent as a tool."""
    return callable(value) or isinstance(value, AgentAsTool)
