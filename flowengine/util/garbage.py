"""Postponement of the search for cyclic garbage, for example while executions take turns.

Python searches for cycles after every 700 new containers, and a record of 1 KB has a dozen. Within
a few steps it would search values that the state still holds, without finding any garbage. The
search therefore runs once after some milliseconds of turns, and after unpacking or importing, whose
results are all kept. Objects outside of cycles are still freed at once.
"""

from __future__ import annotations

import gc
import os

_waiting: list[None] = []
"""Not empty while the search is postponed by this module."""


class CollectedLater:
    """A block after which cyclic garbage is searched for, unless the search was turned off.

    Only for blocks of a few milliseconds, or of seconds for a single large request, because it
    affects the whole process.
    """

    __slots__ = ("_was_on",)

    def __enter__(self) -> None:
        self._was_on = gc.isenabled()
        if self._was_on:
            _waiting.append(None)
            gc.disable()

    def __exit__(self, *_: object) -> None:
        if self._was_on:
            _waiting.clear()
            gc.enable()


def _search_in_child() -> None:
    """Enable the search in a child that a step forks, which does not return from the block."""
    if _waiting:
        _waiting.clear()
        gc.enable()


os.register_at_fork(after_in_child=_search_in_child)
