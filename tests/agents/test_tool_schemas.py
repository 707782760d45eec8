"""Calls of tools with any JSON Schema: what fits is called, and shown examples fit (M65, M90)."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flowengine.agents.models.replies import SentReply, read_sent
from flowengine.agents.text_calls.arguments import bind
from flowengine.agents.text_calls.marked_form import (
    CallFault,
    ModelCall,
    ToolOffer,
    Untyped,
    marked,
)
from flowengine.agents.text_calls.reading import read_reply
from flowengine.agents.text_calls.requests import instructions
from tests.agents.models.asking import request
from tests.rows import each_row
from tests.sliced_examples import sliced

Schema = dict[str, Any]
CITY: Schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
PLACE: Schema = {"type": "object", "properties": {"lat": {"type": "number"}}, "required": ["lat"]}
EITHER = [CITY, PLACE]
CIRCLE = {"properties": {"kind": {"const": "circle"}, "size": {"type": "number"}}}
NOTE = {"properties": {"kind": {"const": "note"}, "size": {"type": "string"}}}
TAGGED: Schema = {"oneOf": [{**form, "required": ["kind", "size"]} for form in (CIRCLE, NOTE)]}


@each_row(
    ("schema", "fitting", "unfitting"),
    [
        ({}, [{}, {"a": 1}], []),
        ({"type": "object"}, [{}, {"a": 1}], []),
        ({"type": "object", "properties": {}}, [{"a": 1}], []),
        ({"type": "object", "additionalProperties": False}, [{}], [{"a": 1}]),
        ({"properties": {"a": {}}, "additionalProperties": False}, [{"a": 1}], [{"b": 1}]),
        ({"properties": {"a": {}}, "unevaluatedProperties": False}, [{"a": 1}], [{"b": 1}]),
        ({"patternProperties": {"^x": {}}, "additionalProperties": False}, [{"x1": 1}], [{"y": 1}]),
        ({"additionalProperties": {"type": "integer"}}, [{"a": 1}], [{"a": "b"}]),
        ({"anyOf": EITHER}, [{"city": "Bonn"}, {"lat": 50.7}], [{}, {"lat": "x"}]),
        ({"oneOf": EITHER}, [{"city": "Bonn"}], [{"city": "Bonn", "lat": 50.7}]),
        ({"allOf": EITHER}, [{"city": "Bonn", "lat": 1}], [{"city": "Bonn"}]),
        ({"allOf": EITHER, "unevaluatedProperties": False}, [{"city": "B", "lat": 1}],
         [{"city": "B", "lat": 1, "more": 2}]),
        ({"$ref": "#/$defs/City", "$defs": {"City": CITY}}, [{"city": "Bonn"}], [{"city": 5}]),
        ({"if": {"required": ["lat"]}, "then": PLACE, "else": CITY}, [{"city": "Bonn"}, {"lat": 1}],
         [{"lat": "x"}, {}]),
        ({"dependentSchemas": {"lat": {"required": ["lon"]}}}, [{"lat": 1, "lon": 2}],
         [{"lat": 1}]),
        (TAGGED, [{"kind": "note", "size": "5"}, {"kind": "circle", "size": 5}],
         [{"kind": "square", "size": 5}]),
    ],
)  # fmt: skip
def test_a_call_is_made_exactly_if_the_schema_allows_it(
    schema: Schema, fitting: list[Schema], unfitting: list[Schema]
) -> None:
    tool = {"t": ToolOffer("t", "", schema)}

    for arguments in fitting:
        assert bind(ModelCall("t", json.dumps(arguments)), tool)[0] == ModelCall("t", arguments)
        written = {
            name: Untyped(value if isinstance(value, str) else json.dumps(value))
            for name, value in arguments.items()
        }
        assert bind(ModelCall("t", written), tool)[0] == ModelCall("t", arguments)
    for arguments in unfitting:
        assert isinstance(bind(ModelCall("t", json.dumps(arguments)), tool)[0], CallFault)


def required(**properties: Any) -> Schema:
    return {"type": "object", "properties": properties, "required": [*properties]}


@each_row(
    ("schema", "example"),
    [
        ({}, {}),
        (required(a={"type": "integer"}, b={"type": "integer"}), {"a": 1, "b": 2}),
        (required(a={"exclusiveMinimum": 3, "type": "integer"}), {"a": 4}),
        (required(a={"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}), {"a": 0.5}),
        (required(a={"type": "integer", "minimum": -9, "exclusiveMaximum": -5}), {"a": -6}),
        (required(a={"type": "integer", "multipleOf": 7, "minimum": 10}), {"a": 14}),
        (required(a={"type": "string", "minLength": 9}), {"a": "texttextt"}),
        (required(a={"type": "string", "maxLength": 2}), {"a": "te"}),
        (required(a={"type": "string", "format": "date"}), {"a": "2026-01-31"}),
        (required(a={"type": "string", "format": "uuid"}), ...),
        (required(a={"type": "string", "format": "date-time"}), ...),
        (required(a={"type": "string", "pattern": "^never$"}), None),
        (required(a={"pattern": "^x+y$", "examples": ["xy"]}), {"a": "xy"}),
        (required(a={"type": "array", "minItems": 2, "items": {"type": "string"}}),
         {"a": ["text", "text"]}),
        (required(a={"prefixItems": [{"type": "string"}, {"type": "integer"}], "type": "array",
                     "minItems": 2, "maxItems": 2}), {"a": ["text", 2]}),
        (required(a={"anyOf": [{"type": "integer", "minimum": 5}, {"type": "null"}]}), {"a": 5}),
        (required(a={"type": ["null", "boolean"]}), {"a": True}),
        (required(a={"const": {"deep": 1}}), {"a": {"deep": 1}}),
        (required(a={"enum": ["red", "blue"]}), {"a": "red"}),
        (required(a=required(b=required(c={"type": "boolean"}))), {"a": {"b": {"c": True}}}),
        ({"anyOf": EITHER}, {"city": "text"}),
        ({"oneOf": EITHER, "examples": [{"lat": 50.7}]}, {"lat": 50.7}),
        ({"allOf": EITHER}, {"city": "text", "lat": 1}),
        (TAGGED, {"kind": "circle", "size": 2}),
        ({"$ref": "#/$defs/City", "$defs": {"City": CITY}}, {"city": "text"}),
        ({"$defs": {"Node": required(next={"$ref": "#/$defs/Node"})}, "$ref": "#/$defs/Node"},
         None),
        ({"required": ["a"], "not": {"required": ["a"]}}, None),
        (required(a={"type": "string", "default": 5}), None),
        (required(a=False), None),
    ],
)  # fmt: skip
def test_the_example_of_a_refused_call_fits_or_is_not_shown(schema: Schema, example: Any) -> None:
    shown = shown_example(schema)

    if example is not ...:
        assert shown == example
    assert shown is None or accepts(schema, shown)
    assert example is None or shown is not None


def shown_example(schema: Schema) -> Any:
    """Return the example that a model with function calling is shown, or None."""
    tool = ToolOffer("t", "", schema)
    refused = SentReply("", calls=[ModelCall("t", "[]", "x")])
    [fault] = read_sent(refused, request(tools=(tool,)), "native").faults
    _, found, example = fault.message.partition("\nFor example: ")
    return json.loads(example) if found else None


def accepts(schema: Schema, arguments: Schema) -> bool:
    return isinstance(
        bind(ModelCall("t", json.dumps(arguments)), {"t": ToolOffer("t", "", schema)})[0], ModelCall
    )


def test_without_a_fitting_example_the_form_of_calls_is_shown() -> None:
    impossible = ToolOffer("never", "", required(a=False))
    easy = ToolOffer("easy", "", required(a={"type": "boolean"}))
    form = marked("0badcafe")

    assert "(the arguments as one JSON object)" in instructions([impossible], form)
    assert form.write([("easy", {"a": True})]) in instructions([impossible, easy], form)


VALUES: st.SearchStrategy[Any] = st.sampled_from(["text", "x", 1, 2.5, True, None, [], {}])
LEAVES: st.SearchStrategy[Schema] = st.one_of(
    st.just({}),
    st.sampled_from([{"type": name} for name in ("string", "boolean", "null", "array", "object")]),
    st.builds(lambda low, name: {"type": "number", name: low}, st.integers(-9, 9),
              st.sampled_from(["minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"])),
    st.builds(lambda low, high: {"type": "integer", "minimum": low, "maximum": low + high},
              st.integers(-9, 9), st.integers(0, 3)),
    st.builds(lambda low: {"type": "string", "minLength": low}, st.integers(0, 9)),
    st.builds(lambda name: {"type": "string", "format": name},
              st.sampled_from(["date", "date-time", "time", "email", "uuid", "ipv4", "uri"])),
    st.builds(lambda values: {"enum": values}, st.lists(VALUES, min_size=1, max_size=3)),
    st.builds(lambda value: {"const": value}, VALUES),
)  # fmt: skip
NAMES = st.sampled_from("abc")


def deeper(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    """Return schemas that contain others. Each of them is satisfiable if its parts are."""
    several = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        st.builds(objects, st.dictionaries(NAMES, inner, max_size=3), st.booleans()),
        st.builds(lambda item, low: {"type": "array", "items": item, "minItems": low}, inner,
                  st.integers(0, 3)),
        st.builds(lambda items: {"type": "array", "prefixItems": items, "minItems": len(items)},
                  several),
        st.builds(lambda forms: {"anyOf": forms}, several),
        st.builds(lambda part: {"allOf": [part]}, inner),
        st.builds(lambda part: {"if": {"type": "number"}, "then": part, "else": part}, inner),
    )  # fmt: skip


def objects(properties: dict[str, Schema], is_closed: bool) -> Schema:
    schema = required(**properties)
    return {**schema, "additionalProperties": False} if is_closed else schema


SCHEMAS = st.recursive(LEAVES, deeper, max_leaves=6)


@sliced(examples=100)
@given(st.dictionaries(NAMES, SCHEMAS, max_size=3))
def test_any_shown_example_is_a_call_that_is_made(properties: dict[str, Schema]) -> None:
    schema = required(**properties)
    form = marked("0badcafe")
    tool = ToolOffer("t", "", schema)

    shown = shown_example(schema)

    if shown is None:
        return
    assert accepts(schema, shown)
    [read] = read_reply(form.write([("t", shown)]), [tool], form).calls
    assert accepts(schema, read.arguments)
