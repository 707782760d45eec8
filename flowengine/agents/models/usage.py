"""The usage of a model call: reported by the provider, or estimated and marked as such."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from json import dumps
from math import isfinite
from typing import Any

from flowengine.agents.models.port import Usage
from flowengine.agents.text_calls.records import ToolOffer

_CHARACTERS_A_TOKEN = 4
_TOKENS_AN_IMAGE = 1_000
_MOST = 2**53
"""Maximum of a credible count of tokens or amount of dollars."""


def reported_usage(objects: Iterable[Any]) -> Usage | None:
    """Return the usage that a provider reported in one or several pieces, if any.

    Each piece contains the numbers so far, and some contain only a part of them. The maximum of
    each number is used. A piece with an impossible number is ignored.

    Args:
        objects: The usage objects of the library, unchanged.
    """
    total: dict[str, int] = {}
    cost = None
    for usage in objects:
        cost = _cost(getattr(usage, "cost", None)) or cost
        numbers = [*_numbers(usage)]
        if any(not 0 <= number <= _MOST for _, number in numbers):
            continue
        for name, number in numbers:
            total[name] = max(total.get(name, 0), number)
    if not total.get("input_tokens") and not total.get("output_tokens"):
        return None
    return Usage(cost_usd=cost, **total)  # type: ignore[arg-type]


def estimated_usage(messages: Sequence[dict[str, Any]], tools: Any, reply: str) -> Usage:
    """Estimate the tokens of a call, with four characters per token.

    Args:
        messages: Messages of the request.
        tools: Tools of the request.
        reply: Text of the reply.
    """
    sent = _text_tokens(tools) if tools else 0
    sent += sum(map(message_tokens, messages))
    return Usage(sent, output_tokens=-(-len(reply) // _CHARACTERS_A_TOKEN), estimated=True)


def message_tokens(message: dict[str, Any]) -> int:
    """Estimate the tokens of a message.

    Args:
        message: The message, as stored or as sent.
    """
    content = dict.get(message, "content")  # bypasses a read-only view
    parts: Any = [{"text": content}] if isinstance(content, str) else content or ()
    tokens = 4
    for part in parts:
        text = part.get("text")
        tokens += _TOKENS_AN_IMAGE if text is None else len(text) // _CHARACTERS_A_TOKEN
    for name in ("tool_calls", "provider_parts"):
        if more := dict.get(message, name):
            tokens += _text_tokens(more)
    return tokens


def tools_tokens(tools: Iterable[ToolOffer]) -> int:
    """Estimate the tokens of the tools on offer.

    Args:
        tools: The tools.
    """
    return sum(_text_tokens([tool.name, tool.description, tool.parameters]) for tool in tools)


def _text_tokens(data: Any) -> int:
    return len(dumps(data, ensure_ascii=False)) // _CHARACTERS_A_TOKEN


def _numbers(usage: Any) -> Iterable[tuple[str, int]]:
    sent = getattr(usage, "prompt_tokens_details", None)
    received = getattr(usage, "completion_tokens_details", None)
    written = getattr(usage, "cache_creation_input_tokens", None)
    for name, number in (
        ("input_tokens", getattr(usage, "prompt_tokens", None)),
        ("cached_tokens", getattr(sent, "cached_tokens", None)),
        ("cached_tokens", getattr(usage, "cache_read_input_tokens", None)),
        ("cache_write_tokens", getattr(sent, "cache_creation_tokens", None) or written),
        ("output_tokens", getattr(usage, "completion_tokens", None)),
        ("reasoning_tokens", getattr(received, "reasoning_tokens", None)),
    ):
        if isinstance(number, int):
            yield name, number


def _cost(cost: Any) -> float | None:
    if isinstance(cost, Mapping):
        cost = cost.get("total_cost")
    if isinstance(cost, bool) or not isinstance(cost, int | float):
        return None
    # An impossible amount would disable a budget, so the price table is used instead.
    return float(cost) if isfinite(cost) and 0 <= cost <= _MOST else None
