# Shows F74
"""Upper bounds of a request's usage, in tokens and money."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from flowengine.agents.model_calls import UsageBounds, bounds_of
from flowengine.agents.models.library import load
from flowengine.agents.models.model_facts import cost_of, facts_of
from flowengine.agents.models.port import ModelFacts, ModelRequest, Usage
from flowengine.agents.models.scripted import ScriptedModel
from flowengine.agents.text_calls.marked_form import ToolOffer
from tests.rows import each_row

SYSTEM: dict[str, Any] = {"role": "system", "content": "You add."}
HELLO: dict[str, Any] = {"role": "user", "content": "Grüß Gott! " * 20}
CALLED: dict[str, Any] = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": "äöü"}'}}
    ],
}
ANSWER: dict[str, Any] = {"role": "tool", "tool_call_id": "1", "name": "add", "content": "3" * 400}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 1_000_000}}
ADD = ToolOffer("add", "Adds.", {"type": "object", "properties": {"a": {"type": "string"}}})
LAST = {"agent": "a", "model": "m/x", "input": 90, "tokens": 100}


def bounds(
    *messages: dict[str, Any], last: Any = None, facts: Any = None, **more: Any
) -> UsageBounds:
    request = ModelRequest("m/x", list(messages), agent="a", **more)
    model = ScriptedModel([], facts=facts or ModelFacts(longest_reply=1000))
    return asyncio.run(bounds_of(model, request, last or {}))


def test_a_prompt_has_no_more_tokens_than_bytes() -> None:
    found = bounds(SYSTEM, HELLO)

    assert found.prompt >= len(b"You add.") + len(("Grüß Gott! " * 20).encode())
    assert found.prompt < 1500
    assert 20 < found.likely < 100


def test_what_the_provider_has_counted_is_not_counted_by_its_bytes() -> None:
    history = [SYSTEM, HELLO, *([CALLED, ANSWER] * 30)]
    whole = bounds(*history)
    known = bounds(*history, last=LAST)

    assert whole.prompt > 10_000
    assert 500 < known.prompt < 1000
    assert 100 < known.likely < 250


@each_row("other", [{"agent": "b"}, {"model": "m/y"}, {"input": 0}])
def test_what_another_prompt_had_says_nothing(other: dict[str, Any]) -> None:
    history = [SYSTEM, HELLO, *([CALLED, ANSWER] * 30)]

    assert bounds(*history, last={**LAST, **other}) == bounds(*history)


def test_tools_and_forms_of_answers_count() -> None:
    plain = bounds(SYSTEM).prompt
    schema: Any = {"type": "object", "properties": {"x" * 500: {}}}

    assert bounds(SYSTEM, tools=[ADD]).prompt > plain + len(str(ADD.parameters))
    assert bounds(SYSTEM, returns=schema).prompt > plain + 500


def test_an_image_counts_as_one_and_not_by_its_bytes() -> None:
    found = bounds({"role": "user", "content": [{"type": "text", "text": "?"}, IMAGE]})

    assert 48_169 < found.prompt < 60_000
    assert found.likely < 2000


def test_a_model_that_thinks_needs_room_for_its_thoughts() -> None:
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 2000}, "max_tokens": 5000}
    found = bounds(SYSTEM, settings=thinking)

    assert (found.shortest, found.longest) == (2016, 5000)


@each_row("meter", ["tokens", "cost_usd"])
def test_what_is_granted_is_never_exceeded(meter: str) -> None:
    facts = ModelFacts(
        longest_reply=1000, input_price=3e-6, output_price=15e-6, highest_input_price=3.75e-6
    )
    found = bounds(SYSTEM, HELLO, facts=facts)
    need = found.needs()[meter]
    for part in (0.0, 0.1, 0.5, 1.0):
        left = need.least + part * (need.most - need.least)
        granted = min(need.most, left + need.beyond)
        reply = found.reply({meter: granted})
        price = (3.75e-6, 15e-6) if meter == "cost_usd" else (1, 1)
        assert found.prompt * price[0] + reply * price[1] <= granted + 1e-9
        assert found.shortest <= reply <= 1000
    assert found.reply({meter: need.most}) == 1000


def test_a_model_without_a_price_uses_no_money() -> None:
    assert bounds(SYSTEM).needs().keys() == {"tokens"}


def test_nothing_costs_more_than_the_highest_prices_say() -> None:
    """Compared with the library's calculation for random models and usages."""
    litellm = load()
    draws = random.Random(1)
    known = [
        name for name, one in litellm.model_cost.items()
        if one.get("mode") == "chat" and "/" not in name and one.get("input_cost_per_token")
        and one.get("output_cost_per_token") and one.get("litellm_provider")
    ]  # fmt: skip
    compared = 0
    for name in draws.sample(known, 250):
        provider = litellm.model_cost[name]["litellm_provider"]
        model = f"{provider}/{name}"
        facts = facts_of(litellm, model)
        if facts.input_price is None:
            continue
        sent, reply = draws.choice([10, 10_000, 250_000]), draws.choice([0, 10, 5000])
        kept, written = draws.choice([(0, 0), (sent // 2, 0), (0, sent), (sent // 3, sent // 3)])
        usage = Usage(sent, cached_tokens=kept, cache_write_tokens=written, output_tokens=reply)
        cost = cost_of(litellm, model, provider, usage)
        if cost is None:
            continue
        compared += 1
        found = UsageBounds(sent, sent, 1, reply, facts)
        assert cost <= found.needs()["cost_usd"].most * (1 + 1e-9), (model, usage)
    assert compared > 100
