"""What one request to a model may use at most: what budgets reserve before it is sent.

A request costs its prompt and its reply. How many tokens a provider makes of a prompt, only the
provider knows; no tokenizer makes more than one of a byte. After the first turn the provider has
said how long the prompt was, and only what is new is counted by its bytes. The reply is bounded by
the request: it may have no more tokens than budgets leave room for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from flowengine.agents.models.known_messages import since_reply, total
from flowengine.agents.models.port import Message, Model, ModelFacts, ModelRequest
from flowengine.agents.models.usage import message_tokens, tools_tokens
from flowengine.sdk import Need, Plain
from flowengine.sdk.read_only import plain

SHORTEST = 16
"""Tokens that a reply must have room for: with fewer it could not say anything."""
LONGEST = 4_096
"""Tokens that a reply may have of a model of which nobody knows how many it may have."""
_AROUND_MESSAGE = 16
"""Tokens that mark where a message begins and ends, at most."""
_UNSEEN = 1_000
"""Tokens that providers add to a prompt, as to explain calls, at most."""
_AS_TEXT = 4_000
"""Bytes that surround the descriptions of tools where a model is told of them in text."""
_AN_IMAGE = 50_000
"""Tokens of an image, at most: gpt-4o-mini counts 48,169 for a large one."""
_ROUNDED = 1e-6
"""What the sum of prices may lack of a whole token."""
_SAID = ("max_completion_tokens", "max_tokens", "max_output_tokens")
"""Settings that bound a reply."""


class Bounds(NamedTuple):
    """What a request may use."""

    likely: int
    """Tokens of the prompt, by an estimate."""
    prompt: int
    """At most."""
    shortest: int
    """Tokens that there must be room for in the reply."""
    longest: int
    """Tokens that the reply may have, if nothing else bounds it."""
    facts: ModelFacts

    def needs(self) -> dict[str, Need]:
        """Return what budgets are asked for."""
        beyond = self.prompt - self.likely
        tokens = Need(self.likely + self.shortest, self.prompt + self.longest, beyond)
        if self.facts.input_price is None or self.facts.output_price is None:
            return {"tokens": tokens}
        price, highest, reply = self._prices()
        likely, prompt = self.likely * price, self.prompt * highest
        # One token more than is needed: what is granted is a rounded number.
        least = likely + (self.shortest + 1) * reply
        cost = Need(least, prompt + self.longest * reply, prompt - likely)
        return {"tokens": tokens, "cost_usd": cost}

    def reply(self, granted: Mapping[str, float]) -> int:
        """Return how many tokens the reply may have.

        Args:
            granted: What budgets let the request use.
        """
        room = [float(self.longest)]
        if "tokens" in granted:
            room.append(granted["tokens"] - self.prompt)
        _, highest, reply = self._prices()
        if "cost_usd" in granted and reply:
            room.append((granted["cost_usd"] - self.prompt * highest) / reply)
        return max(int(min(room) + _ROUNDED), 1)

    def used(self, granted: Mapping[str, float]) -> dict[str, Plain]:
        """Return what the request has used at most, of which nobody knows what it did use.

        Args:
            granted: What budgets let it use.
        """
        _, highest, reply = self._prices()
        tokens = self.reply(granted)
        cost = self.prompt * highest + tokens * reply
        return {
            "input_tokens": self.prompt,
            "output_tokens": tokens,
            "cost_usd": None if self.facts.input_price is None else cost,
            "estimated": True,
        }

    def _prices(self) -> tuple[float, float, float]:
        """Return the price of a token of the prompt, its highest price, and that of the reply."""
        facts = self.facts
        price, reply = facts.input_price or 0.0, facts.output_price or 0.0
        highest = max(price, facts.highest_input_price or 0.0)
        return price, highest, max(reply, facts.highest_output_price or 0.0)


async def bounds_of(model: Model, request: ModelRequest, last: Mapping[str, Any]) -> Bounds:
    """Return what a request may use.

    Args:
        model: Who is asked.
        request: What is asked.
        last: What is known of the last request of the same conversation: `agent` and `model`,
            `input` and `tokens`, as the provider said them; or nothing.
    """
    facts = await model.facts(request.model)
    longest = _longest(request.settings, facts)
    shortest = min(longest, SHORTEST + _thinking(request.settings))
    likely, prompt = _prompt(request, last)
    return Bounds(likely, prompt, shortest, longest, facts)


def _longest(settings: Mapping[str, Plain], facts: ModelFacts) -> int:
    said = [settings[name] for name in _SAID if name in settings]
    whole = [one for one in said if isinstance(one, int) and not isinstance(one, bool) and one > 0]
    return min(whole, default=facts.longest_reply or LONGEST)


def _thinking(settings: Mapping[str, Plain]) -> int:
    """Return the tokens that a model is told to think with, which are a part of its reply."""
    thinking = settings.get("thinking")
    tokens = thinking.get("budget_tokens") if isinstance(thinking, Mapping) else None
    return tokens if isinstance(tokens, int) and tokens > 0 else 0


def _prompt(request: ModelRequest, last: Mapping[str, Any]) -> tuple[int, int]:
    """Return how many tokens a prompt has by an estimate, and at most."""
    messages, fixed = request.messages, tools_bytes(request)
    since = since_reply(messages) if _follows(request, last) else None
    if since is None:
        likely = tools_tokens(request.tools) + total(messages, message_tokens)
        return likely, fixed + _UNSEEN + total(messages, message_bytes)
    # The last prompt is a part of this one; only tools and instructions may have changed.
    known = last["tokens"] + sum(map(message_tokens, since[1:]))
    most = last["input"] + fixed + sum(map(message_bytes, [messages[0], *since]))
    return min(known, most), most


def _follows(request: ModelRequest, last: Mapping[str, Any]) -> bool:
    """Return whether a request goes on where the last one ended, and its length is known."""
    same = last.get("agent") == request.agent and last.get("model") == request.model
    return same and bool(last.get("input"))


def message_bytes(message: Message) -> int:
    """Return how many tokens a message has at most."""
    content = dict.get(message, "content")  # past a read-only view of it
    size = _AROUND_MESSAGE + _bytes(content if isinstance(content, str) else "")
    for part in () if isinstance(content, str) else content or ():
        size += _AN_IMAGE if "image_url" in part else _AROUND_MESSAGE + _bytes(_json([part]))
    others = {name: one for name, one in message.items() if name not in ("role", "content")}
    return size + (_bytes(_json(others)) if others else 0)


def tools_bytes(request: ModelRequest) -> int:
    """Return how many tokens tools, and the form of the answer, have at most."""
    if not request.tools and request.returns is None:
        return 0
    tools = [[one.name, one.description, one.parameters] for one in request.tools]
    around = _AROUND_MESSAGE * len(tools)
    return _AS_TEXT + around + _bytes(_json([tools, request.returns]))


def _json(data: Any) -> str:
    return json.dumps(plain(data), ensure_ascii=False)


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
