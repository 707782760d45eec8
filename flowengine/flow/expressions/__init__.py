"""Expressions: `${{ }}` in texts, checked against declared types, evaluated without side effects.

There are two sides. *Checking* (`split_text`, `check`) belongs to compiling a flow. *Evaluating*
(`CelEvaluator`) belongs to running one: it works on the records that `check` made. The language is
CEL, and both sides are this project's own. Tests compare them with CEL's conformance suite and with
Google's implementation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.util.lazy_names import exports

if TYPE_CHECKING:
    from flowengine.flow.expressions.checker import check
    from flowengine.flow.expressions.evaluator import CelEvaluator
    from flowengine.flow.expressions.template import Piece, TemplateError, split_text
    from flowengine.flow.expressions.types import (
        CheckedExpression,
        DeclaredNames,
        ExpressionProblem,
        Note,
        Want,
    )

__all__ = [
    "CelEvaluator",
    "CheckedExpression",
    "DeclaredNames",
    "ExpressionProblem",
    "Note",
    "Piece",
    "TemplateError",
    "Want",
    "check",
    "split_text",
]

_HOMES = {
    "CelEvaluator": ".evaluator",
    "CheckedExpression": ".types",
    "DeclaredNames": ".types",
    "Note": ".types",
    "Piece": ".template",
    "ExpressionProblem": ".types",
    "TemplateError": ".template",
    "Want": ".types",
    "check": ".checker",
    "split_text": ".template",
}

__getattr__, __dir__ = exports(__name__, __all__, _HOMES)
