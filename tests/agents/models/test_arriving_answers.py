# Shows G1
"""Objects and lists of answers arrive in parts, as data."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from flowengine import Agent, EndPart, StreamPart, TextPart
from flowengine.engines.arriving_answers import ArrivingAnswers, partial_value
from flowengine.testing import scripted
from tests.agents.models.answer_types import City, Flight
from tests.agents.models.provider_rules import Provider
from tests.agents.models.wire import Wire
from tests.rows import each_row
from tests.sliced_examples import sliced


class Trip(BaseModel):
    title: str
    cities: list[City]


TRIP = {
    "title": "North",
    "cities": [{"name": "Oslo", "people": 3}, {"name": "Bergen", "people": 1}],
}
START, END = ({"address": "a", "agent": "A", "part": part} for part in ("start", "end"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda parts: st.lists(parts) | st.dictionaries(st.text(), parts),
)


def piece(text: str) -> dict[str, str]:
    return {"address": "a", "agent": "A", "part": "text", "text": text}


def values_of(parts: list[StreamPart]) -> list[Any]:
    ours = [part.value for part in parts if isinstance(part, TextPart | EndPart)]
    return [value for value in ours if value is not None]


@each_row(
    ("text", "value"),
    [
        ('{"a": [1, {"b": "te', {"a": [1, {"b": "te"}]}),
        ("[1, 2", [1, 2]),
        ("[", []),
        ('```json\n{"a": 1, "b"', {"a": 1}),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ("```", None),
        ("I look for", None),
        ("12", None),
        ('{"a": NaN}', None),
        ('{"a": 1} and', {"a": 1}),
        ("", None),
    ],
)
def test_the_beginning_of_json_is_a_value(text: str, value: Any) -> None:
    assert partial_value(text) == value


@sliced(examples=20)
@given(st.lists(VALUES) | st.dictionaries(st.text(), VALUES), st.integers(1, 9))
def test_the_last_value_is_the_whole_answer_however_it_is_cut(value: Any, size: int) -> None:
    answers, text = ArrivingAnswers("A"), json.dumps(value)
    answers.feed(START)
    seen = [answers.feed(piece(text[at : at + size])) for at in range(0, len(text), size)]
    changes = [one for one in [*seen, answers.feed(END)] if one is not None]
    assert changes[-1] == value
    assert all(before != after for before, after in pairwise(changes))


def test_a_long_answer_is_read_a_limited_number_of_times() -> None:
    answers = ArrivingAnswers("A")
    answers.feed(START)
    pieces = ["[", *(f"{number}, " for number in range(100_000))]
    read = sum(answers.feed(piece(text)) is not None for text in pieces)
    assert 50 < read < 1_000


def test_after_missed_parts_a_reply_is_not_read() -> None:
    answers = ArrivingAnswers("A")
    answers.feed(START)
    answers.missed()
    assert answers.feed(piece('{"a": 1}')) is None
    answers.feed(START)
    assert answers.feed(piece('{"a": 1}')) == {"a": 1}


def test_parts_of_an_agent_that_returns_data_have_the_answer_so_far() -> None:
    with scripted(json.dumps(TRIP)):
        *parts, last = Agent(name="A", returns=Trip).stream("Where?")
    values = values_of(parts)
    assert values[-1] == TRIP
    assert any(len(value.get("cities", ())) == 1 for value in values)
    assert last.response is not None
    assert last.response.output == Trip.model_validate(TRIP)
    with scripted(json.dumps(TRIP)):
        parts = list(Agent(name="A").stream("Where?"))
    assert values_of(parts) == []


def test_a_wrapped_answer_arrives_without_its_wrapper(wire: Wire) -> None:
    provider = Provider("openai")
    answer = [{"price": 5.5, "on": "2026-01-31"}, {"price": 6.5, "on": "2026-02-01"}]
    provider.wanted = [answer]
    wire.answer(provider)
    agent = Agent(
        name="A",
        model="openai/gpt-4o",
        returns=list[Flight],
        settings={"api_key": "key", "api_base": f"{wire.url}/v1"},
    )
    *parts, _ = agent.stream("When?")
    values = values_of(parts)
    assert provider.modes == ["strict"]
    assert [len(value) for value in values] == sorted(len(value) for value in values)
    assert values[-1] == answer
    assert "answer" not in str(values)
