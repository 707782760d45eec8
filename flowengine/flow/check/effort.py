"""Limits on the work of a check over all scopes of a flow, after which it gives up.

Work is counted instead of time, so that a file gets the same verdict on every machine.
"""

from __future__ import annotations

PAIRS = 300_000
"""Pairs of tokens, over all scopes."""
LEAST_PAIRS = 1_000
"""Pairs that each scope may always explore, regardless of earlier scopes."""
WORK = 120_000
"""Tokens examined while scopes are played out, over all of them."""
LEAST_WORK = 2_000
MOST_WORK = 40_000
"""The same for one play. A scope with unbounded tokens has infinitely many positions."""


class Effort:
    """The remaining effort for the scopes of one flow."""

    def __init__(self) -> None:
        self._pairs = PAIRS
        self._work = WORK

    def pairs(self) -> int:
        """Return how many pairs of tokens the next scope may explore."""
        return max(self._pairs, LEAST_PAIRS)

    def work(self) -> int:
        """Return how many tokens the next play may examine."""
        return min(max(self._work, LEAST_WORK), MOST_WORK)

    def spend(self, *, pairs: int = 0, work: int = 0) -> None:
        """Record the effort of a scope."""
        self._pairs -= pairs
        self._work -= work
