# Shows M82
"""Usage as each provider reports it on the wire, equal whether streamed or not."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from flowengine.agents.models import Usage, resolve
from tests.agents.models.asking import Heard, request
from tests.agents.models.wire import Answer, Wire

JSON = {"Content-Type": "application/json"}
EVENTS = {"Content-Type": "text/event-stream"}


def events(*bodies: dict[str, Any]) -> Answer:
    pieces = []
    for body in bodies:
        name = f"event: {body['type']}\n" if "type" in body else ""
        pieces.append(f"{name}data: {json.dumps(body)}\n\n".encode())
    return Answer(tuple(pieces), 200, EVENTS)


def whole(body: dict[str, Any]) -> Answer:
    return Answer((json.dumps(body).encode(),), 200, JSON)


CLAUDE = {
    "input_tokens": 10,
    "cache_creation_input_tokens": 30,
    "cache_read_input_tokens": 60,
    "output_tokens": 20,
}
CLAUDE_MESSAGE = {"id": "m", "type": "message", "role": "assistant", "model": "claude"}
CLAUDE_WHOLE = whole(
    {
        **CLAUDE_MESSAGE,
        "content": [{"type": "text", "text": "Hi"}],
        "stop_reason": "end_turn",
        "usage": CLAUDE,
    }
)
CLAUDE_STREAMED = events(
    {
        "type": "message_start",
        "message": {**CLAUDE_MESSAGE, "content": [], "usage": {**CLAUDE, "output_tokens": 1}},
    },
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 20}},
    {"type": "message_stop"},
)

GEMINI_USED = {
    "promptTokenCount": 100,
    "cachedContentTokenCount": 60,
    "candidatesTokenCount": 13,
    "thoughtsTokenCount": 7,
    "totalTokenCount": 120,
}


def gemini(text: str, used: dict[str, int], finish: str | None = "STOP") -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": [{"text": text}]}}
    if finish:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "usageMetadata": used, "modelVersion": "gemini"}


GEMINI_WHOLE = whole(gemini("Hi", GEMINI_USED))
GEMINI_STREAMED = events(
    gemini("H", {"promptTokenCount": 100, "totalTokenCount": 100}, None), gemini("i", GEMINI_USED)
)

OPENAI_USED = {
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "total_tokens": 120,
    "prompt_tokens_details": {"cached_tokens": 60},
    "completion_tokens_details": {"reasoning_tokens": 7},
}
OPENAI = {"id": "1", "created": 1, "model": "gpt"}
OPENAI_WHOLE = whole(
    {
        **OPENAI,
        "object": "chat.completion",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
        ],
        "usage": OPENAI_USED,
    }
)
CHUNK = {**OPENAI, "object": "chat.completion.chunk"}
OPENAI_STREAMED = events(
    {**CHUNK, "choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hi"}}]},
    {**CHUNK, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    {**CHUNK, "choices": [], "usage": OPENAI_USED},
)


@pytest.mark.parametrize(
    ("model", "path", "unstreamed", "streamed", "usage"),
    [
        (
            "openai/gpt-4o",
            "/v1",
            OPENAI_WHOLE,
            OPENAI_STREAMED,
            Usage(100, 60, 0, 20, 7, 40 * 2.5e-6 + 60 * 1.25e-6 + 20 * 1e-5),
        ),
        (
            "anthropic/claude-sonnet-4-5",
            "",
            CLAUDE_WHOLE,
            CLAUDE_STREAMED,
            Usage(100, 60, 30, 20, 0, 10 * 3e-6 + 60 * 3e-7 + 30 * 3.75e-6 + 20 * 1.5e-5),
        ),
        (
            "gemini/gemini-2.5-flash",
            "/v1beta",
            GEMINI_WHOLE,
            GEMINI_STREAMED,
            Usage(100, 60, 0, 20, 7, 40 * 3e-7 + 60 * 3e-8 + 20 * 2.5e-6),
        ),
    ],
    ids=["openai", "anthropic", "gemini"],
)
def test_cached_and_reasoning_tokens_are_counted_and_priced(
    model: str, path: str, unstreamed: Answer, streamed: Answer, usage: Usage, wire: Wire
) -> None:
    asked = request(
        model=model, settings={"api_key": "key", "api_base": f"{wire.url}{path}"}, tools=()
    )
    wire.answer(unstreamed, streamed)

    async def both() -> list[Usage]:
        model_ = resolve(model)
        return [(await model_.complete(asked, listen)).usage for listen in (None, Heard())]

    one, other = asyncio.run(both())

    assert one == other
    assert one.cost_usd == pytest.approx(usage.cost_usd)
    assert (one.input_tokens, one.cached_tokens, one.cache_write_tokens) == (
        usage.input_tokens,
        usage.cached_tokens,
        usage.cache_write_tokens,
    )
    assert (one.output_tokens, one.reasoning_tokens) == (
        usage.output_tokens,
        usage.reasoning_tokens,
    )
    assert not one.estimated
