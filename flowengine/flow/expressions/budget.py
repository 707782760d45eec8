"""Limits on the cost of one evaluation."""

from __future__ import annotations

from flowengine.flow.expressions.paths import NoValue, TooExpensive
from flowengine.kernel.graph.compiled import Plain

LIMIT = 1_000_000
"""Rounds of `map`, `filter` and similar macros, all levels together, plus parts of values passed on
in them. About three seconds."""
_TEXT = 64
"""Characters that count as one part."""
_DEPTH = 100


class EvaluationBudget:
    """Counts down the cost of an evaluation with loops."""

    __slots__ = ("_weights", "left")

    def __init__(self) -> None:
        self.left = LIMIT
        self._weights: dict[int, tuple[Plain, int]] = {}

    def charge(self, amount: int) -> None:
        """Charge an amount.

        Args:
            amount: The amount.

        Raises:
            TooExpensive: The remaining budget is smaller.
        """
        self.left -= amount
        if self.left < 0:
            raise TooExpensive(
                f"the expression is too expensive: more than {LIMIT} rounds or parts of "
                "values. Compute this in a tool"
            )

    def charge_value(self, value: Plain) -> None:
        """Charge the cost of passing on a value.

        Args:
            value: The value. Parts that occur several times count each time.
        """
        if isinstance(value, (str, bytes)):
            self.charge(len(value) // _TEXT)
        elif isinstance(value, (list, dict)):
            self.charge(self.weigh(value))

    def weigh(self, value: Plain, depth: int = 0) -> int:
        """Return the number of parts of a value, counting a part at each occurrence.

        Args:
            value: Plain data. The same object in several places is examined once.
            depth: Its nesting depth.

        Returns:
            At least 1.

        Raises:
            TooExpensive: The value has more parts than an evaluation may handle.
            NoValue: The value is nested too deeply.
        """
        if isinstance(value, (str, bytes)):
            return 1 + len(value) // _TEXT
        if not isinstance(value, (list, dict)):
            return 1
        known = self._weights.get(id(value))
        if known is not None:
            return known[1]
        if depth > _DEPTH:
            raise NoValue(f"the value is nested more than {_DEPTH} levels deep")
        weight = 1
        for part in value.values() if isinstance(value, dict) else value:
            weight += self.weigh(part, depth + 1)
        if weight > LIMIT:
            raise TooExpensive(
                f"the value is too large: more than {LIMIT} parts. Compute it in a tool"
            )
        self._weights[id(value)] = (value, weight)
        return weight
