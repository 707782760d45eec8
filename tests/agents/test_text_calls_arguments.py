# Shows M90
"""Arguments of calls: converted to the schema, or rejected with an explanation (M65, M90)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flowengine.agents.text_calls.arguments import bind
from flowengine.agents.text_calls.json_text import BrokenJson, read_json
from flowengine.agents.text_calls.marked_form import CallFault, ModelCall, ToolOffer, Untyped
from tests.agents.add import ADD
from tests.rows import each_row

WIDE = ToolOffer(
    "wide",
    "Takes all there is.",
    {
        "type": "object",
        "$defs": {"Size": {"enum": ["s", "m"]}},
        "properties": {
            "whole": {"type": "integer"},
            "number": {"type": "number"},
            "flag": {"type": "boolean"},
            "text": {"type": "string"},
            "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "maybe_text": {"type": ["string", "null"]},
            "list": {"type": "array", "items": {"type": "integer"}},
            "object": {"type": "object"},
            "choice": {"enum": ["red", "dark red", 3]},
            "size": {"$ref": "#/$defs/Size"},
            "any": {},
        },
        "additionalProperties": False,
    },
)


def wide(name: str, text: str) -> ModelCall | CallFault:
    found, _ = bind(ModelCall("wide", {name: Untyped(text)}), {"wide": WIDE})
    return found


@each_row(
    ("name", "text", "value"),
    [
        ("whole", "5", 5),
        ("whole", " -7\n", -7),
        ("whole", "2.0", 2),
        ("number", "2.5", 2.5),
        ("number", "3", 3),
        ("flag", "true", True),
        ("flag", "False", False),
        ("text", "007", "007"),
        ("text", "null", "null"),
        ("text", "[1]", "[1]"),
        ("text", "", ""),
        ("maybe", "null", None),
        ("maybe", "4", 4),
        ("maybe_text", "null", None),
        ("maybe_text", "none of it", "none of it"),
        ("list", "[1, 2]", [1, 2]),
        ("object", '{"k": [true]}', {"k": [True]}),
        ("choice", "dark red", "dark red"),
        ("choice", "3", 3),
        ("size", "m", "m"),
        ("any", "words", "words"),
        ("any", '{"k": 1}', {"k": 1}),
    ],
)
# Shows M65
def test_text_is_typed_by_the_schema(name: str, text: str, value: Any) -> None:
    found = wide(name, text)

    assert isinstance(found, ModelCall)
    assert found.arguments == {name: value}
    assert type(found.arguments[name]) is type(value)


@each_row(
    ("name", "text", "told"),
    [
        ("whole", "0x10", "a whole number"),
        ("whole", "2.5", "whole number"),
        ("whole", "\u0665", "a whole number"),
        ("whole", str(2**70), "above 2^64-1"),
        ("number", "nan", "a number"),
        ("number", "1e999", "a number"),
        ("flag", "1", "true or false"),
        ("list", "1, 2", "must be a list"),
        ("list", "[1, 2,", "must be a list"),
        ("list", '["x"]', "whole number"),
        ("object", "[1]", "must be a map"),
        ("choice", "Red", '"red", "dark red", 3'),
        ("size", "xl", '"s", "m"'),
        ("colour", "red", "has no 'colour'"),
    ],
)
# Shows M65
def test_text_that_does_not_fit_is_told_with_what_would(name: str, text: str, told: str) -> None:
    found = wide(name, text)

    assert isinstance(found, CallFault)
    assert f"'{name}" in found.message
    assert told in found.message


def test_all_that_is_wrong_is_told_at_once() -> None:
    found, _ = bind(ModelCall("add", {"a": "x", "c": 1}), {"add": ADD})

    assert isinstance(found, CallFault)
    assert all(f"'{name}'" in found.message for name in "abc"), found.message


@each_row("written", [None, "", "  ", "null", "{}", '""', '"{}"'])
def test_native_arguments_may_be_missing(written: str | None) -> None:
    assert bind(ModelCall("now", written), {"now": ToolOffer("now")}) == (ModelCall("now", {}), ())


@each_row(
    "written",
    [
        '{"a": 1, "b": 2}',
        '{"a": "1", "b": 2.0}',
        json.dumps('{"a": 1, "b": 2}'),
        ' {"b": 2, "a": 1}\n',
    ],
)
# Shows M40
def test_native_arguments_are_typed_and_json_in_a_json_string_is_opened(written: str) -> None:
    found, repairs = bind(ModelCall("add", written), {"add": ADD})

    assert found == ModelCall("add", {"a": 1, "b": 2})
    assert isinstance(found, ModelCall)
    assert [type(found.arguments[name]) for name in "ab"] == [int, int]
    assert repairs == ()


@each_row(
    ("written", "told"),
    [
        ("[]", "one JSON object"),
        ("3", "one JSON object"),
        ('{"a": NaN, "b": 1}', "NaN"),
        ('{"a": 1, "a": 2, "b": 3}', "'a' is given twice"),
        (f'{{"a": {"9" * 5000}}}', "5000 digits"),
        (f'{{"a": "{"x" * 1_000_000}"}}', "too many"),
        (f'{{"a": {"[" * 10_000}{"]" * 10_000}}}', "levels deep"),
        ('{"a": 1, "b": "\\ud800"}', "surrogate"),
        ("null and void", "one JSON object"),
    ],
)
def test_odd_native_arguments_are_told(written: str, told: str) -> None:
    found, _ = bind(ModelCall("add", written), {"add": ADD})

    assert isinstance(found, CallFault)
    assert found.name == "add"
    assert told in found.message


def test_a_name_without_end_is_told_in_short() -> None:
    found, _ = bind(ModelCall("x" * 1_000_000, {}), {"add": ADD})

    assert isinstance(found, CallFault)
    assert len(found.message) < 200


# Repair (M67)


@each_row(
    ("written", "value"),
    [
        ("{'a': 'say \"x\", it\\'s', 'b': 1}", {"a": 'say "x", it\'s', "b": 1}),
        ('{"a": [1, 2,], "b": 1,}', {"a": [1, 2], "b": 1}),
        ('{"a": True, "b": None}', {"a": True, "b": None}),
        ('{"a": "one\ntwo"}', {"a": "one\ntwo"}),
        ('{"a": {"b": 1}', {"a": {"b": 1}}),
        (
            "{\u201ca\u201d: \u201cit\u2019s\u201d, \u201eb\u201c: \u201f\u201d}",
            {"a": "it\u2019s", "b": ""},
        ),
        (
            "{\u2018a\u2019: \u2018say \u201cx\u201d\u2019, \u2019b\u2019: [\u201ac\u201b]}",
            {"a": "say \u201cx\u201d", "b": ["c"]},
        ),
        (
            "{\u201ca\u201d: \u201cx \\\u201d y \\n\u201d, \uff02b\uff02: 1}",
            {"a": "x \u201d y \n", "b": 1},
        ),
    ],
)
def test_json_with_one_reading_is_mended_and_it_is_said(written: str, value: object) -> None:
    found = read_json(written)

    assert found.value == value
    assert found.repairs


@each_row(
    "written",
    [
        '{"a": 1, "b": "par',
        '{"a": 1, "b":',
        '{"a": 1,',
        '{"a": 1, "b"',
        "{'a': 'it's'}",
        '{"a": "C:\\data"}',
        '{"a" 1}',
        '{"a": 1 "b": 2}',
        "{",
        "",
        '{"a": 007}',
        '{"a": 1; "b": 2}',
        "{\u201ca\u201d: \u201csay \u201cx\u201d\u201d}",
        '{\u201ca\u201d: \u201cx", "b": "y\u201d}',
        '{"a\u201d: 1}',
        "{\u2018a\u2019: \u2018it\u2019s\u2019}",
    ],
)
# Shows M67
def test_json_with_more_readings_is_refused(written: str) -> None:
    with pytest.raises(BrokenJson):
        read_json(written)


@each_row("written", ['{"a": {"b": 1}', '{"a": "x"', '{"a": [1', '{"a": 1'])
def test_what_the_length_limit_cut_off_is_never_mended(written: str) -> None:
    assert read_json(written)

    with pytest.raises(BrokenJson):
        read_json(written, complete=False)
