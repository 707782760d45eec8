"""How much a check may look at, over all scopes of a flow, before it says that it gives up.

Counted is work, not time, so that a file gets the same verdict on every machine.
"""

from __future__ import annotations

PAIRS = 300_000
"""Pairs of tokens, over all scopes."""
LEAST_PAIRS = 1_000
"""Pairs that each scope may have, whatever those before it took."""
WORK = 120_000
"""Tokens looked at while scopes are played out, over all of them."""
LEAST_WORK = 2_000
MOST_WORK = 40_000
"""That of one play: a scope that makes ever more tokens has no end of positions."""


class Effort:
    """What is left for the scopes of one flow."""

    def __init__(self) -> None:
        self._pairs = PAIRS
        self._work = WORK

    def pairs(self) -> int:
        """Return how many pairs of tokens the next scope may have."""
        return max(self._pairs, LEAST_PAIRS)

    def work(self) -> int:
        """Return how much may be looked at in the next play."""
        return min(max(self._work, LEAST_WORK), MOST_WORK)

    def spend(self, *, pairs: int = 0, work: int = 0) -> None:
        """Note what a scope took."""
        self._pairs -= pairs
        self._work -= work
