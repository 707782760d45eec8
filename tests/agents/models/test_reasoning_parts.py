"""Encrypted reasoning is returned to its provider, in the format of OpenAI's Responses API."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from flowengine.agents.models import Message, ModelReply, Usage, resolve
from tests.agents.models.asking import Heard, request
from tests.agents.models.wire import Answer, Wire, replied

MODEL = "openai/responses/gpt-5"
THOUGHT = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "hm"}],
    "encrypted_content": "SIGNED",
}
CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_x",
    "name": "math__add",
    "arguments": '{"a": 1, "b": 2}',
    "status": "completed",
}
RESPONSE: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "status": "completed",
    "model": "gpt-5",
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "output": [THOUGHT, CALL],
    "usage": {
        "input_tokens": 100,
        "output_tokens": 20,
        "total_tokens": 120,
        "input_tokens_details": {"cached_tokens": 60},
        "output_tokens_details": {"reasoning_tokens": 7},
    },
}
BEGUN: dict[str, Any] = {"output": [], "status": "in_progress", "usage": None}
EVENTS: list[tuple[str, dict[str, Any]]] = [
    ("created", {"response": RESPONSE | BEGUN}),
    ("output_item.added", {"output_index": 0, "item": THOUGHT | {"summary": []}}),
    (
        "reasoning_summary_text.delta",
        {"item_id": "rs_1", "output_index": 0, "summary_index": 0, "delta": "hm"},
    ),
    ("output_item.done", {"output_index": 0, "item": THOUGHT}),
    ("output_item.added", {"output_index": 1, "item": CALL | {"arguments": ""}}),
    (
        "function_call_arguments.delta",
        {"item_id": "fc_1", "output_index": 1, "delta": CALL["arguments"]},
    ),
    ("output_item.done", {"output_index": 1, "item": CALL}),
    ("completed", {"response": RESPONSE}),
]


def whole() -> Answer:
    return Answer((json.dumps(RESPONSE).encode(),), 200, {"Content-Type": "application/json"})


def streamed() -> Answer:
    pieces = []
    for number, (kind, data) in enumerate(EVENTS):
        event = {"type": f"response.{kind}", "sequence_number": number, **data}
        pieces.append(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
    return Answer(tuple(pieces), 200, {"Content-Type": "text/event-stream"})


def ask(wire: Wire, model: str, listen: Any = None, **more: Any) -> ModelReply:
    settings = {"api_key": "key", "api_base": f"{wire.url}/v1"}
    asked = request(model=model, settings=settings, **more)
    return asyncio.run(resolve(model).complete(asked, listen))


@pytest.mark.parametrize("listen", [None, Heard()], ids=["whole", "streamed"])
def test_signed_reasoning_is_kept_and_goes_back_to_its_provider_alone(
    listen: Any, wire: Wire
) -> None:
    wire.answer(streamed() if listen else whole(), whole(), replied("3"))

    reply = ask(wire, MODEL, listen)
    result = {"role": "tool", "tool_call_id": "call_x", "name": "math.add", "content": "3"}
    history: list[Message] = [{"role": "user", "content": "?"}, reply.message, result]
    ask(wire, MODEL, messages=history)
    ask(wire, "deepseek/deepseek-chat", messages=history)

    [call] = reply.calls
    assert (call.id, call.arguments) == ("call_x", {"a": 1, "b": 2})
    assert reply.message["reasoning"] == "hm"
    used = reply.usage
    assert used == Usage(100, 60, 0, 20, 7, used.cost_usd)
    assert used.cost_usd
    _, same, other = wire.requests
    kinds = [one["type"] for one in same.body["input"]]
    assert kinds == ["message", "reasoning", "function_call", "function_call_output"]
    assert same.body["input"][1] == THOUGHT
    assert "SIGNED" not in json.dumps(other.body)
    assert other.body["messages"][2]["tool_calls"][0]["id"] == "call_x"


def test_the_message_is_plain_data(wire: Wire) -> None:
    wire.answer(whole())

    message = ask(wire, MODEL).message

    assert json.loads(json.dumps(message)) == message
