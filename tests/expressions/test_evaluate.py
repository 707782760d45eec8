# Shows F14
"""Results and errors of evaluation."""

from __future__ import annotations

from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest

from flowengine.flow.expressions.evaluator import CelEvaluator
from flowengine.flow.expressions.types import DeclaredNames
from flowengine.kernel.graph.compiled import EvaluationError
from tests.rows import each_row


@each_row(
    "source",
    ["inputs.x", "inputs['x']", "inputs.list[0]", "default(inputs.none, inputs.x)",
     "true ? inputs.x : null", "[inputs.x][0]", "{'a': inputs.x}.a",
     "inputs.list.map(x, x)[0]", "inputs.list.filter(x, x != null)[0]", "values(inputs)[2]",
     "merge(inputs, {}).x", "flatten(inputs.list)[0]"],
)  # fmt: skip
@each_row("value", [b"\x00\xff", 2**70, {"b": 1, "a": [2**65]}])
def test_values_pass_through_whole(evaluate: Any, source: str, value: Any) -> None:
    names = DeclaredNames({"properties": {"inputs": {}}})
    values = {"inputs": {"list": [value], "none": None, "x": value}}
    found = evaluate(source, values, names)
    assert found == value
    assert msgpack_or_repr(found) == msgpack_or_repr(value)


def msgpack_or_repr(value: Any) -> Any:
    """Return the bytes of a value in msgpack, which include the order of keys, or its `repr`."""
    try:
        return msgpack.packb(value)
    except OverflowError:
        return repr(value)


@each_row(
    ("source", "value"),
    [
        ("inputs.amount == 3", True),
        ("inputs.count in [1.5, 2.0]", True),
        ("inputs.numbers.map(n, n * 2)", [6, 2, 4, 6]),
        ("inputs.numbers.map(n, n > 1, n * 2)", [6, 4, 6]),
        ("inputs.order.lines.map(l, l.price * double(l.quantity))", [6.0, 1.5]),
        ("inputs.order.lines.filter(l, l.price > 1.7).map(l, l.article)", ["ink"]),
        ("inputs.numbers.map(n, inputs.numbers.filter(m, m < n).size())", [2, 0, 1, 2]),
        ("keys(inputs.map).map(k, {'key': k})", [{"key": "a"}, {"key": "b"}]),
        ("inputs.order.lines[state.level].article", "pen"),
        ("inputs.map == {'x': 1}", False),
        ("inputs.map == {'a': {'c': 2, 'z': 1}, 'b': 1.0}", True),
        ("inputs.urgent ? inputs.name : inputs.note", "Ada"),
        ("-inputs.count - (1 - 3)", 0),
        ("b'\\x00é' + b'z'", b"\x00\xc3\xa9z"),
        ("string(b'abc')", "abc"),
        ("5u", 5),
        (
            "dyn([timestamp(now), duration('90m'), {'b': b'x', 'a': 1.5}])",
            ["2026-11-20T09:14:02Z", "1h30m", {"a": 1.5, "b": b"x"}],
        ),
        ("inputs.map.b // the rest is a comment", 1),
        (".inputs.map.b + .size([1])", 2),
        ("[{'name': 'x'}].map(inputs, inputs.name + .inputs.name)", ["xAda"]),
        ("[1].map(inputs, [2].map(inputs, inputs + .inputs.count))", [[4]]),
        ("[{'x': {'output': 1}}].map(steps, steps.x.output)", [1]),
        ("[7].exists(inputs, has(.inputs.name) && default(.inputs.note, 'a') == 'a')", True),
        ("{'a': 1, 'b': [1, 'x', null]}", {"a": 1, "b": [1, "x", None]}),
        ("{inputs.name: 1, 'b': 2}", {"Ada": 1, "b": 2}),
    ],
)
def test_value(evaluate: Any, untyped: DeclaredNames, source: str, value: Any) -> None:
    assert evaluate(source) == value
    if "/ 2.0" not in source and "double" not in source and "price" not in source:
        assert evaluate(source, names=untyped) == value


@each_row(
    ("source", "message"),
    [
        ("1 / 0", "divide by zero"),
        ("9223372036854775807 + inputs.count", "integer overflow"),
        ("inputs.any.big + 1", "beyond 64 bits"),
        ("inputs.any.big > 1", "beyond 64 bits"),
        ("9223372036854775807u + uint(inputs.count)", "beyond 64 bits"),
        ("dyn([type(1)])", "a type, no value"),
        ("uint(inputs.count) - 3u", "overflow"),
        ("inputs.any.none + 1", "'+' does not take values of these types: inputs.any.none is null"),
        ("inputs.any.text > 1", "'>' does not take text and an integer"),
        ("inputs.any.none.x", "inputs.any.none is null"),
        ("inputs.any.nothing", "inputs.any has no 'nothing'"),
        ("inputs.any.list[2]", "has 2 items, but none at 2"),
        ("inputs.any.list.x", "is a list, so it has no 'x'"),
        ("inputs.any.list[inputs.any.text]", "is a list"),
        ("inputs.any.map(k, k)", "goes over a list, not a map. Iterate keys"),
        ("inputs.any.list.filter(x, x)", "true or false, not an integer"),
        ("inputs.any.text ? 1 : 2", "true or false, not text"),
        ("inputs.any.text && inputs.urgent", "true or false, not text"),
        ("int(inputs.any.text)", "cannot convert"),
        ("inputs.name.matches(inputs.name + '(')", "regular expression"),
        ("steps.draft.output.text + 'x'", "steps.draft.output is null"),
    ],
)
def test_an_expression_without_value_says_why_and_where(
    evaluate: Any, untyped: DeclaredNames, source: str, message: str
) -> None:
    with pytest.raises(EvaluationError) as caught:
        evaluate(source, names=untyped)
    assert message in str(caught.value)
    assert str(caught.value).startswith("flow.yaml:3:7: ")
    assert caught.value.data == {"file": "flow.yaml", "line": 3, "column": 7, "source": source}


def test_a_value_of_another_type_than_declared_is_an_error(evaluate: Any) -> None:
    values = {"inputs": {"name": None, "count": 1.5, "numbers": ["a"], "urgent": "yes"}}
    for source, message in [
        ("inputs.name + 'x'", "inputs.name is null, but declared as text"),
        ("inputs.name == 'x'", "inputs.name is null, but declared as text"),
        ("inputs.count + 1", "inputs.count is a number, but declared as an integer"),
        ("inputs.count > 1", "inputs.count is a number, but declared as an integer"),
        ("inputs.numbers + [1]", "inputs.numbers holds items of another type"),
        ("inputs.urgent && true", "true or false"),
    ]:
        with pytest.raises(EvaluationError, match=message):
            evaluate(source, values)


def test_one_condition_that_decides_makes_up_for_one_that_fails(evaluate: Any) -> None:
    assert evaluate("inputs.any.none.x == 1 || inputs.urgent") is True
    assert evaluate("inputs.any.none.x == 1 && !inputs.urgent") is False
    assert evaluate("[0, 1].exists(n, 1 / n == 1)") is True
    assert evaluate("[0, 1].all(n, 1 / n == 2)") is False
    with pytest.raises(EvaluationError, match="is null"):
        evaluate("inputs.any.none.x == 1 || !inputs.urgent")
    with pytest.raises(EvaluationError, match="divide by zero"):
        evaluate("[0, 1].exists(n, 1 / n == 2)")


@each_row(
    ("value", "text"),
    [("a", "a"), (3, "3"), (2**70, str(2**70)), (3.0, "3"), (1250.5, "1250.5"), (0.1, "0.1"),
     (1234567.0, "1234567"), (1e21, "1e+21"), (True, "true"), (False, "false")],
)  # fmt: skip
def test_text_of_a_template(value: Any, text: str) -> None:
    assert CelEvaluator([{"node": [], "at": [1, 1]}], "f").text(value, 0) == text


@each_row(
    ("value", "hint"),
    [(None, "default"), ([1], "json"), ({}, "json"), (b"x", "json"), (float("inf"), "finite")],
)
def test_no_text_of_a_template(value: Any, hint: str) -> None:
    with pytest.raises(EvaluationError, match=hint) as caught:
        CelEvaluator([{"node": [], "at": [4, 2]}], "f.yaml").text(value, 0)
    assert str(caught.value).startswith("f.yaml:4:2: ")
