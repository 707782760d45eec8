"""Which models are asked for calls as text, where the library's table does not say it."""

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
"""Patterns of model names, without their provider; the first that fits counts. Llama calls
functions from 3.1 on, Grok from 2 on."""


def function_calling(
    model: str,
    *,
    agent: FunctionCalling | None = None,
    listed: bool | None = None,
) -> FunctionCalling:
    """Return how a model is asked for calls: as the agent says, else by the tables.

    One that no table has is asked natively first.

    Args:
        model: With its provider or without: `openrouter/deepseek/deepseek-r1:free`.
        agent: What the agent sets.
        listed: Whether the library's table says that it calls functions; None: it does not say.
    """
    if agent is not None:
        return agent
    if listed is not None:
        return "native" if listed else "text"
    name = model.lower().rsplit("/", 1)[-1]
    return next((calling for pattern, calling in MODELS if fnmatchcase(name, pattern)), "native")
