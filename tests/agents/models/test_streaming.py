# Shows M82
"""Streamed replies, byte for byte on the wire: assembled, interrupted, abandoned."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from flowengine.agents.models import ModelError, ModelReply, Usage, resolve
from tests.agents.models.asking import Heard, request
from tests.agents.models.wire import Answer, Wire, call, replied, streamed, written

USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "total_tokens": 120,
    "prompt_tokens_details": {"cached_tokens": 64},
    "completion_tokens_details": {"reasoning_tokens": 7},
}


def ask(wire: Wire, listen: Any = None, **more: Any) -> ModelReply:
    settings = {"api_key": "key", "api_base": f"{wire.url}/v1"}
    asked = request(**({"model": "openai/gpt-4o", "settings": settings} | more))
    return asyncio.run(resolve("openai/gpt-4o").complete(asked, listen))


def test_calls_are_put_together_by_their_index(wire: Wire) -> None:
    first, second = '{"a": 1, "b": 2}', '{"a": 3, "b": 4}'
    wire.answer(
        streamed(
            {"role": "assistant", "content": None},
            {"tool_calls": [call(0, id="x", name="math__add"), call(1, id="y", name="math__add")]},
            *(
                {"tool_calls": [call(1, second[at]), call(0, first[at], name="math__add")]}
                for at in range(len(first))
            ),
            finish="tool_calls",
        )
    )
    heard = Heard()

    reply = ask(wire, heard)

    assert [(one.id, one.arguments) for one in reply.calls] == [
        ("x", {"a": 1, "b": 2}),
        ("y", {"a": 3, "b": 4}),
    ]
    told = [part for part in heard.parts if part.kind == "call"]
    assert "".join(part.text for part in told if part.call == "x") == first
    assert "".join(part.text for part in told if part.call == "y") == second
    assert {part.tool for part in told} == {"math.add"}


def test_calls_that_all_have_the_same_index_are_told_apart_by_their_ids(wire: Wire) -> None:
    said = '{"a": 1, "b": 2}'
    deltas = [{"tool_calls": [call(0, said, id=id, name="math__add")]} for id in ("x", "y")]
    wire.answer(streamed(*deltas, finish="tool_calls"))

    assert [one.id for one in ask(wire, Heard()).calls] == ["x", "y"]


def test_a_call_without_arguments_has_none(wire: Wire) -> None:
    wire.answer(streamed({"tool_calls": [call(0, id="x", name="math__add")]}, finish="tool_calls"))

    [fault] = ask(wire, Heard()).faults

    assert (fault.id, fault.name) == ("x", "math.add")
    assert "'a'" in fault.message
    assert "required" in fault.message


@pytest.mark.parametrize("usage", [USAGE, {**USAGE, "cost": 0.25}])
def test_streamed_and_unstreamed_replies_are_equal(usage: Mapping[str, Any], wire: Wire) -> None:
    whole = {"index": 0, "id": "x", "type": "function"}
    function = {"name": "math__add", "arguments": '{"a": 1, "b": 2}'}
    wire.answer(
        replied(
            "So.",
            message={"tool_calls": [whole | {"function": function}]},
            finish="tool_calls",
            usage=usage,
        ),
        streamed(
            {"content": "S"},
            {"content": "o."},
            {"tool_calls": [call(0, '{"a": 1, "b"', id="x", name="math__add")]},
            {"tool_calls": [call(0, ": 2}")]},
            finish="tool_calls",
            usage=usage,
        ),
    )
    heard = Heard()

    unstreamed, reply = ask(wire), ask(wire, heard)

    assert reply == unstreamed
    assert heard.text == "So."
    assert heard.kinds == ["start", "text", "call", "end"]
    cost = 0.25 if "cost" in usage else pytest.approx(0.00037)
    assert reply.usage == Usage(100, 64, 0, 20, 7, cost)  # type: ignore[arg-type]
    assert wire.requests[1].body["stream_options"] == {"include_usage": True}
    assert "stream_options" not in wire.requests[0].body


def test_what_the_provider_did_not_say_is_estimated_and_marked(wire: Wire) -> None:
    wire.answer(replied("Hello.", usage=None), streamed({"content": "Hello."}))

    for reply in (ask(wire), ask(wire, Heard())):
        assert reply.usage.estimated
        assert reply.usage.output_tokens == 2
        assert 120 < reply.usage.input_tokens < 180
        assert reply.usage.cost_usd is not None


def test_a_model_without_a_price_has_no_cost(wire: Wire) -> None:
    wire.answer(replied())

    reply = ask(wire, model="openai/of-my-own")

    assert reply.usage == Usage(input_tokens=10, output_tokens=2, cost_usd=None)


TWO = ({"content": "It will "}, {"content": "rain, I "})


@pytest.mark.parametrize(
    "cut",
    [
        streamed(*TWO, finish=None, then="drop"),
        streamed(*TWO, finish=None, then="end"),
        Answer(
            (*streamed(*TWO, finish=None).pieces, b'data: {"choices": [{"del\n\n'),
            headers={"Content-Type": "text/event-stream"},
        ),
        Answer(
            (*streamed(*TWO, finish=None).pieces, b'data: {"error": {"message": "overload"}}\n\n'),
            headers={"Content-Type": "text/event-stream"},
        ),
    ],
    ids=["dropped", "ended early", "malformed", "error"],
)
# Shows M85
def test_a_cut_stream_is_taken_back_and_retryable(cut: Answer, wire: Wire) -> None:
    wire.answer(cut, streamed({"content": "It will rain, I think."}))
    heard = Heard()

    with pytest.raises(ModelError) as told:
        ask(wire, heard)
    reply = ask(wire, heard)

    assert told.value.retryable is True
    assert heard.kinds == ["start", "text", "restart", "start", "text", "end"]
    assert heard.text == "It will rain, IIt will rain, I think."
    assert reply.message == {"role": "assistant", "content": "It will rain, I think."}


@pytest.mark.parametrize("calling", ["native", "text"])
@pytest.mark.parametrize(
    "text",
    [
        " Three. \n",
        "<think>1 + 2</think>\n\nThree.",
        "1 + 2</think>\n\nThree.",
        "<think></think> One.</think>Three.",
        "<think>\n\n</think>\n\nThree.",
        "<think>One.</thinking>Two.</think>CALL",
        "Hm.</think>CALL",
        "<think>Hm.</think>I add.\nCALL\n",
        "```\nnever closed</think>\n<tool_call>CALL</tool_call>",
        "<tool_call></tool_call>",
    ],
)
# Shows M84
def test_the_same_is_read_streamed_and_unstreamed(text: str, calling: str, wire: Wire) -> None:
    def answer(body: Any) -> Answer:
        marked = written(body, "math.add", a=1, b=2) if calling == "text" else ""
        said = text.replace("CALL", marked)
        if "stream" not in body:
            return replied(said)
        return streamed(*({"content": said[at : at + 5]} for at in range(0, len(said), 5)))

    wire.answer(answer, answer)
    heard = Heard()

    whole, reply = (ask(wire, one, function_calling=calling) for one in (None, heard))

    assert [one.arguments for one in reply.calls] == [one.arguments for one in whole.calls]
    assert len(reply.calls) == int("CALL" in text and calling == "text")
    assert reply.message["content"] == whole.message["content"] == heard.last
    assert reply.message.get("reasoning") == whole.message.get("reasoning")


def test_a_reply_that_the_limit_of_length_ended_says_so(wire: Wire) -> None:
    cut = {"tool_calls": [call(0, '{"a": 1, "b', id="x", name="math__add")]}
    wire.answer(
        streamed({"content": "It"}, finish="length"),
        streamed(cut, finish="length"),
        replied("", finish="content_filter"),
    )

    assert ask(wire, Heard()).finish == "length"
    assert "cannot be read" in ask(wire, Heard()).faults[0].message
    assert ask(wire).finish == "filtered"


@pytest.mark.parametrize("empty", [replied(None), replied("", choices=[])])
def test_an_empty_reply_is_one(empty: Answer, wire: Wire) -> None:
    wire.answer(empty)

    reply = ask(wire)

    assert reply.message == {"role": "assistant", "content": ""}
    assert reply.calls == ()
