"""The single entry point for model calls: within budgets, and with the images of the request.

Budgets reserve the maximum usage of a request before it is sent.

A request costs its prompt and its reply. Only the provider knows the number of tokens in a prompt,
but no tokenizer makes more than one token of a byte. After the first turn, the provider has
reported the length of the prompt, and only the new messages are counted by their bytes. The request
limits the reply to the tokens that budgets leave.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from flowengine.agents.arriving import ArrivingText
from flowengine.agents.models.conversations import since_reply
from flowengine.agents.models.port import (
    Listener,
    Message,
    Model,
    ModelFacts,
    ModelReply,
    ModelRequest,
    message_tokens,
    tools_tokens,
)
from flowengine.agents.models.provider_schemas import answer_form, arguments_form
from flowengine.agents.models.registry import in_folder, resolve
from flowengine.agents.tool_answers import illustrated
from flowengine.sdk import Need, Plain, StepContext, StepError
from flowengine.sdk.values.read_only import plain, unwrapped

SHORTEST = 16
"""Minimum tokens to reserve for a reply. Fewer would not fit a useful one."""
LONGEST = 4_096
"""Maximum tokens of a reply from a model with an unknown limit."""
_AROUND_MESSAGE = 16
"""Maximum tokens that mark the beginning and end of a message."""
_UNSEEN = 1_000
"""Maximum tokens that a provider adds to a prompt, for example to explain calls."""
_AS_TEXT = 4_000
"""Bytes around the descriptions of tools for a model without native function calling."""
_AN_IMAGE = 50_000
"""Maximum tokens of an image. gpt-4o-mini counts 48,169 for a large one."""
_ROUNDED = 1e-6
"""Tolerance for rounding, as a fraction of a token."""
_SAID = ("max_completion_tokens", "max_tokens", "max_output_tokens")
"""Settings that limit a reply."""


async def ask_model(
    context: StepContext,
    request: ModelRequest,
    last: Mapping[str, Any],
    listen: Listener | ArrivingText | None = None,
) -> ModelReply:
    """Request a reply from a model, no longer than budgets allow.

    Args:
        context: The attempt. Script files are resolved in its working directory.
        request: The request.
        last: As for `bounds_of`.
        listen: Receives the reply in parts, and may close the request. None: the reply is not
            streamed.

    Raises:
        StepError: The model did not reply. If its provider may charge for the request, the data of
            the error contains the highest possible usage.
    """
    model, granted = _model(context, request), context.granted
    images = illustrated(request.messages, context.execution.artifacts.path)
    shown = request if images is request.messages else replace(request, messages=images)
    if granted is None:
        return await _reply(model, shown, listen)
    bounds = await bounds_of(model, request, last)
    longest = bounds.reply(granted)
    # Otherwise the model or a setting already limits the reply.
    if longest < bounds.longest or bounds.facts.longest_reply is None:
        shown = replace(shown, longest_reply=longest)
    try:
        return await _reply(model, shown, listen)
    except StepError as error:
        if isinstance(error.data, Mapping) and error.data.get("unfinished"):
            error.data = {**error.data, "usage": bounds.used(granted)}
        raise


async def _reply(
    model: Model, request: ModelRequest, listen: Listener | ArrivingText | None
) -> ModelReply:
    asked = model.complete(request, listen)
    return await (listen.watch(asked) if isinstance(listen, ArrivingText) else asked)


async def model_needs(
    context: StepContext, request: ModelRequest, last: Mapping[str, Any]
) -> Mapping[str, Need]:
    """Return the possible use of budgets by a model call."""
    return (await bounds_of(_model(context, request), request, last)).needs()


def _model(context: StepContext, request: ModelRequest) -> Model:
    return resolve(in_folder(request.model, context.execution.workdir))


class UsageBounds(NamedTuple):
    """The possible usage of a request."""

    likely: int
    """Estimated tokens of the prompt."""
    prompt: int
    """Maximum tokens of the prompt."""
    shortest: int
    """Minimum tokens to reserve for the reply."""
    longest: int
    """Maximum tokens of the reply, if no budget lowers it."""
    facts: ModelFacts

    def needs(self) -> dict[str, Need]:
        """Return the reservations to request from budgets."""
        beyond = self.prompt - self.likely
        tokens = Need(self.likely + self.shortest, self.prompt + self.longest, beyond)
        if self.facts.input_price is None or self.facts.output_price is None:
            return {"tokens": tokens}
        price, highest, reply = self._prices()
        likely, prompt = self.likely * price, self.prompt * highest
        # One token more than needed, because granted amounts are rounded.
        least = likely + (self.shortest + 1) * reply
        cost = Need(least, prompt + self.longest * reply, prompt - likely)
        return {"tokens": tokens, "cost_usd": cost}

    def reply(self, granted: Mapping[str, float]) -> int:
        """Return the maximum tokens of the reply.

        Args:
            granted: The amounts that budgets granted to the request.
        """
        room = [float(self.longest)]
        if "tokens" in granted:
            room.append(granted["tokens"] - self.prompt)
        _, highest, reply = self._prices()
        if "cost_usd" in granted and reply:
            room.append((granted["cost_usd"] - self.prompt * highest) / reply)
        return max(int(min(room) + _ROUNDED), 1)

    def used(self, granted: Mapping[str, float]) -> dict[str, Plain]:
        """Return the maximum usage of a request whose actual usage is unknown.

        Args:
            granted: The amounts that budgets granted to the request.
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
        """Return the usual and highest price of a prompt token, and the price of a reply token."""
        facts = self.facts
        price, reply = facts.input_price or 0.0, facts.output_price or 0.0
        highest = max(price, facts.highest_input_price or 0.0)
        return price, highest, max(reply, facts.highest_output_price or 0.0)


async def bounds_of(model: Model, request: ModelRequest, last: Mapping[str, Any]) -> UsageBounds:
    """Return the possible usage of a request.

    Args:
        model: The model.
        request: The request.
        last: The last request of the same conversation, as reported by the provider: `agent`,
            `model`, `input` and `tokens`. Can be empty.
    """
    facts = await model.facts(request.model)
    bounds = [request.settings[name] for name in _SAID if name in request.settings]
    whole = [
        bound
        for bound in bounds
        if isinstance(bound, int) and not isinstance(bound, bool) and bound > 0
    ]
    longest = min(whole, default=facts.longest_reply or LONGEST)
    thinking = request.settings.get("thinking")
    thought = thinking.get("budget_tokens") if isinstance(thinking, Mapping) else None
    if not isinstance(thought, int) or thought <= 0:
        thought = 0
    shortest = min(longest, SHORTEST + thought)  # thoughts are part of the reply
    likely, prompt = _prompt(request, last)
    return UsageBounds(likely, prompt, shortest, longest, facts)


def _prompt(request: ModelRequest, last: Mapping[str, Any]) -> tuple[int, int]:
    """Return the estimated and the maximum tokens of a prompt."""
    messages, fixed = request.messages, tools_bytes(request)
    same = last.get("agent") == request.agent and last.get("model") == request.model
    since = since_reply(messages) if same and last.get("input") else None
    if since is None:
        likely = tools_tokens(request.tools) + sum(map(message_tokens, unwrapped(messages)))
        return likely, fixed + _UNSEEN + sum(map(message_bytes, unwrapped(messages)))
    # The last prompt is part of this one. Only tools and instructions can have changed.
    known = last["tokens"] + sum(map(message_tokens, since[1:]))
    most = last["input"] + fixed + sum(map(message_bytes, [messages[0], *since]))
    return min(known, most), most


def message_bytes(message: Message) -> int:
    """Return the maximum tokens of a message."""
    content = dict.get(message, "content")  # bypasses a read-only view
    size = _AROUND_MESSAGE + _bytes(content if isinstance(content, str) else "")
    for part in () if isinstance(content, str) else content or ():
        size += _AN_IMAGE if "image_url" in part else _AROUND_MESSAGE + _bytes(_json([part]))
    others = {name: value for name, value in message.items() if name not in ("role", "content")}
    return size + (_bytes(_json(others)) if others else 0)


def tools_bytes(request: ModelRequest) -> int:
    """Return the maximum tokens of the tools and of the answer's schema."""
    if not request.tools and request.returns is None:
        return 0
    tools = [[tool.name, tool.description, *arguments_form(tool.schema)] for tool in request.tools]
    around = _AROUND_MESSAGE * len(tools)
    size = _AS_TEXT + around + _bytes(_json(tools))
    if request.returns is None:
        return size
    form = answer_form(plain(request.returns))
    schemas = [request.returns, *([form.schema] if form else [])]
    return size + max(_bytes(_json(schema)) for schema in schemas)


def _json(data: Any) -> str:
    return json.dumps(plain(data), ensure_ascii=False)


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
