# Shows F13
"""Expressions pass the cases of CEL's conformance suite that concern them.

`conformance.jsonl` has inputs and expected values of the suite in `tests/simple/testdata` of
https://github.com/google/cel-spec, copyright Google LLC, Apache License 2.0. It lacks the cases of
what the flow language does not have: messages and enums of protocol buffers, optional values,
macros with two variables or over maps, `bind`, base64, network addresses, keys of maps other than
texts, nanoseconds, and results that are a type, infinite or larger than a signed integer.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flowengine.flow.expressions.checker import check
from flowengine.flow.expressions.evaluator import CelEvaluator
from flowengine.flow.expressions.types import DeclaredNames
from flowengine.kernel.graph.compiled import EvaluationError

LINES = Path(__file__).with_name("conformance.jsonl").read_text(encoding="utf-8").splitlines()[1:]
FAILS = object()


def found(case: dict[str, Any]) -> Any:
    given = case.get("given", {})
    checked = check(case["expr"], DeclaredNames({"properties": {name: {} for name in given}}))
    if checked.problems:
        return FAILS
    try:
        return CelEvaluator([checked.record], "f").evaluate(0, given)
    except EvaluationError:
        return FAILS


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal. `true` is not 1."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)


def test_cases_of_the_conformance_suite() -> None:
    wrong = []
    for line in LINES:
        case = json.loads(line)
        value = found(case)
        expected = bytes.fromhex(case["hex"]) if "hex" in case else case.get("value")
        if (value is FAILS) is not case.get("fails", False) or not (
            value is FAILS or same(value, expected)
        ):
            wrong.append((case["case"], case["expr"], value))

    assert len(LINES) > 1300
    assert wrong == []
