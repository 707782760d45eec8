"""Invalid replies from a provider never exceed a budget or crash a run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator
from itertools import cycle, repeat
from typing import Any

import pytest

from flowengine.agents.models import ModelReply, resolve
from flowengine.agents.models.replies import SentReply, read_sent
from flowengine.agents.text_calls.marked_form import ModelCall
from flowengine.agents.text_calls.reading import MAX_CALLS
from flowengine.journal.encoding import pack, unpack
from flowengine.sdk import StepError, Timeout
from flowengine.sdk.values.read_only import plain
from tests.agents.models.asking import ADD, Heard, request
from tests.agents.models.wire import Answer, Wire, choice, chunk, replied, streamed

ARGUMENTS = '{"a": 1, "b": 2}'
JSON = {"Content-Type": "application/json"}
EVENTS = {"Content-Type": "text/event-stream"}
HALF = "\ud83d"
"""Half of a surrogate pair."""


def ask(wire: Wire, listen: Heard | None = None, *, timeout: float = 60) -> ModelReply:
    settings: Any = {"api_key": "key", "api_base": f"{wire.url}/v1"}
    asked = request(model="openai/gpt-4o", settings=settings, timeout=timeout)
    return asyncio.run(resolve("openai/gpt-4o").complete(asked, listen))


def calling(arguments: Any = ARGUMENTS, name: Any = "math__add", id: Any = "1") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def with_usage(**more: Any) -> dict[str, Any]:
    return {"prompt_tokens": 1_000, "completion_tokens": 10, "total_tokens": 1_010, **more}


@pytest.mark.parametrize(
    "said",
    [{"prompt_tokens": -1_000}, {"completion_tokens": -10}, {"completion_tokens": 2**63},
     {"prompt_tokens": 10**30}],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("listen", [None, Heard()], ids=["whole", "streamed"])
def test_numbers_that_count_no_tokens_are_estimated(
    said: dict[str, int], listen: Heard | None, wire: Wire
) -> None:
    usage = with_usage(**said)
    one = streamed({"content": "Hello."}, usage=usage) if listen else replied(usage=usage)
    wire.answer(one)

    used = ask(wire, listen).usage

    assert used.estimated
    assert 0 < used.input_tokens < 1_000
    assert 0 < used.output_tokens < 10
    assert used.cost_usd is not None
    assert 0 < used.cost_usd < 1


@pytest.mark.parametrize("cost", ["-1000.0", "NaN", "-Infinity", "1e999", "true", '"free"'])
def test_a_cost_that_is_no_amount_is_that_of_the_table(cost: str, wire: Wire) -> None:
    [whole] = replied(usage=with_usage(cost="COST")).pieces
    body = whole.replace(b'"COST"', cost.encode())
    wire.answer(Answer((body,), 200, JSON))

    assert ask(wire).usage.cost_usd == pytest.approx(1_000 * 2.5e-6 + 10 * 1e-5)


@pytest.mark.parametrize(
    "answer",
    [
        replied(None, message={"tool_calls": [calling('{"a":' * 10_000 + "1" + "}" * 10_000)]}),
        replied(None, message={"tool_calls": [calling([1])]}),
        replied([{"type": "hologram", "x": 1}]),
        replied(usage=with_usage(prompt_tokens="some")),
        replied(usage=[1]),
        replied(None, message={"tool_calls": [calling() | {"function": None}]}),
        replied(None, message={"tool_calls": calling()}),
        replied(choices=[{"index": 0, "message": None, "finish_reason": "stop"}]),
        replied(choices=None),
        Answer((b'{"choices": [{"message": {"content": "h\xc3',), 200, JSON),
    ],
    ids=[
        "nested too deep",
        "arguments as a list",
        "unknown part",
        "usage as text",
        "usage as a list",
        "no function",
        "calls as a map",
        "no message",
        "no choices",
        "half a sign",
    ],
)
def test_an_answer_that_cannot_be_read_may_have_been_billed(answer: Answer, wire: Wire) -> None:
    wire.answer(answer)

    with pytest.raises(StepError) as told:
        ask(wire)

    assert told.value.retryable
    assert told.value.data == {"unfinished": True}  # so budgets count it
    assert "Traceback" not in told.value.message
    assert 'File "' not in told.value.message


def test_a_page_in_place_of_an_answer_is_told_and_not_billed(wire: Wire) -> None:
    wire.answer(Answer((b"<html>Sign in</html>",), 200, {"Content-Type": "text/html"}))

    with pytest.raises(StepError, match="<html>Sign in</html>") as told:
        ask(wire)

    assert not told.value.data


@pytest.mark.parametrize("listen", [None, Heard()], ids=["whole", "streamed"])
def test_what_is_half_a_character_costs_no_reply(listen: Heard | None, wire: Wire) -> None:
    call = calling(id=HALF, name=HALF)
    said = {"content": f"so {HALF}", "reasoning_content": HALF, "tool_calls": [call | {"index": 0}]}
    wire.answer(streamed(said) if listen else replied(None, message=said))

    reply = ask(wire, listen)

    assert reply.message["content"] == "so \ufffd"
    kept = plain(reply.message)
    assert unpack(pack(kept)) == kept
    [fault] = reply.faults
    assert (fault.id, fault.name) == ("\ufffd", "\ufffd")
    assert not listen or listen.text == "so \ufffd"


@pytest.mark.endurance
def test_two_halves_that_arrive_apart_are_one_character(wire: Wire) -> None:
    wire.answer(streamed({"content": HALF}, {"content": "\ude00"}))

    assert ask(wire, Heard()).message["content"] == "😀"


@pytest.mark.parametrize("listen", [None, Heard()], ids=["whole", "streamed"])
def test_a_call_in_the_form_of_before_is_made(listen: Heard | None, wire: Wire) -> None:
    name = {"function_call": {"name": "math__add", "arguments": ""}}
    pieces = [{"function_call": {"arguments": piece}} for piece in (ARGUMENTS[:4], ARGUMENTS[4:])]
    whole = {"function_call": {"name": "math__add", "arguments": ARGUMENTS}}
    wire.answer(streamed(name, *pieces) if listen else replied(None, message=whole))

    [call] = ask(wire, listen).calls

    assert (call.name, call.arguments) == ("math.add", json.loads(ARGUMENTS))


def test_a_refusal_is_the_answer(wire: Wire) -> None:
    wire.answer(replied(None, message={"refusal": "I cannot help with that."}))

    assert ask(wire).message["content"] == "I cannot help with that."


@pytest.mark.parametrize("finish", [None, "", "stop", "banana", 5])
def test_calls_count_whatever_reason_the_reply_ended_for(finish: Any, wire: Wire) -> None:
    wire.answer(replied(None, message={"tool_calls": [calling()]}, finish=finish))

    assert [call.name for call in ask(wire).calls] == ["math.add"]


def test_ids_may_be_numbers_long_or_the_same(wire: Wire) -> None:
    ids = [7, 7, "x" * 1_000_000, "x" * 1_000_000, "", None]
    wire.answer(replied(None, message={"tool_calls": [calling(id=one) for one in ids]}))

    reply = ask(wire)

    assert len({call.id for call in reply.calls}) == len(ids)
    assert [call.id for call in reply.calls] == [one["id"] for one in reply.message["tool_calls"]]
    assert max(len(call.id) for call in reply.calls) < 100


def test_more_calls_than_anybody_means_are_not_made() -> None:
    sent = SentReply(calls=[ModelCall(ADD.name, ARGUMENTS, f"c{n}") for n in range(10_000)])

    reply = read_sent(sent, request(), "native")

    assert len(reply.calls) == MAX_CALLS
    assert len(list(reply.message["tool_calls"])) == MAX_CALLS
    [fault] = reply.faults
    assert (fault.id, fault.message) == (None, "The calls after the first 1,000 were not made.")


def numbered() -> Iterator[bytes]:
    number = 0
    while True:
        number += 1
        yield b"data: %s\n\n" % json.dumps(chunk([choice({"content": f"{number} " * 99})])).encode()


@pytest.mark.endurance
@pytest.mark.parametrize(
    ("pieces", "listen"),
    [
        (repeat(b": still there\n\n"), Heard()),
        (repeat(b"x" * 10_000), Heard()),
        (numbered(), Heard()),
        (cycle([b" "]), None),
    ],
    ids=["comments", "one line", "text", "blanks before the body"],
)
def test_a_reply_without_an_end_is_over_when_its_time_is(
    pieces: Iterable[bytes], listen: Heard | None, wire: Wire
) -> None:
    wire.answer(streamed({"content": "Hello."}) if listen else replied())
    wire.answer(Answer(pieces, 200, EVENTS if listen else JSON))
    ask(wire, listen)  # the first request of a process may take longer than the time limit below

    with pytest.raises(Timeout) as told:
        ask(wire, listen, timeout=1)

    assert told.value.data == {"unfinished": True}
    assert len(wire.requests) == 2
    assert wire.closed.wait(60)
