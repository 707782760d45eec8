"""What one evaluation may cost."""

from __future__ import annotations

from flowengine.flow.expressions.paths import NoValue, TooExpensive
from flowengine.kernel.graph.compiled import Plain

LIMIT = 1_000_000
"""Rounds of `map`, `filter` and their kin, all levels together, plus parts of values handed on in
them. About three seconds."""
_TEXT = 64
"""Characters that count as one part."""
_DEPTH = 100


class Budget:
    """Counts down what an evaluation with loops has spent."""

    __slots__ = ("_weights", "left")

    def __init__(self) -> None:
        self.left = LIMIT
        self._weights: dict[int, tuple[Plain, int]] = {}

    def charge(self, amount: int) -> None:
        """Spend.

        Args:
            amount: How much.

        Raises:
            TooExpensive: There is not so much left.
        """
        self.left -= amount
        if self.left < 0:
            raise TooExpensive(
                f"the expression is too expensive: more than {LIMIT} rounds or parts of values; "
                "compute this in a tool"
            )

    def charge_value(self, value: Plain) -> None:
        """Spend what handing on a value costs.

        Args:
            value: The value; parts that appear several times count each time.
        """
        if isinstance(value, (str, bytes)):
            self.charge(len(value) // _TEXT)
        elif isinstance(value, (list, dict)):
            self.charge(self.weigh(value))

    def weigh(self, value: Plain, depth: int = 0) -> int:
        """Return the number of parts of a value, a part counted wherever it appears.

        Args:
            value: Plain data; the same object in many places is looked at once.
            depth: How deep it is nested.

        Returns:
            At least 1.

        Raises:
            TooExpensive: It has more parts than an evaluation may handle.
            NoValue: It is nested too deeply.
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
                f"the value is too large: more than {LIMIT} parts; compute it in a tool"
            )
        self._weights[id(value)] = (value, weight)
        return weight
