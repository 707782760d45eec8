# Shows G1
"""Schemas of answers and arguments as providers receive them, by the rules of each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from flowengine.agents.model_calls import tools_bytes
from flowengine.agents.models import ReplyPart, ToolOffer
from flowengine.agents.models.provider_schemas import WrappedText, answer_form, unwrapped
from flowengine.agents.models.strict_schemas import ANTHROPIC, GEMINI, OPENAI, Dialect
from flowengine.agents.text_calls.requests import example_of
from flowengine.sdk.python.live_types import schema_of
from flowengine.sdk.values.validation import shared
from tests.agents.models.asking import Heard, request
from tests.agents.models.provider_rules import of_anthropic, of_gemini, of_openai
from tests.agents.models.test_requests import ask, body
from tests.agents.models.wire import Wire, replied, streamed
from tests.agents.test_tool_schemas import CITY, EITHER, SCHEMAS
from tests.rows import each_row
from tests.sliced_examples import sliced


class Flight(BaseModel):
    price: float = Field(gt=0)
    on: date
    note: str | None = None


class NoFlight(BaseModel):
    """There is none."""


class Node(BaseModel):
    name: str
    children: list[Node] = Field(max_length=3)
    parent: Optional[Node] = None  # noqa: UP045


@dataclass
class Town:
    name: Literal["Oslo", "Bonn"]
    sister: Town | None = None


class Size(TypedDict):
    width: int


class Defaults(BaseModel):
    number: int = 5


class Deep(BaseModel):
    text: str = Field(min_length=2, max_length=9)
    flights: dict[str, Flight]


@pytest.mark.parametrize(
    ("type", "value", "wrapped", "strict"),
    [
        (int, 5, True, True),
        (list[int], [1, 2], True, True),
        (bool | None, None, True, True),
        (Literal["a", "b"], "b", True, True),
        (date, "2026-01-31", True, True),
        (tuple[int, str], [1, "a"], True, False),
        (dict[str, int], {"a": 1}, False, False),
        (Any, {"answer": 5}, True, False),
        (Flight, {"price": 5.5, "on": "2026-01-31", "note": None}, False, True),
        (Flight | NoFlight, {"price": 5.5, "on": "2026-01-31", "note": "late"}, True, True),
        (Flight | NoFlight, {}, True, True),
        (list[Flight] | str, "none", True, True),
        (Node, {"name": "a", "children": [{"name": "b", "children": []}]}, True, True),
        (list[Node], [{"name": "a", "children": []}], True, True),
        (Town, {"name": "Oslo", "sister": {"name": "Bonn"}}, True, True),
        (Size, {"width": 3}, False, True),
        (Defaults, {}, False, False),
        (Deep, {"text": "ab", "flights": {}}, False, False),
    ],
)
def test_any_type_is_an_answer_that_a_provider_takes(
    type: Any, value: Any, wrapped: bool, strict: bool, wire: Wire
) -> None:
    schema = schema_of(type)
    text = json.dumps({"answer": value} if wrapped else value)

    wire.answer(replied(text))
    reply = ask(wire, tools=(), returns=schema)

    sent = wire.requests[-1].body["response_format"]["json_schema"]
    assert [*of_openai(sent["schema"], strict=sent["strict"])] == []
    assert sent["strict"] == strict
    assert tools_bytes(request(tools=(), returns=schema)) >= len(json.dumps(sent["schema"]))
    assert shared(schema).check(json.loads(reply.message["content"]), "it") == value
    pieces = [{"content": text[place : place + 3]} for place in range(0, len(text), 3)]
    wire.answer(streamed(*pieces))
    heard = Heard()
    streamed_reply = ask(wire, tools=(), returns=schema, listen=heard)
    assert streamed_reply.message == reply.message
    assert "".join(part.text for part in heard.parts) == reply.message["content"]
    assert heard.parts[0] == ReplyPart("start")


@each_row(
    ("text", "schema", "answer"),
    [
        ('{"answer": [1]}', {"type": "array"}, "[1]"),
        (' {"answer" : 1.50 } ', {"type": "number"}, "1.50"),
        ("[1]", {"type": "array"}, "[1]"),
        ("no JSON", {"type": "array"}, "no JSON"),
        ('{"answer": "x"}', {"type": "integer"}, '"x"'),
        ('{"answer": 1, "more": 2}', {"type": "integer"}, '{"answer": 1, "more": 2}'),
        ('{"answer": 1}', {"anyOf": [{"type": "object"}]}, '{"answer": 1}'),
        ('{"answer": {"answer": 1}}', {"anyOf": [{"type": "object"}]}, '{"answer": 1}'),
    ],
)
def test_an_answer_is_read_with_and_without_its_wrapper(
    text: str, schema: Any, answer: str
) -> None:
    assert unwrapped(text, schema) == answer


@each_row(
    ("text", "shown"),
    [
        ('{"answer": {"a": [1, {}]} }\n', '{"a": [1, {}]}'),
        ("[1, 2]", "[1, 2]"),
        ('{"other": 1}', '{"other": 1}'),
        ('{"ans', '{"ans'),
        ('{"answer": "cut', '"cut'),
        ("", ""),
    ],
)
def test_a_stream_is_shown_without_the_wrapper_however_it_is_cut(text: str, shown: str) -> None:
    for size in range(1, len(text) + 2):
        wrapped = WrappedText()
        pieces = [wrapped.feed(text[at : at + size]) for at in range(0, len(text), size)]
        assert "".join([*pieces, wrapped.close()]) == shown


RULES = {
    OPENAI: lambda schema: of_openai(schema, strict=True),
    ANTHROPIC: of_anthropic,
    GEMINI: of_gemini,
}


@sliced(examples=100)
@given(SCHEMAS, st.sampled_from([*RULES]))
def test_what_a_provider_enforces_is_never_wider_than_the_schema(
    schema: dict[str, Any], dialect: Dialect
) -> None:
    form = answer_form(schema, dialect)

    if form is None or not form.strict:
        assert dialect.accepts_more == (form is not None)
        return
    assert [*RULES[dialect](form.schema)] == []
    enforced = example_of(form.schema)
    described = "description" in json.dumps(form.schema) or '"uri"' in json.dumps(schema)
    if enforced is not None and not described:
        answer = json.loads(unwrapped(json.dumps(enforced), schema))
        assert shared(schema).check(answer, "it") == answer


def test_arguments_with_alternatives_are_offered_with_all_properties_at_the_top(wire: Wire) -> None:
    definitions = {"City": CITY, "Place": EITHER[1]}
    schema = {
        "type": "object",
        "properties": {"unit": {"enum": ["C", "F"]}},
        "anyOf": [{"$ref": "#/$defs/City"}, {"$ref": "#/$defs/Place"}],
        "allOf": [{"required": ["unit"]}],
        "$defs": definitions,
    }

    weather = ToolOffer("weather", "The weather.", schema)

    sent = body(wire, tools=(weather,))

    [offered] = [tool["function"] for tool in sent["tools"]]
    assert tools_bytes(request(tools=(weather,))) >= len(json.dumps(offered))
    parameters = offered["parameters"]
    assert [*of_openai(parameters, strict=False)] == []
    assert [*parameters["properties"]] == ["unit", "city", "lat"]
    assert parameters["required"] == ["unit"]
    words, _, rules = offered["description"].partition("must also fit this JSON Schema: ")
    assert words == "The weather.\n\nThe arguments "
    assert json.loads(rules) == {key: schema[key] for key in ("anyOf", "allOf")}
    plain = {"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}]}}}
    sent = body(wire, tools=(ToolOffer("plain", "Plain.", plain),))
    assert sent["tools"][0]["function"]["parameters"] == plain
