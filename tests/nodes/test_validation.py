"""Validation of values against JSON Schemas: result, field and message."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowengine.errors import InputError
from flowengine.sdk.values.validation import SchemaError, Validator, validate
from tests.rows import each_row
from tests.sliced_examples import sliced

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": ["integer", "null"]},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}},
        "address": {
            "type": "object",
            "properties": {"zip": {"type": "string", "pattern": "^[0-9]+$"}},
        },
    },
    "required": ["name"],
    "additionalProperties": False,
}


def complaint(schema: Any, value: Any, **more: Any) -> tuple[str, str]:
    with pytest.raises(InputError) as refused:
        validate(schema, value, "it", **more)
    return refused.value.field, refused.value.with_hint


@each_row(
    ("schema", "value", "message"),
    [
        (PERSON, {}, "it: is missing 'name'"),
        (PERSON, [], "it must be a map, not []"),
        (PERSON, {"name": 1}, "it: 'name' must be text, not 1"),
        (PERSON, {"name": "", "age": 1.5}, "it: 'age' must be a whole number or null"),
        (PERSON, {"name": "", "tags": ["c"]}, 'it: \'tags.0\' must be one of "a", "b"'),
        (PERSON, {"name": "", "adress": 1}, "it: has no 'adress'; did you mean 'address'?"),
        (
            PERSON,
            {"name": "", "address": {"zip": "x"}},
            "it: 'address.zip' must match ^[0-9]+$, not \"x\"",
        ),
        ({"minimum": 3}, 1, "it must be at least 3, not 1"),
        ({"exclusiveMinimum": 0}, -3, "it must be greater than 0, not -3"),
        ({"maximum": 3}, 4, "it must be at most 3, not 4"),
        ({"exclusiveMaximum": 3}, 3, "it must be less than 3, not 3"),
        ({"multipleOf": 5}, 4, "it must be a multiple of 5, not 4"),
        ({"minLength": 2}, "a", "it must have at least 2 characters, not 1"),
        ({"maxItems": 1}, [1, 2], "it must have at most 1 item, not 2"),
        ({"minProperties": 1}, {}, "it must have at least 1 key, not 0"),
        ({"uniqueItems": True}, [1, 1], "it must not contain an item twice, as [1, 1] does"),
        ({"not": {"const": 1}}, 1, "it must not be 1"),
        (
            {"propertyNames": {"pattern": "^a"}},
            {"b": 1},
            'it: has the key "b", which must match ^a',
        ),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 3, "it must be text or null, not 3"),
        ({"oneOf": [{"type": "string"}, {"minimum": 3}]}, 2, "it must be at least 3, not 2"),
        ({"oneOf": [True, True]}, 2, "it must have exactly one of its forms, but 2 has several"),
        (
            {"anyOf": [{"properties": {"k": {"const": "a"}}}, {"required": ["b"]}]},
            {"k": "c"},
            "it: 'k' in it must be \"a\", not \"c\", or is missing 'b'",
        ),
        ({"format": "email"}, "ada", 'it must be of the format email, not "ada"'),
        ({"const": 1}, 2, "it must be 1, not 2"),
        (False, 1, "it: is not allowed"),
    ],
)
def test_message_names_the_field_and_what_would_fit(schema: Any, value: Any, message: str) -> None:
    field, told = complaint(schema, value)

    named = re.match(r"it: '([\w.]+)' must", message)
    assert field == (named[1] if named is not None else "")
    assert told.startswith(message)


def test_all_that_is_wrong_is_said_at_once_up_to_a_bound() -> None:
    schema = {"type": "array", "items": {"type": "integer"}}

    _, told = complaint(schema, ["x"] * 8)

    assert told.count("must be a whole number") == 5
    assert told.endswith("; and 3 more")


def test_path_is_looked_for_from_the_folder_that_is_given(tmp_path: Path) -> None:
    (tmp_path / "there.txt").touch()
    schema = {"type": "object", "properties": {"file": {"type": "string", "format": "path"}}}

    validate(schema, {"file": "there.txt"}, "it", folder=str(tmp_path))
    validate(schema, {"file": str(tmp_path)}, "it")
    for path in ("nope.txt", "a\0b"):
        field, told = complaint(schema, {"file": path}, folder=str(tmp_path))
        assert field == "file"
        assert "this file or directory does not exist" in told


def test_bytes_count_as_text() -> None:
    validate({"type": "object", "properties": {"raw": {"type": "string"}}}, {"raw": b"x"}, "it")
    validate({"type": "array", "uniqueItems": True}, [b"a", b"b"], "it")


def _doubled(keyword: str, levels: int, leaf: Any) -> Any:
    """Return a schema of which each definition applies the next one twice."""
    references = [[{"$ref": f"#/$defs/{n + 1}"}] * 2 for n in range(levels)]
    definitions = {str(n): {keyword: both} for n, both in enumerate(references)}
    return {"$ref": "#/$defs/0", "$defs": {**definitions, str(levels): leaf}}


_FORMS = [{"properties": {"a": {"$ref": "#"}, "kind": {"const": n}}} for n in range(4)]
_META = "https://json-schema.org/draft/2020-12/schema"
_DEEP: Any = 1
_NOT: Any = {}
for _ in range(40):
    _DEEP, _NOT = {"a": _DEEP, "kind": 9}, {"not": _NOT}


@each_row(
    ("schema", "value", "message"),
    [
        *(
            (_doubled(word, 40, {}), {}, "100,000 times to the same value")
            for word in ("allOf", "anyOf", "oneOf")
        ),
        (_doubled("allOf", 40, {}) | {"$ref": "json-schema:///#/$defs/0"}, {}, "100,000"),
        ({"dependencies": {"a": _doubled("allOf", 40, {})}}, {"a": 1}, "100,000"),
        ({"$dynamicAnchor": "meta", "allOf": [{"$ref": _META}] * 2}, _NOT, "applies its parts"),
        ({"anyOf": [{"$ref": "#"}, {"type": "null"}]}, {}, "leads back to the same value"),
        ({"anyOf": _FORMS}, _DEEP, "too many alternatives"),
        ({"allOf": _FORMS}, _DEEP, "must be 0, not 9"),
        ({"allOf": [{"items": {"minimum": n}} for n in range(500)]}, [1] * 20_000, "applies"),
        ({"items": {"enum": [{"a": n} for n in range(9_000)]}}, [{}] * 1_000, "applies"),
        (_doubled("oneOf", 12, {}), 1, "several"),
        (_doubled("oneOf", 14, {"type": "object"}), "x" * 100, "100,000"),
        ({"allOf": [{"type": "null"}] * 900}, "x" * 10**7, "must be null"),
        ({"items": {"required": [*"abcdefgh"]}}, [{}] * 50_000, "'0' is missing 'a'"),
        (
            {"items": {"anyOf": [{"items": {"type": "null"}}, {"type": "null"}]}},
            [[1] * 50] * 2_000,
            "alternatives",
        ),
        ({"pattern": r"^(?!b)(?:(a+)\1?)+$"}, "a" * 30 + "b", "10,000 steps"),
    ],
)
def test_what_a_validation_costs_is_counted_before(schema: Any, value: Any, message: str) -> None:
    with pytest.raises(InputError) as refused:
        Validator(schema).check(value, "it")

    assert message in str(refused.value)


def test_deep_values_of_recursive_schemas_are_valid() -> None:
    tree: Any = {"$ref": "#/$defs/any"}
    forms = [{"type": "string"}, {"type": "array", "items": tree}]
    forms += [
        {"properties": {"left": tree, "op": {"const": op}}, "required": ["op"]} for op in "+-*"
    ]
    schema = {**tree, "$defs": {"any": {"anyOf": forms}}}

    value: Any = "x"
    for _ in range(60):
        value = {"left": value, "op": "*"}

    assert Validator(schema).check(value, "it") == value


@each_row(
    ("schema", "message"),
    [
        ({"type": "strin"}, "cannot be used (at type)"),
        ({"properties": {"a": {"pattern": "("}}}, "cannot be used (at properties.a.pattern)"),
        ({"$ref": "http://127.0.0.1:9/x.json"}, "leads to no part of it"),
        ({"$ref": "file:///etc/passwd"}, "leads to no part of it"),
        (3, "cannot be used"),
    ],
)
def test_wrong_schema_is_refused_when_it_is_made_and_nothing_is_fetched(
    schema: Any, message: str
) -> None:
    with pytest.raises(SchemaError) as refused:
        Validator(schema)

    assert message in str(refused.value)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("abc"), inner)
)
TYPES = st.sampled_from(["string", "integer", "number", "boolean", "null", "object", "array"])
SCHEMAS = st.recursive(
    st.just({})
    | st.builds(lambda name: {"type": name}, TYPES)
    | st.builds(lambda names: {"type": names}, st.lists(TYPES, min_size=1, unique=True))
    | st.builds(lambda words: {"enum": words}, st.lists(st.text(), min_size=1, unique=True)),
    lambda inner: (
        st.builds(lambda item: {"type": "array", "items": item}, inner)
        | st.builds(
            lambda properties, required, is_open: {
                "type": "object",
                "properties": properties,
                "required": required,
                "additionalProperties": is_open,
            },
            st.dictionaries(st.sampled_from("abc"), inner),
            st.lists(st.sampled_from("abc"), unique=True),
            st.booleans(),
        )
    ),
)


@sliced(examples=30)
@given(schema=SCHEMAS, value=VALUES)
def test_short_way_never_gives_another_verdict(schema: Any, value: Any) -> None:
    if _has_infinity(value):
        return
    expected = jsonschema_rs.Draft202012Validator(schema).is_valid(value)

    try:
        Validator(schema).check(value, "it")
        verdict = True
    except InputError:
        verdict = False

    assert verdict == expected


def _has_infinity(value: Any) -> bool:
    if isinstance(value, float):
        return math.isinf(value)
    if isinstance(value, dict):
        return any(map(_has_infinity, value.values()))
    return isinstance(value, list) and any(map(_has_infinity, value))
