# Shows M90
"""Unusual native calls: each is made, or reported to the model, and has a unique ID."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flowengine.agents.models.replies import Finish, SentReply, read_sent
from flowengine.agents.text_calls.marked_form import ModelCall
from tests.agents.models.asking import ADD, request, written
from tests.rows import each_row


def read(*calls: ModelCall, text: str = "", ended: Finish = "stop", **more: Any) -> Any:
    return read_sent(SentReply(text, calls=list(calls), ended=ended), request(**more), "native")


@each_row(
    ("arguments", "kept"),
    [
        ('{"b": 2,   "a": 1}', '{"b": 2,   "a": 1}'),  # unchanged, as the provider has cached it
        ('"{\\"a\\": 1, \\"b\\": 2}"', '{"a": 1, "b": 2}'),
        ("{'a': 1, 'b': '2',}", '{"a": 1, "b": 2}'),
    ],
)
def test_arguments_are_read_and_kept_as_they_were_said(arguments: str, kept: str) -> None:
    reply = read(ModelCall("math.add", arguments, "x"))

    assert [call.arguments for call in reply.calls] == [{"a": 1, "b": 2}]
    assert [call["function"]["arguments"] for call in reply.message["tool_calls"]] == [kept]
    assert reply.finish == "calls"


@each_row(
    ("call", "reason"),
    [
        (ModelCall("math.ad", "{}", "x"), "Did you mean math.add?"),
        (ModelCall("math.add", '{"a": 1}', "x"), "'b'"),
        (ModelCall("math.add", "[]", "x"), "must be one JSON object"),
        (ModelCall("math.add", '{"a": NaN, "b": 1}', "x"), "NaN is not a JSON number"),
        (ModelCall("math.add", '{"a":' * 10_000, "x"), "cannot be read"),
        (ModelCall("math.add", '{"a": 1, "b": ' + "1" * 1_000_000, "x"), "characters"),
        (ModelCall("math.add", '{"a": 1, "context_variables": {}, "b": 2}', "x"), "has no"),
    ],
)
def test_what_cannot_be_made_is_worded_with_a_right_example(call: ModelCall, reason: str) -> None:
    reply = read(call, ModelCall("math.add", '{"a": 1, "b": 2}', "y"))

    [fault] = reply.faults
    assert fault.id == "x"
    assert reason in fault.message
    assert 'The arguments of math.add: {"type": "object"' in fault.message
    assert fault.message.endswith('For example: {"a": 1, "b": 2}')
    assert [call.id for call in reply.calls] == ["y"]
    assert len(reply.message["tool_calls"]) == 2


# Shows M56
def test_ids_are_unique_in_the_conversation() -> None:
    before = {"id": "old", "type": "function", "function": {"name": "math.add", "arguments": "{}"}}
    said = '{"a": 1, "b": 2}'
    reply = read(
        *(ModelCall("math.add", said, id) for id in ("old", "", "", "same", "same")),
        messages=[{"role": "assistant", "content": "", "tool_calls": [before]}],
    )

    ids = [call.id for call in reply.calls]
    assert len({"old", *ids}) == 6
    assert ids[3] == "same"
    assert ids == [call["id"] for call in reply.message["tool_calls"]]


def test_a_call_that_the_limit_of_length_cut_off_is_not_made() -> None:
    reply = read(ModelCall("math.add", '{"a": 1, "b": 2', "x"), ended="length")

    assert not reply.calls
    assert reply.faults[0].id == "x"


CALL = '{"name": "math.add", "arguments": {"a": 1, "b": 2}}'


def test_text_beside_native_calls_names_only_what_is_missing() -> None:
    made = ModelCall("math.add", '{"a": 1, "b": 2}', "x")
    offers = (ADD, replace(ADD, name="pay"))
    paid = f"<tool_call>{CALL.replace('math.add', 'pay')}</tool_call>"

    same = read(made, text=f"<tool_call>{CALL}</tool_call>", tools=offers)
    other = read(made, text=f"<tool_call>{CALL}</tool_call>\n{paid}", tools=offers)

    assert (len(same.calls), same.faults) == (1, ())
    assert (len(other.calls), [one.name for one in other.faults]) == (1, ["pay"])


# Shows M68
def test_what_a_text_model_wrote_wrongly_is_told_in_its_own_syntax() -> None:
    asked = request()
    sent = SentReply(written(asked, "math.add", a=1))

    reply = read_sent(sent, asked, "text")

    assert not reply.calls
    [fault] = reply.faults
    assert fault.id is None
    assert "'b'" in fault.message
    assert fault.message.endswith(written(asked, "math.add", a=1, b=2))
    assert reply.finish == "stop"
