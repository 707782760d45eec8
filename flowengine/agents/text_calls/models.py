"""Which models are asked for calls as text. It is data: settings come before it."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Literal

FunctionCalling = Literal["native", "text"]

MODELS: tuple[tuple[str, FunctionCalling], ...] = (
    ("deepseek-r1*", "text"),
    ("deepseek-reasoner*", "text"),
    ("llama-3*", "text"),
    ("llama3*", "text"),
    ("meta-llama-3*", "text"),
    ("grok*", "text"),
    ("o1-mini*", "text"),
)
"""Patterns of model names, without their provider; the first that fits counts.

Yours: `(("my-model*", "text"), *MODELS)`.
"""


def function_calling(
    model: str,
    *,
    run: FunctionCalling | None = None,
    agent: FunctionCalling | None = None,
    models: Iterable[tuple[str, FunctionCalling]] = MODELS,
) -> FunctionCalling:
    """Say how a model is asked for calls. One that nobody knows is asked natively first.

    Args:
        model: With its provider or without: `openrouter/deepseek/deepseek-r1:free`.
        run: What the run sets.
        agent: What the agent sets.
        models: Patterns of names; the first that fits counts.
    """
    if chosen := run or agent:
        return chosen
    name = model.lower().rsplit("/", 1)[-1]
    return next((calling for pattern, calling in models if fnmatchcase(name, pattern)), "native")
