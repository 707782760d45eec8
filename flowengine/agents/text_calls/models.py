"""Models that need text calls, for those missing from the library's table."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Literal

FunctionCalling = Literal["native", "text"]

MODELS: tuple[tuple[str, FunctionCalling], ...] = (
    ("deepseek-r1*", "text"),
    ("deepseek-reasoner*", "text"),
    ("llama3", "text"),
    ("llama3:*", "text"),
    ("llama-3-*", "text"),
    ("meta-llama-3-*", "text"),
    ("grok-1*", "text"),
    ("o1-mini*", "text"),
)
"""Patterns of model names without their provider. The first match counts. Llama supports function
calling from 3.1, Grok from 2."""


def function_calling(
    model: str,
    *,
    agent: FunctionCalling | None = None,
    listed: bool | None = None,
) -> FunctionCalling:
    """Return how tools are offered to a model: as the agent declares, otherwise by the tables.

    An unknown model is first called with native function calling.

    Args:
        model: Name with or without its provider: `openrouter/deepseek/deepseek-r1:free`.
        agent: The declaration of the agent.
        listed: Whether the library's table lists function calling. None: unknown.
    """
    if agent is not None:
        return agent
    if listed is not None:
        return "native" if listed else "text"
    name = model.lower().rsplit("/", 1)[-1]
    return next((calling for pattern, calling in MODELS if fnmatchcase(name, pattern)), "native")
