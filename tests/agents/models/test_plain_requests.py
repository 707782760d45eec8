"""Requests of plain data are sent unchanged, while OpenAI's client transforms all others."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Any

import pytest

from flowengine.agents.models.library import as_plain, load, spare

CHAT = "openai.resources.chat.completions.completions"
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk=", "detail": "low"}}
CALL = {"id": "1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be exact."},
    {"role": "developer", "content": "Be quick."},
    {"role": "user", "content": [{"type": "text", "text": "What is this?"}, IMAGE]},
    {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "aGk="}}]},
    {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning_content": "Hm."},
    {"role": "tool", "tool_call_id": "1", "content": "3", "name": "add"},
    {"role": "assistant", "content": "3", "refusal": None},
]
REQUEST: dict[str, Any] = {
    "model": "gpt-4o",
    "messages": MESSAGES,
    "tools": [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}],
    "tool_choice": {"type": "function", "function": {"name": "add"}},
    "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}},
    "max_tokens": 5,
    "stop": ["a"],
    "metadata": {"a": "b"},
    "stream_options": {"include_usage": True},
}


@pytest.fixture(scope="module")
def chat() -> Any:
    load()
    return import_module(CHAT)


def transformed(chat: Any, data: Any) -> Any:
    params = import_module("openai.types.chat.completion_create_params")
    return asyncio.run(chat.async_maybe_transform(data, params.CompletionCreateParamsNonStreaming))


def test_the_client_would_change_nothing(chat: Any) -> None:
    """If this fails after an update of the client, `plain_requests` must be adapted."""
    assert transformed(chat, REQUEST) == REQUEST


def test_what_is_plain_is_sent_as_it_is(chat: Any) -> None:
    omit = import_module("openai").omit
    with as_plain():
        found = transformed(chat, {**REQUEST, "seed": omit})

    assert found == REQUEST
    assert found["messages"] is MESSAGES  # the messages were not traversed


def test_others_in_the_process_notice_nothing(chat: Any) -> None:
    """A program may use the client itself, with its own objects."""
    message = import_module("openai.types.chat").ChatCompletionMessage
    said = message(role="assistant", content="Hi")
    found = transformed(chat, {"messages": [said], "model": "gpt-4o"})

    assert found["messages"] == [{"role": "assistant", "content": "Hi"}]


def test_a_client_of_another_make_stays_as_it_is(
    chat: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(chat, "async_maybe_transform")
    spare()

    assert not hasattr(chat, "async_maybe_transform")
