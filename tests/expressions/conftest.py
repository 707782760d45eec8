from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flowengine.flow.expressions.checker import check
from flowengine.flow.expressions.evaluator import CelEvaluator
from flowengine.flow.expressions.types import CheckedExpression, DeclaredNames, Note

SCHEMA: dict[str, Any] = {
    "properties": {
        "inputs": {
            "properties": {
                "name": {"type": "string"},
                "count": {"type": "integer"},
                "level": {"type": "integer", "default": 1},
                "amount": {"type": "number"},
                "urgent": {"type": "boolean"},
                "note": {"type": ["string", "null"]},
                "color": {"enum": ["red", "green", "blue"]},
                "numbers": {"type": "array", "items": {"type": "integer"}},
                "order": {
                    "type": "object",
                    "properties": {
                        "id": {"type": "string"},
                        "lines": {
                            "type": "array",
                            "items": {
                                "type": "object",
                                "properties": {
                                    "article": {"type": "string"},
                                    "price": {"type": "number"},
                                    "quantity": {"type": "integer"},
                                },
                            },
                        },
                    },
                },
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "map": {"type": "object"},
                "any": {},
            }
        },
        "steps": {
            "properties": {
                "draft": {
                    "properties": {
                        "output": {
                            "type": "object",
                            "properties": {"text": {"type": "string"}, "score": {"type": "number"}},
                        },
                        "status": {"type": "string"},
                        "outcome": {},
                    }
                },
                "fetch": {"properties": {"output": {}, "status": {"type": "string"}}},
            },
            "additionalProperties": False,
        },
        "state": {"properties": {"level": {"type": "integer"}}},
        "now": {"type": "string", "format": "date-time"},
        "secrets": {"properties": {"API_KEY": {"x-secret": True}}},
    }
}

NAMES = DeclaredNames(
    SCHEMA,
    hidden={
        "steps.later": Note("E304", "'later' cannot have run yet", "name an earlier step"),
        "result": Note("E301", "'result' is visible in 'output' only"),
    },
    uncertain={"steps.draft.output": Note("W305", "'draft' may not have run", "write default(…)")},
)

VALUES: dict[str, Any] = {
    "inputs": {
        "name": "Ada",
        "count": 2,
        "amount": 3,
        "urgent": True,
        "note": None,
        "color": "red",
        "numbers": [3, 1, 2, 3],
        "order": {
            "id": "o-1",
            "lines": [
                {"article": "ink", "price": 2, "quantity": 3},
                {"article": "pen", "price": 1.5, "quantity": 1},
            ],
        },
        "labels": {"b": "x", "a": "y"},
        "map": {"b": 1, "a": {"z": 1, "c": 2}},
        "any": {"text": "t", "list": [1, 2], "none": None, "big": 2**70},
    },
    "steps": {
        "draft": {"output": None, "status": "none", "outcome": None},
        "fetch": {"output": {"rows": [{"a": 1}, {"a": None}, {}]}, "status": "succeeded"},
    },
    "state": {"level": 1},
    "now": "2026-11-20T09:14:02Z",
}

Evaluate = Callable[..., Any]
Complain = Callable[..., list[tuple[str, str]]]


@pytest.fixture
def names() -> DeclaredNames:
    return NAMES


@pytest.fixture
def values() -> dict[str, Any]:
    return VALUES


@pytest.fixture
def evaluate() -> Evaluate:
    """Check an expression, fail on problems, and return its value."""

    def run(source: str, values: dict[str, Any] = VALUES, names: DeclaredNames = NAMES) -> Any:
        checked = check(source, names)
        assert not [one for one in checked.problems if not one.warning], checked.problems
        return CelEvaluator([checked.placed(3, 7)], "flow.yaml").evaluate(0, values)

    return run


@pytest.fixture
def untyped() -> DeclaredNames:
    """The same names without types, so that all checks happen at run time."""
    return DeclaredNames({"properties": {root: {} for root in SCHEMA["properties"]}})


@pytest.fixture
def complain() -> Complain:
    """Check an expression, and return its problems as (code, marked text)."""

    def run(source: str, want: Any = "any", names: DeclaredNames = NAMES) -> list[tuple[str, str]]:
        checked: CheckedExpression = check(source, names, want)
        return [
            (problem.code, source[problem.offset : problem.offset + problem.length])
            for problem in checked.problems
        ]

    return run
