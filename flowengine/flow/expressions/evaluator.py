"""Evaluating expressions by their records."""

from __future__ import annotations

from typing import Any

from flowengine.kernel.graph import Names, Plain


class CelEvaluator:
    """Gives the expressions of one flow their values; the kernel's `Evaluator`.

    Args:
        records: `CompiledFlow["expressions"]`: what `check` made, in order.
        file: The flow's file or id, for error messages.
    """

    __slots__ = ("_file", "_records")

    def __init__(self, records: list[dict[str, Any]], file: str) -> None:
        self._records = records
        self._file = file

    def evaluate(self, expression: int, names: Names) -> Plain:
        """Return the value of expression number `expression`.

        Args:
            expression: Its number.
            names: The values of root names.

        Returns:
            Plain data.

        Raises:
            EvaluationError: It has no value here.
        """
        raise NotImplementedError

    def text(self, value: Plain, expression: int) -> str:
        """Return a value as text in a template.

        Args:
            value: What the expression gave.
            expression: Its number, for error messages.

        Returns:
            The text.

        Raises:
            EvaluationError: The value is a list, a map, null or bytes.
        """
        raise NotImplementedError
