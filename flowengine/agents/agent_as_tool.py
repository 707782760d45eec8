"""A Python agent that another agent calls as a tool."""

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
"""JSON Schema of the input of an agent that a step or another agent calls."""


class NamedAgent(Protocol):
    """An agent, reduced to the attributes used here."""

    name: str


@dataclass(frozen=True)
class AgentAsTool:
    """The result of `Agent.as_tool`, for the functions of another agent."""

    agent: NamedAgent
    name: str
    """Name by which the model calls it."""
    description: str
    max_turns: int | Mapping[str, Any]


def is_tool(value: object) -> bool:
    """Return whether a value is a function or an agent as a tool."""
    return callable(value) or isinstance(value, AgentAsTool)
