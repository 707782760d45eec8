"""Evaluation of expressions from their records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flowengine.flow.expressions import program
from flowengine.flow.expressions.bounds import finished
from flowengine.flow.expressions.functions import number_text
from flowengine.flow.expressions.paths import NoValue, name_of
from flowengine.flow.expressions.scope import Run
from flowengine.kernel.graph.compiled import EvaluationError, Plain, ReadableNames, Value


class CelEvaluator:
    """Evaluates the expressions of one flow, as the kernel's `Evaluator`.

    Args:
        records: `CompiledFlow["expressions"]`: the results of `check`, in order.
        file: The flow's file or id, for error messages.
    """

    __slots__ = ("_file", "_records", "_runs")

    def __init__(self, records: list[dict[str, Any]], file: str) -> None:
        self._records = records
        self._file = file
        self._runs: list[Run | None] = [None] * len(records)

    def evaluate(self, expression: int, names: ReadableNames) -> Plain:
        """Return the value of expression number `expression`.

        Args:
            expression: Its number.
            names: The values of root names.

        Returns:
            Plain data. For a single path, it is the stored value itself.

        Raises:
            EvaluationError: The expression has no value here.
        """
        try:
            run = self._runs[expression] or self._link(expression)
            return run(names)
        except NoValue as error:
            raise self._error(str(error), expression) from None
        except RecursionError:
            raise self._error("a value is nested too deeply", expression) from None

    def text(self, value: Plain, expression: int) -> str:
        """Return a value as text in a template.

        Args:
            value: The value of the expression.
            expression: Its number, for error messages.

        Returns:
            The text. A whole number has no `.0`, and a bool is `true` or `false`.

        Raises:
            EvaluationError: The value is a list, a map, null or bytes.
        """
        if isinstance(value, str):
            return value
        if isinstance(value, (bool, int, float)):
            try:
                return number_text(value)
            except NoValue as error:
                raise self._error(str(error), expression) from None
        hint = "default(…, '')" if value is None else "json(…)"
        raise self._error(
            "a part of a text must be text, a number, or true or false, not "
            f"{name_of(value)}: write {hint}",
            expression,
        )

    def composed(self, value: Plain, tree: Value) -> Plain:
        """Return a list, a map or a text with the values of several expressions.

        Args:
            value: The value.
            tree: The tree that it was created from.

        Raises:
            EvaluationError: It is too large.
        """
        try:
            return finished(value)
        except NoValue as error:
            raise self._error(str(error), next(_numbers(tree), 0)) from None

    def _link(self, expression: int) -> Run:
        """Return the function that evaluates an expression."""
        record = self._records[expression]
        run = program.build(record["node"])
        if record.get("bool"):
            linked = _condition(run)
        elif record["node"][0] in {"path", "const", "null", "has"}:
            linked = run
        else:
            linked = _plain(run)
        self._runs[expression] = linked
        return linked

    def _error(self, message: str, expression: int) -> EvaluationError:
        """Return the error with its place."""
        line, column, *more = self._records[expression].get("at", [0, 0])
        source, file = more[0] if more else "", more[1] if more[1:] else self._file
        place = f"{file}:{line}:{column}" if line else file
        data = {"file": file, "line": line, "column": column, "source": source}
        return EvaluationError(f"{place}: {message}", data)


def _condition(run: Run) -> Run:
    def condition(names: ReadableNames) -> Plain:
        value = run(names)
        return value if value is True or value is False else program.truth(value)

    return condition


def _plain(run: Run) -> Run:
    """Convert times and durations to text, and refuse values that are too large."""

    def plain(names: ReadableNames) -> Plain:
        value = run(names)
        return value if type(value) in _AT_ONCE else finished(value)

    return plain


def _numbers(tree: Value) -> Iterator[int]:
    """Yield the numbers of the expressions in a value of the compiled flow."""
    tag, content = tree
    if tag == "expr":
        yield content
    for part in content.values() if tag == "map" else content if tag in {"list", "text"} else ():
        yield from _numbers(part) if isinstance(part, list) else [part] if type(part) is int else ()


_AT_ONCE = frozenset([bool, int, float])
