"""The port to the evaluator of expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from flowengine.kernel.graph.compiled import Plain


class ReadableNames(Protocol):
    """The names that an expression can read, by root: `names["inputs"]`, `names["steps"]`, ..."""

    def __getitem__(self, root: str, /) -> Plain:
        """Return the value of a root name.

        Raises:
            KeyError: The root is not visible here.
        """


class Evaluator(Protocol):
    """Evaluates expressions. Implemented by `flowengine.flow.expressions`.

    It is pure: the same expression and names have the same value on every machine.
    """

    def evaluate(self, expression: int, names: ReadableNames) -> Plain:
        """Return the value of expression number `expression`.

        Raises:
            EvaluationError: The expression has no value here.
        """

    def text(self, value: Plain, expression: int) -> str:
        """Return a value as text in a template.

        Raises:
            EvaluationError: The value is a list or a map.
        """
