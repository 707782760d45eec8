"""Conversations with providers as simulated by aimock: each shape, streamed and not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from json import loads
from typing import Any

import pytest

from flowengine.agents.models import (
    Message,
    ModelError,
    ModelReply,
    RateLimited,
    Usage,
    resolve,
)
from flowengine.sdk import StepError
from flowengine.sdk.untrusted import RULES
from tests.agents.models.asking import Heard, request, written
from tests.agents.models.double import MODELS, Double, running

USED = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
CALLS = [
    {"id": "call_a", "name": "math__add", "arguments": {"a": 1, "b": 2}},
    {"id": "call_b", "name": "math__add", "arguments": {"a": 3, "b": 4}},
]
WRITTEN = written(request(), "math.add", a=1, b=2)
"""The double cannot know the mark, which is constant for requests outside of conversations."""
FIXTURES: list[dict[str, Any]] = [
    {
        "match": {"userMessage": "sums", "hasToolResult": False},
        "response": {"content": "Let me see.", "toolCalls": CALLS, "usage": USED},
    },
    {
        "match": {"userMessage": "sums", "hasToolResult": True},
        "response": {"content": "3 and 7.", "usage": USED},
    },
    {
        "match": {"userMessage": "limited"},
        "response": {
            "error": {"message": "slow down", "type": "rate_limit_error"},
            "status": 429,
            "retryAfter": 7,
        },
    },
    {
        "match": {"userMessage": "broken"},
        "response": {"error": {"message": "oops", "type": "server_error"}, "status": 500},
    },
    {
        "match": {"userMessage": "cut"},
        "response": {"content": "This reply is cut off after some of it has arrived. " * 5},
        "truncateAfterChunks": 6,
        "latency": 30,
    },
    {
        "match": {"userMessage": "<result-"},
        "response": {"content": "The sum is 3.", "usage": USED},
    },
    {
        "match": {"userMessage": "as text"},
        "response": {"content": f"Well.\n{WRITTEN}", "usage": USED},
    },
    {"match": {"userMessage": "hello"}, "response": {"content": "Hello to you.", "usage": USED}},
]


@pytest.fixture(scope="module")
def double(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Double]:
    with running(FIXTURES, tmp_path_factory.mktemp("double")) as one:
        yield one


@pytest.fixture(autouse=True)
def forgotten(double: Double) -> None:
    double.forget()


def ask(double: Double, model: str, text: str, listen: Any = None, **more: Any) -> ModelReply:
    settings = double.settings(model, **more.pop("headers", {}))
    asked = request(text, model=model, settings=settings, **more)
    return asyncio.run(resolve(model).complete(asked, listen))


def plain(reply: ModelReply) -> ModelReply:
    """Return a reply without insignificant whitespace in the JSON of its arguments."""
    message: Message = dict(reply.message)
    for call in message.get("tool_calls", ()):
        call["function"]["arguments"] = loads(call["function"]["arguments"])
    return replace(reply, message=message)


@pytest.mark.parametrize("model", MODELS)
# Shows M82
def test_a_streamed_reply_equals_the_one_that_is_not(model: str, double: Double) -> None:
    heard = Heard()

    whole, streamed = ask(double, model, "sums"), ask(double, model, "sums", heard)

    assert plain(streamed) == plain(whole)
    assert [(call.id, call.name, call.arguments) for call in streamed.calls] == [
        ("call_a", "math.add", {"a": 1, "b": 2}),
        ("call_b", "math.add", {"a": 3, "b": 4}),
    ]
    assert heard.text == "Let me see."
    assert heard.kinds == ["start", "text", "call", "end"]
    used = streamed.usage
    assert used == Usage(input_tokens=100, output_tokens=20, cost_usd=used.cost_usd)
    assert used.cost_usd is not None
    assert used.cost_usd > 0


@pytest.mark.parametrize("listen", [None, Heard()], ids=["whole", "streamed"])
@pytest.mark.parametrize("model", MODELS[:2])  # the double spells Gemini's calls in camelCase
# Shows M42
def test_a_conversation_with_tools(model: str, listen: Any, double: Double) -> None:
    first = ask(double, model, "sums", listen)
    results = [
        {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": content}
        for call, content in zip(first.calls, ("3", "7"), strict=True)
    ]
    history = [{"role": "user", "content": "sums"}, first.message, *results]

    last = ask(double, model, "", listen, messages=history)

    assert (last.message["content"], last.finish) == ("3 and 7.", "stop")
    assert last.usage.input_tokens == 100
    rules, *sent = double.journal()[-1]["body"]["messages"]
    assert (rules["role"], rules["content"]) == ("system", RULES)
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "tool"]
    assert [message["content"] for message in sent[2:]] == ["3", "7"]
    assert [call["function"]["name"] for call in sent[1]["tool_calls"]] == ["math__add"] * 2


@pytest.mark.parametrize("listen", [None, Heard()], ids=["whole", "streamed"])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("text", "headers", "kind", "wait"),
    [
        ("limited", {}, RateLimited, 7),
        ("broken", {}, ModelError, None),
        ("hello", {"x_aimock_chaos_malformed": "1"}, ModelError, None),
        ("hello", {"x_aimock_chaos_disconnect": "1"}, ModelError, None),
        ("hello", {"x_aimock_chaos_drop": "1"}, ModelError, None),
    ],
    ids=["429", "500", "malformed", "disconnected", "dropped"],
)
# Shows M44, M45, M46
def test_what_goes_wrong_may_pass_and_costs_one_request(
    text: str,
    headers: dict[str, str],
    kind: type[StepError],
    wait: float | None,
    model: str,
    listen: Any,
    double: Double,
) -> None:
    with pytest.raises(StepError) as told:
        ask(double, model, text, listen, headers=headers)

    assert type(told.value) is kind, told.value.message
    assert told.value.retryable is True, told.value.message
    assert told.value.retry_after == wait
    assert len(double.journal()) == 1


@pytest.mark.parametrize("model", MODELS)
# Shows M85
def test_a_stream_that_is_cut_is_taken_back(model: str, double: Double) -> None:
    heard = Heard()

    with pytest.raises(ModelError) as told:
        ask(double, model, "cut", heard)

    assert told.value.retryable is True
    assert heard.kinds == ["start", "text", "restart"]
    assert heard.text.startswith("This reply")


@pytest.mark.parametrize("model", MODELS)
# Shows M54
def test_calls_as_text_need_nothing_of_the_provider(model: str, double: Double) -> None:
    heard = Heard()
    first = ask(double, model, "as text", heard, function_calling="text")
    [call] = first.calls
    result = {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": "3"}
    history = [{"role": "user", "content": "as text"}, first.message, result]

    last = ask(double, model, "", heard, messages=history, function_calling="text")

    assert call.arguments == {"a": 1, "b": 2}
    assert heard.text == "Well.The sum is 3."
    assert last.message["content"] == "The sum is 3."
    for entry in double.journal():
        body = entry["body"]
        assert not body.get("tools")
        assert not body.get("tool_choice")
        roles = [message["role"] for message in body["messages"]]
        others = [role for role in roles if role != "system"]
        assert others == ["user", "assistant", "user"][: len(others)]


# Shows M46
def test_what_was_billed_is_what_was_answered(double: Double) -> None:
    """Requests and replies correspond, and each reply has its usage."""
    replies = [ask(double, model, "hello") for model in MODELS for _ in range(3)]

    assert len(double.journal()) == 9
    assert sum(reply.usage.input_tokens + reply.usage.output_tokens for reply in replies) == 1080
