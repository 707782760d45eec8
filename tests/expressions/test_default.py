# Shows F101
"""F101: `default` and `has`, on paths through null and missing keys, typed and untyped.

`default` returns the first value that exists and is not null. `has` only checks.
"""

from __future__ import annotations

from typing import Any

import pytest

from flowengine.flow.expressions.types import DeclaredNames
from flowengine.kernel.graph.compiled import EvaluationError
from tests.rows import each_row

OUTPUT = {"type": "object", "properties": {
    "report": {"type": "object", "properties": {"title": {"type": "string"}}},
    "score": {"type": "number"}}}  # fmt: skip
STEP = {"properties": {"output": OUTPUT, "status": {"type": "string"}}}
TYPED = DeclaredNames({"properties": {"steps": {"properties": {"x": STEP}}, "inputs": {}}})
UNTYPED = DeclaredNames({"properties": {"steps": {}, "inputs": {}}})

STATES: dict[str, Any] = {
    "skipped": {"status": "skipped", "output": None},
    "failed": {"status": "failed", "output": None},
    "not run": {"status": "none", "output": None},
    "truly null": {"status": "succeeded", "output": {"report": None, "score": None}},
    "missing": {"status": "succeeded", "output": {}},
}


def seen(state: dict[str, Any]) -> dict[str, Any]:
    return {"steps": {"x": state}, "inputs": {"list": [], "n": 1, "text": "t"}}


@each_row("state", STATES.values())
@each_row("names", [TYPED, UNTYPED])
def test_nothing_is_there(evaluate: Any, names: DeclaredNames, state: Any) -> None:
    values = seen(state)
    assert evaluate("default(steps.x.output.report.title, 'none')", values, names) == "none"
    assert evaluate("default(steps.x.output.score, 1.5) + 1.0", values, names) == 2.5
    assert evaluate("default(steps.x.output.report, {})", values, names) == {}
    assert evaluate("has(steps.x.output.report.title)", values, names) is False
    for source in ("steps.x.output.report.title", "steps.x.output.report.title + '!'"):
        with pytest.raises(EvaluationError, match=r"is null|has no"):
            evaluate(source, values, names)
    unneeded = "steps.x.status == 'done' && steps.x.output.report.title + '' == 'a'"
    assert evaluate(unneeded, values, names) is False
    unneeded = "steps.x.status != 'done' ? 'no' : steps.x.output.report.title"
    assert evaluate(unneeded, values, names) == "no"


@each_row("names", [TYPED, UNTYPED])
def test_a_value_that_is_there_is_taken(evaluate: Any, names: DeclaredNames) -> None:
    values = seen({"status": "succeeded", "output": {"report": {"title": ""}, "score": 0.0}})
    assert evaluate("default(steps.x.output.report.title, 'none')", values, names) == ""
    assert evaluate("default(steps.x.output.score, 7.0)", values, names) == 0
    assert evaluate("default(steps.x.output.score, 7.0) + 1.0", values, names) == 1.0
    assert evaluate("has(steps.x.output.report.title)", values, names) is True


@each_row(
    ("source", "value"),
    [
        ("default(null, null, 3)", 3),
        ("default(null, null)", None),
        ("default(inputs.a, inputs.b, inputs.n)", 1),
        ("default(inputs.list[0], 'none')", "none"),
        ("default(inputs.list[0].name, 'none')", "none"),
        ("default(inputs.list[inputs.n].name, 'none')", "none"),
        ("default(inputs['a-b'], 'none')", "none"),
        ("default(parse_json('{}').a.b, 'none')", "none"),
        ("default(parse_json('null').a, 'none')", "none"),
        ("default(default(inputs.a, null), 'none')", "none"),
        ("[{'a': 1}, {}].map(x, default(x.a, 0))", [1, 0]),
        ("default(inputs.a.b, inputs.n / 0)", "error"),
        ("default(inputs.n, inputs.n / 0)", 1),
    ],
)
def test_arguments(evaluate: Any, source: str, value: Any) -> None:
    state = seen(STATES["failed"])
    if value == "error":
        with pytest.raises(EvaluationError, match="divide by zero"):
            evaluate(source, state, UNTYPED)
    else:
        assert evaluate(source, state, UNTYPED) == value


def test_a_path_through_a_text_is_a_mistake_not_a_gap(evaluate: Any) -> None:
    with pytest.raises(EvaluationError, match=r"inputs\.text is text"):
        evaluate("default(inputs.text.a, 1)", seen(STATES["failed"]), UNTYPED)
