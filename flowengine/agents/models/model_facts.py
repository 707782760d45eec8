"""Facts about models from the library's tables, without any request."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from flowengine.agents.models.port import FunctionCalling, ModelFacts, Usage

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
"""Models missing from the table: patterns of their names without the provider. The first match
counts. Llama supports function calling from 3.1, Grok from 2."""


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


def entry_of(litellm: Any, model: str) -> Mapping[str, Any]:
    """Return the entry of a model, or an empty one.

    Args:
        litellm: The library.
        model: `provider/model`, or without a provider. An entry of another provider supplies the
            abilities of the model, but not its price.
    """
    table, name = litellm.model_cost, model
    while name and name not in table:
        name = name.partition("/")[2]
    entry: Mapping[str, Any] = table.get(name, {})
    provider = model.partition("/")[0]
    if name == model or str(entry.get("litellm_provider")).startswith(provider):
        return entry
    return {key: value for key, value in entry.items() if "_cost_" not in key}


def facts_of(litellm: Any, model: str) -> ModelFacts:
    """Return the facts about a model, as `Model.facts` does."""
    entry = entry_of(litellm, model)
    return ModelFacts(
        window=_whole(entry.get("max_input_tokens") or entry.get("max_tokens")),
        longest_reply=_whole(entry.get("max_output_tokens")),
        input_price=entry.get("input_cost_per_token"),
        output_price=entry.get("output_cost_per_token"),
        highest_input_price=_highest(entry, _INPUT_PRICES),
        highest_output_price=_highest(entry, _OUTPUT_PRICES),
        vision=bool(entry.get("supports_vision")) if entry else None,
        function_calling=function_calling(model, listed=entry.get("supports_function_calling")),
        schema_mode=bool(entry.get("supports_response_schema")) if entry else None,
    )


_INPUT_PRICES = (
    "input_cost_per_token",
    "input_cost_per_image_token",
    "cache_creation_input_token_cost",
)
_OUTPUT_PRICES = ("output_cost_per_token", "output_cost_per_reasoning_token")
_OTHER_SERVICES = ("_batches", "_flex", "_priority")
"""Suffixes of prices for other kinds of requests."""


def _highest(entry: Mapping[str, Any], names: tuple[str, ...]) -> float | None:
    """Return the highest of the named prices for prompts of any length, if there is one."""
    prices = [
        price
        for name, price in entry.items()
        if name.startswith(names)
        and not name.endswith(_OTHER_SERVICES)
        and isinstance(price, int | float)
    ]
    return max(prices, default=None)


def cost_of(litellm: Any, model: str, provider: str, usage: Usage) -> float | None:
    """Return the cost of a call in USD by the price table, or None if the model is not in it.

    Args:
        litellm: The library.
        model: `provider/model`.
        provider: Name of the provider in the library.
        usage: Usage of the call.
    """
    if "input_cost_per_token" not in entry_of(litellm, model):
        return None
    tokens = litellm.Usage(
        prompt_tokens=usage.input_tokens,
        completion_tokens=usage.output_tokens,
        total_tokens=usage.input_tokens + usage.output_tokens,
        prompt_tokens_details={"cached_tokens": usage.cached_tokens},
        cache_read_input_tokens=usage.cached_tokens,
        cache_creation_input_tokens=usage.cache_write_tokens,
    )
    name = model.removeprefix(f"{provider}/")
    try:
        costs = litellm.cost_per_token(
            model=name, custom_llm_provider=provider, usage_object=tokens
        )
    except Exception:  # the table does not fit the provider, so only the cost is unknown
        return None
    return float(sum(costs))


def _whole(number: Any) -> int | None:
    return int(number) if isinstance(number, int | float) else None
