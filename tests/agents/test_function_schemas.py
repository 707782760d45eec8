# Shows M39
"""Schemas from Python signatures: exact, complete, and equal from source and from objects."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import jsonschema_rs
import pytest
from pydantic import BaseModel, Field, computed_field

from flowengine.errors import UsageError
from flowengine.runner import function_to_json
from flowengine.sdk.environments.resources import Resource
from flowengine.sdk.values.validation import shared
from tests.agents import functions
from tests.rows import each_row

ROOT = Path(__file__).parents[2]


class Box(Resource): ...


def parameters(function: Any) -> dict[str, Any]:
    found: dict[str, Any] = function_to_json(function)["function"]["parameters"]
    return found


def properties(function: Any) -> dict[str, Any]:
    found: dict[str, Any] = parameters(function)["properties"]
    return found


# Shows M31
def test_a_function_is_a_tool_with_its_defaults() -> None:
    def f(a: str, b: int = 3) -> str:
        """Join them."""
        return a * b

    assert function_to_json(f) == {
        "type": "function",
        "function": {
            "name": "f",
            "description": "Join them.",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "string"}, "b": {"type": "integer", "default": 3}},
                "required": ["a"],
                "additionalProperties": False,
            },
        },
    }


# Shows M32
def test_what_the_engine_gives_is_no_argument() -> None:
    def f(n: int, box: Box, maybe: Box | None, context_variables: Any, web: Any) -> None: ...

    found = function_to_json(f, environments=["web"])["function"]["parameters"]

    assert list(found["properties"]) == found["required"] == ["n"]


@each_row(
    ("function", "value", "wrong"),
    [
        (
            functions.recursive,
            {"a": {"name": "t", "parts": [{"name": "p"}]}},
            {"a": {"name": "t", "parts": [{"name": 1}]}},
        ),
        (
            functions.shared,
            {"a": {"article": "AB"}, "b": [{"article": "AB"}]},
            {"a": {"article": "AB"}, "b": [{"article": "A"}]},
        ),
        (
            functions.records,
            {"a": {"x": 1}, "b": {"x": 1}, "c": {"name": "n"}, "d": {"lines": []}},
            {"a": {"x": 1}, "b": {"x": 1}, "c": {"name": "n"}, "d": {"lines": [], "more": 1}},
        ),
    ],
)
# Shows M36
def test_classes_nest_and_every_reference_leads_somewhere(
    function: Any, value: Any, wrong: Any
) -> None:
    schema = parameters(function)
    for reference in _references(schema):
        found: Any = schema
        for step in reference.removeprefix("#/").split("/"):
            found = found[step]
        assert found["properties"]

    validator = jsonschema_rs.Draft202012Validator(schema, offline=True)

    assert validator.is_valid(value)
    assert not validator.is_valid(wrong)


def _references(node: Any) -> list[str]:
    if isinstance(node, list):
        return [one for part in node for one in _references(part)]
    if not isinstance(node, dict):
        return []
    own = [node["$ref"]] if "$ref" in node else []
    return own + [one for part in node.values() for one in _references(part)]


# Shows M37
def test_methods_partials_objects_and_decorated_functions_work() -> None:
    counter = functions.Counter()
    partial = functools.partial(functions.defaults, "x", d=2.0)

    assert list(properties(counter.add)) == ["n"]
    assert function_to_json(counter)["function"]["name"] == "Counter"
    assert list(properties(counter)) == ["n", "step"]
    assert function_to_json(partial)["function"]["name"] == "defaults"
    assert list(properties(partial)) == ["b", "c", "e"]
    assert properties(functions.decorated) == {"a": {"type": "integer"}}
    assert function_to_json(functions.decorated)["function"]["description"] == "Do it."


@each_row(
    "function", [functions.google, functions.numpy, functions.rest_style, functions.annotated]
)
# Shows M38
def test_four_spellings_describe_the_parameters_alike(function: Any) -> None:
    found = function_to_json(function)["function"]

    assert found["description"] == "Tell the weather.\n\nIn words."
    assert {name: one["description"] for name, one in properties(function).items()} == {
        "city": "where it is, with its country",
        "days": "how many",
    }


def test_a_tool_without_parameters_has_no_properties() -> None:
    assert parameters(functions.nothing) == {
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": False,
    }


@pytest.mark.endurance
def test_two_processes_write_the_same_bytes() -> None:
    code = (
        "import json, tests.agents.functions as f\n"
        "from flowengine.runner import function_to_json as to\n"
        "print(json.dumps([to(f.records), to(f.recursive), to(f.choices), to(f.unions)]))"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            capture_output=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PATH": ""},
        ).stdout
        for seed in ("1", "2")
    ]

    assert said[0] == said[1]
    assert json.loads(said[0])[0]["function"]["name"] == "records"


def _stars(*args: int) -> None: ...
def _unknown(a: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821, UP037


def _pattern(a: Annotated[str, Field(pattern="(")]) -> None: ...


def _long(a: int) -> None: ...


def _lines(a: int) -> Iterator[int]:
    yield a


async def _items() -> AsyncIterator[int]:
    yield 1


_long.__name__ = "a" * 65


@each_row(
    ("function", "told"),
    [
        (3, "3 is not a function"),
        (lambda a: a, "a lambda has no name"),
        (_long, "cannot be the name of a tool"),
        (functools.partial(_lines, 1), "_lines is a generator"),
        (_items, "_items is a generator"),
        (_stars, "'*args' of _stars cannot be given by name"),
        (functions.opened, "'a' of opened cannot be an argument: socket.socket has no JSON Schema"),
        (_pattern, "'a' of _pattern cannot be an argument"),
        (_unknown, "'Nowhere' of parameter 'a' of _unknown is not known"),
    ],
)
# Shows M88
def test_what_a_model_cannot_call_is_refused(function: Any, told: str) -> None:
    with pytest.raises(UsageError) as raised:
        function_to_json(function)

    assert told in raised.value.message


@dataclass
class Flight:
    price: float


@dataclass
class NoFlight:
    reason: str = ""


def test_a_wrong_member_of_a_union_is_no_other_one() -> None:
    def book(flight: Flight | NoFlight, others: list[Flight | NoFlight] | None = None) -> None: ...

    schema = shared(parameters(book))
    cheap, none = {"price": "cheap"}, {"reason": "full"}

    for fitting in ({"price": 5.0}, none, {}):
        assert schema.misfits({"flight": fitting, "others": [fitting]}) == []
    assert schema.misfits({"flight": cheap})
    assert schema.misfits({"flight": none, "others": [cheap]})
    assert not schema.misfits({"flight": none, "others": None})


class Square(BaseModel):
    side: int = 1

    @computed_field
    def area(self) -> int:
        return self.side**2


def test_a_member_of_a_union_may_have_its_computed_fields() -> None:
    def draw(shape: Square | NoFlight) -> None: ...

    schema = shared(parameters(draw))

    assert schema.misfits({"shape": {"side": 2, "area": 4}}) == []
    assert schema.misfits({"shape": {"sides": 2}})
