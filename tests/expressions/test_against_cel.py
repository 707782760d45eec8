# Shows F13
"""Expressions have the values that they have in Google's implementation of CEL in C++."""

from __future__ import annotations

import math
from typing import Any

from cel_expr_python import cel  # type: ignore[import-untyped]
from cel_expr_python.ext import ext_math, ext_strings  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from flowengine.flow.expressions.checker import check
from flowengine.flow.expressions.evaluator import CelEvaluator
from flowengine.flow.expressions.types import DeclaredNames
from flowengine.kernel.graph.compiled import EvaluationError
from tests.sliced_examples import sliced

NAMES = DeclaredNames({"properties": {"x": {}, "y": {}}})
LIBRARY = cel.NewEnv(
    variables={"x": cel.Type.DYN, "y": cel.Type.DYN},
    extensions=[ext_strings.ExtStrings(), ext_math.ExtMath()],
)
TEXTS = st.sampled_from(["", "a", "ab,cab", "Äb", "😀", "12", "-1.5", "true", " a\t"])
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-3, 3),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, 1.0, 2.5, -1.0, 1e6, 1e-5, 2.0**63]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=3),
    TEXTS,
    st.sampled_from([[], [1], [1, 2.0, "a"], [True], {}, {"a": 1}, {"a": [1.0]}, b"x", b"\xff"]),
)
CONSTANTS = [
    *("0", "1", "-1", "2", "2.5", "1.0", "'a'", "''", "','", "true", "false", "'é'", "b'x'", "2u"),
    *("[1, 2]", "[]", "['a', 1.5]", "{'a': 1}", "9223372036854775807", "null", "1e6", "'%d %s'"),
]
INFIX = ["==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "in", "&&", "||"]
ONE = [
    *("-{}", "!{}", "int({})", "uint({})", "double({})", "string({})", "bool({})", "bytes({})"),
    *("{}.lowerAscii()", "{}.upperAscii()", "{}.trim()", "{}.reverse()", "math.abs({})"),
    *("math.ceil({})", "math.floor({})", "math.round({})", "math.trunc({})", "math.sign({})"),
    *("math.sqrt({})", "math.isNaN({})", "math.isInf({})", "math.isFinite({})", "math.bitNot({})"),
    *("strings.quote({})", "type({}) == int", "type({}) != string"),
    *("'%.2f'.format([{}])", "'%x'.format([{}])", "'%e'.format([{}])", "'%d'.format([{}])"),
    *("'%b'.format([{}])", "'%o'.format([{}])"),
]
TWO = [
    *("{}.contains({})", "{}.startsWith({})", "{}.endsWith({})", "{}.matches({})", "{}.charAt({})"),
    *("{}.indexOf({})", "{}.lastIndexOf({})", "{}.split({})", "{}.substring({})", "{}.format({})"),
    *("math.greatest({}, {})", "math.least({}, {})", "math.bitAnd({}, {})", "math.bitOr({}, {})"),
    *("math.bitXor({}, {})", "math.bitShiftLeft({}, {})", "math.bitShiftRight({}, {})"),
]
THREE = [
    *("{} ? {} : {}", "{}.indexOf({}, {})", "{}.lastIndexOf({}, {})", "{}.split({}, {})"),
    *("{}.substring({}, {})",),
]


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> str:
    """Return an expression whose types are known only from its values."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from(["x", "y", "x", "y", *CONSTANTS]))
    infix = [f"{{}} {operator} {{}}" for operator in INFIX]
    form = draw(st.sampled_from(infix + ONE if draw(st.booleans()) else TWO + THREE + ONE))
    parts = [draw(expressions(depth - 1)) for _ in range(form.count("{}"))]
    return form.format(*[f"dyn({part})" for part in parts])


def here(source: str, values: dict[str, Any]) -> Any:
    checked = check(f"dyn({source})", NAMES)
    if checked.problems:
        return "refused"
    try:
        return exact(CelEvaluator([checked.record], "f").evaluate(0, values))
    except EvaluationError:
        return "fails"


def there(source: str, values: dict[str, Any]) -> Any:
    try:
        result = LIBRARY.compile(source).eval(data=values)
        value = result.plain_value()
    except RuntimeError:
        return "fails"
    if result.type() == cel.Type.ERROR:
        return "fails"
    return exact(value)


def exact(value: Any) -> Any:
    """Return a value in which 1, 1.0 and true differ. Those that cannot leave a flow fail."""
    if isinstance(value, list):
        parts = [exact(part) for part in value]
        return "fails" if "fails" in parts else parts
    if isinstance(value, dict):
        return {key: exact(part) for key, part in value.items()}
    unfit = isinstance(value, float) and not math.isfinite(value)
    if unfit or (isinstance(value, int) and value >= 2**63):
        return "fails"
    return bytes(value) if isinstance(value, (bytes, bytearray)) else (type(value), repr(value))


@sliced(examples=20)
@given(expressions(), VALUES, VALUES)
def test_same_value_as_in_the_implementation_by_google(source: str, x: Any, y: Any) -> None:
    values = {"x": x, "y": y}
    found = here(source, values)
    expected = there(source, values)
    if found != "refused":
        assert found == expected
