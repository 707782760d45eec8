"""Constant conditions are decided without the CEL library, with the same result."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flowengine.flow.expressions import CelEvaluator, DeclaredNames, cel, check
from flowengine.flow.expressions.paths import NoValue
from flowengine.flow.expressions.program import build
from flowengine.kernel.graph.compiled import EvaluationError
from tests.sliced_examples import sliced

NAMES = DeclaredNames({"properties": {"x": {}, "y": {}}})
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-3, 3),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, 1.0, 2.5, -1.0]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=3),
    st.sampled_from([[], [1], {}, {"a": 1}, b"x"]),
)
CONSTANTS = st.sampled_from(["0", "1", "-1", "2.5", "1.0", "'a'", "''", "true", "false", "'é'"])
COMPARISONS = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])


@st.composite
def conditions(draw: st.DrawFn, depth: int = 2) -> str:
    if depth == 0 or draw(st.booleans()):
        name, op, constant = draw(st.sampled_from("xy")), draw(COMPARISONS), draw(CONSTANTS)
        parts = [name, op, constant] if draw(st.booleans()) else [constant, op, name]
        return draw(st.sampled_from([" ".join(parts), name]))
    left, right = draw(conditions(depth - 1)), draw(conditions(depth - 1))
    return draw(st.sampled_from([f"({left}) && ({right})", f"({left}) || ({right})", f"!({left})"]))


def outcome(run: Any) -> Any:
    try:
        return run()
    except (EvaluationError, NoValue):
        return "fails"


@sliced(examples=20)
@given(conditions(), VALUES, VALUES)
def test_same_as_the_library(source: str, x: Any, y: Any) -> None:
    record = check(source, NAMES, "bool").record
    assert "cel" not in str(record["node"])
    here = outcome(lambda: CelEvaluator([record], "f").evaluate(0, {"x": x, "y": y}))
    text = source.replace("x", "y0").replace("y", "y1").replace("y10", "y0")
    slots = {"y0": build(["path", "x", []]), "y1": build(["path", "y", []])}
    library = cel.program(f"({text}) == true", slots, {"y0": "x", "y1": "y"})
    there = outcome(lambda: library({"x": x, "y": y}))
    if "&&" in source or "||" in source or "!" in source or source in "xy":
        # A bare operand that is not a bool: the library's own `==` would yield false.
        library = cel.program(f"({text}) ? true : false", slots, {"y0": "x", "y1": "y"})
        there = outcome(lambda: library({"x": x, "y": y}))
    assert here == there


@given(st.sampled_from(["map", "list", "string"]), st.sampled_from(["==", "!="]), VALUES)
def test_types_are_told_as_by_the_library(name: str, op: str, x: Any) -> None:
    source = f"type(x) {op} {name}"
    record = check(source, NAMES, "bool").record
    assert "cel" not in str(record["node"])
    library = cel.program(source.replace("x", "y0"), {"y0": build(["path", "x", []])}, {"y0": "x"})
    assert CelEvaluator([record], "f").evaluate(0, {"x": x}) is library({"x": x})


def test_a_name_of_the_flow_is_no_type() -> None:
    names = DeclaredNames({"properties": {"x": {}, "map": {}}})
    assert not check("x == map", names, "bool").problems
    record = check("type(x) == type(map)", names, "bool").record
    assert CelEvaluator([record], "f").evaluate(0, {"x": {}, "map": {"a": 1}}) is True


OPERATORS = st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "+", "-", "*"])


@sliced(examples=20)
@given(st.sampled_from(["i", "y"]), OPERATORS, VALUES, VALUES)
def test_two_integers_are_as_in_the_library(slot: str, op: str, x: Any, y: Any) -> None:
    one, other = f"{slot}0", f"{slot}1"
    slots: dict[str, Any] = {one: ["path", "x", []], other: ["path", "y", []]}
    names: Any = {"x": x, "y": y}
    here = outcome(lambda: build(["cel", f"{one} {op} {other}", slots])(names))
    library = cel.program(
        f"{one} {op} {other}", {s: build(n) for s, n in slots.items()}, {one: "x", other: "y"}
    )
    there = outcome(lambda: library(names))
    assert (here, type(here)) == (there, type(there))
    node = ["cel", f"{one} {op} 7", {one: slots[one]}]
    library = cel.program(f"{one} {op} 7", {one: build(slots[one])}, {one: "x"})
    here, there = outcome(lambda: build(node)(names)), outcome(lambda: library(names))
    assert (here, type(here)) == (there, type(there))
