# Shows M45
"""Provider errors on the wire, where one attempt is one request."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from flowengine.agents.models import (
    ContextWindowExceeded,
    ModelError,
    ModelReply,
    RateLimited,
    resolve,
)
from flowengine.sdk import StepError, Timeout
from tests.agents.models.asking import request
from tests.agents.models.wire import Answer, Wire, failed, replied, written

HALF = Answer((b'{"choices": [{"mess',), 200, {"Content-Type": "application/json"})
SILENT = Answer((b" ",), 200, {"Content-Type": "application/json"}, then="hold")
KEY = "sk-secret-0123456789"


def ask(wire: Wire, model: str = "openai/gpt-4o", **more: Any) -> ModelReply:
    base = wire.url if model.startswith("anthropic") else f"{wire.url}/v1"
    more.setdefault("settings", {"api_key": KEY, "api_base": base})
    return asyncio.run(resolve(model).complete(request(model=model, **more)))


def error(wire: Wire, **more: Any) -> StepError:
    with pytest.raises(StepError) as told:
        ask(wire, **more)
    return told.value


def unanswered(wire: Wire) -> StepError:
    """Return the error of a request that arrives but is not answered in time."""
    for seconds in (0.2, 2, 20):  # on a busy machine, it may arrive later
        wire.answer(SILENT)
        told = error(wire, timeout=seconds)
        if wire.requests:
            return told
    raise AssertionError("no request has arrived")


@pytest.mark.parametrize(
    ("answer", "kind", "retryable"),
    [
        (failed(429, "slow down"), RateLimited, True),
        (failed(408, "too slow"), Timeout, True),
        (failed(500, "oops"), ModelError, True),
        (failed(502, "bad gateway"), ModelError, True),
        (failed(503, "overloaded"), ModelError, True),
        (Answer((), then="drop"), ModelError, True),
        (HALF, ModelError, True),
        (failed(400, "temperature must be a number"), ModelError, False),
        (failed(401, "who are you?"), ModelError, False),
        (failed(403, "you must not"), ModelError, False),
        (failed(404, "no such model"), ModelError, False),
        (failed(422, "unprocessable"), ModelError, False),
        (failed(400, "refused", code="content_policy_violation"), ModelError, False),
        (failed(429, "You exceeded your current quota"), RateLimited, False),
    ],
    ids=lambda value: value.status if isinstance(value, Answer) else None,
)
@pytest.mark.parametrize("model", ["openai/gpt-4o", "anthropic/claude-sonnet-4-5"])
# Shows M42, M44, M46
def test_what_may_pass_is_retryable_and_costs_one_request(
    model: str, answer: Answer, kind: type[StepError], retryable: bool, wire: Wire
) -> None:
    wire.answer(answer)

    told = error(wire, model=model)

    assert type(told) is kind
    assert (told.retryable, len(wire.requests)) == (retryable, 1), told.message
    assert told.message.startswith(model)
    assert "litellm." not in told.message
    assert "Exception - " not in told.message
    assert isinstance(told.__cause__, Exception)


@pytest.mark.parametrize(
    ("model", "variables"),
    [
        ("openai/gpt-4o", ["OPENAI_API_KEY"]),
        ("anthropic/claude-sonnet-4-5", ["ANTHROPIC_API_KEY"]),
        ("gemini/gemini-2.5-flash", ["GEMINI_API_KEY", "GOOGLE_API_KEY"]),
        ("azure/gpt-4o", ["AZURE_OPENAI_API_KEY", "AZURE_API_KEY", "AZURE_OPENAI_AD_TOKEN"]),
    ],
)
def test_without_a_key_nothing_is_tried_again(
    model: str, variables: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in variables:
        monkeypatch.delenv(name, raising=False)
    local = {"api_base": "http://127.0.0.1:9", "api_version": "1"} if "azure" in model else {}

    with pytest.raises(ModelError) as told:
        asyncio.run(resolve(model).complete(request(model=model, settings=local)))

    assert not told.value.retryable
    assert any(name in told.value.message for name in variables), told.value.message


# Shows M43
def test_a_success_is_one_whatever_its_text_says(wire: Wire) -> None:
    wire.answer(replied("timeout: connection error, rate limit 429"))

    assert ask(wire).message["content"] == "timeout: connection error, rate limit 429"
    assert len(wire.requests) == 1


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7),
        ({"Retry-After": "0.5"}, 0.5),
        ({"retry-after-ms": "1500", "Retry-After": "2"}, 1.5),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-1"}, None),
        ({}, None),
    ],
)
def test_the_wait_that_a_provider_asks_for_is_passed_on(
    headers: dict[str, str], seconds: float | None, wire: Wire
) -> None:
    wire.answer(failed(429, headers=headers), failed(503, headers=headers))

    for _ in range(2):
        told = error(wire)
        assert (told.retry_after, told.retryable) == (seconds, True)


def test_the_wait_may_be_a_date(wire: Wire) -> None:
    then = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=60)
    wire.answer(failed(429, headers={"Retry-After": format_datetime(then, usegmt=True)}))

    begun = time.time()
    told = error(wire)

    assert told.retry_after is not None
    assert begun <= then.timestamp() - told.retry_after <= time.time()


@pytest.mark.parametrize("status", [429, 503])
def test_a_longer_wait_than_anybody_waits_ends_the_call_and_is_named(
    status: int, wire: Wire
) -> None:
    wire.answer(failed(status, "slow down", headers={"Retry-After": "3600"}))

    told = error(wire)

    assert told.retryable is False
    assert "3600 s" in told.message
    assert "60 s" in told.message


def test_no_answer_in_time_is_a_timeout(wire: Wire) -> None:
    told = unanswered(wire)

    assert isinstance(told, Timeout)
    assert told.retryable is True
    assert wire.closed.wait(60)


@pytest.mark.parametrize(
    ("answer", "unfinished"),
    [(failed(500, "oops"), False), (failed(429, "slow"), False), (failed(400, "no"), False),
     (Answer((), then="drop"), True)],
    ids=["500", "429", "400", "dropped"],
)  # fmt: skip
def test_what_a_provider_may_have_begun_to_answer_is_told(
    answer: Answer, unfinished: bool, wire: Wire
) -> None:
    """The provider may bill such a request, although its answer was never received in full."""
    wire.answer(answer)

    assert bool((error(wire).data or {}).get("unfinished")) == unfinished


def test_one_that_does_not_answer_may_count_the_request(wire: Wire) -> None:
    assert (unanswered(wire).data or {}).get("unfinished")


def test_where_nobody_listens_nobody_counts() -> None:
    assert "unfinished" not in (error(Wire("http://127.0.0.1:9")).data or {})


@pytest.mark.parametrize(
    ("model", "answer", "tokens"),
    [
        (
            "openai/gpt-4o",
            failed(
                400,
                "This model's maximum context length is 8192 tokens. However, your messages "
                "resulted in 9001 tokens.",
                code="context_length_exceeded",
            ),
            9001,
        ),
        (
            "anthropic/claude-sonnet-4-5",
            failed(
                400,
                "prompt is too long: 213462 tokens > 200000 maximum",
                type="invalid_request_error",
            ),
            213_462,
        ),
        ("openai/local", failed(400, "the request exceeds the available context size"), None),
    ],
)
def test_too_long_a_conversation_is_an_error_of_its_own(
    model: str, answer: Answer, tokens: int | None, wire: Wire
) -> None:
    wire.answer(answer)

    told = error(wire, model=model)

    assert type(told) is ContextWindowExceeded
    assert told.retryable is False
    assert told.message.startswith(f"{model}: ")
    assert told.data == ({} if tokens is None else {"tokens": tokens})


def test_no_key_is_told_or_logged(wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(0)
    wire.answer(failed(401, f"Incorrect API key provided: {KEY}"), failed(500, f"Bearer {KEY}"))

    for _ in range(2):
        told = error(wire)
        assert "***" in told.message
        assert KEY not in told.message
        assert KEY not in str(told.__cause__)
    assert wire.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in caplog.text


def test_what_is_the_engines_no_setting_says(wire: Wire) -> None:
    told = error(wire, settings={"num_retries": 3, "stream": True})

    assert "num_retries, stream" in told.message
    assert told.retryable is False
    assert wire.requests == []


def test_a_provider_that_nobody_knows_is_named(wire: Wire) -> None:
    told = error(wire, model="nowhere/model")

    assert "'nowhere/model'" in told.message
    assert told.retryable is False


@pytest.mark.parametrize(
    "refusal",
    [
        failed(400, "registry.ollama.ai/library/gemma:2b does not support tools"),
        failed(404, "No endpoints found that support tool use."),
        failed(400, '"auto" tool choice requires --enable-auto-tool-choice to be set'),
    ],
    ids=["does not support", "no endpoints", "vllm"],
)
# Shows M53
def test_a_model_that_refuses_tools_is_asked_for_text_once_and_from_then_on(
    refusal: Answer, wire: Wire, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    model = f"openai/{request.node.callspec.id.replace(' ', '-')}"
    wire.answer(refusal, lambda body: replied(written(body, "math.add", a=1, b=2)), replied("3"))

    first = ask(wire, model=model)
    second = ask(wire, model=model)

    assert [one.arguments for one in first.calls] == [{"a": 1, "b": 2}]
    [event] = first.events
    assert (event["event"], event["model"]) == ("text_calls", model)
    assert second.message["content"] == "3"
    assert second.events == ()
    assert ["tools" in sent.body for sent in wire.requests] == [True, False, False]
    assert [record.message for record in caplog.records] == [
        f"{model} takes no tools: it is asked for calls as text"
    ]
    assert asyncio.run(resolve(model).facts(model)).function_calling == "text"


# Shows M53
def test_a_model_that_must_be_asked_natively_is_not_asked_for_text(wire: Wire) -> None:
    wire.answer(failed(400, "this model does not support tools"))

    told = error(wire, model="openai/told-native", function_calling="native")

    assert told.retryable is False
    assert len(wire.requests) == 1


@pytest.mark.parametrize(
    "refusal",
    [
        failed(400, "'response_format.type' must be 'json_object' or 'text'"),
        failed(422, "structured outputs are not enabled for this model"),
        failed(400, "failed to parse grammar"),
    ],
    ids=["type", "disabled", "grammar"],
)
def test_a_server_that_refuses_a_schema_gets_it_in_words_from_then_on(
    refusal: Answer, wire: Wire, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    model = f"openai/of-my-own-{request.node.callspec.id}"
    wire.answer(refusal, replied("3"), replied("4"))

    said = [ask(wire, model=model, tools=(), returns={"type": "integer"}) for _ in range(2)]

    assert [one.message["content"] for one in said] == ["3", "4"]
    assert ["response_format" in sent.body for sent in wire.requests] == [True, False, False]
    assert all("JSON Schema" in sent.body["messages"][0]["content"] for sent in wire.requests)
    assert [record.message for record in caplog.records] == [
        f"{model} takes no JSON Schema for its answer: it gets it in words only"
    ]


def test_a_schema_that_cannot_be_enforced_is_sent_again_without_strict(wire: Wire) -> None:
    refusal = failed(400, "Invalid schema for response_format 'answer'")
    wire.answer(refusal, replied("3"), replied("4"))
    returns = {"type": "integer", "description": "One that a provider refuses."}

    said = [ask(wire, model="openai/gpt-4o", tools=(), returns=returns) for _ in range(2)]

    assert [one.message["content"] for one in said] == ["3", "4"]
    forms = [sent.body["response_format"]["json_schema"] for sent in wire.requests]
    assert [form["strict"] for form in forms] == [True, False, False]


def test_a_refused_schema_is_an_error_where_the_model_is_known_to_take_one(wire: Wire) -> None:
    refusal = failed(400, "Invalid schema for response_format 'answer'")
    wire.answer(refusal, refusal)

    told = error(wire, model="openai/gpt-4o", tools=(), returns={"type": "integer"})

    assert "Invalid schema" in told.message
    assert len(wire.requests) == 2
