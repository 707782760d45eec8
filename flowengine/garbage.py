"""The search for cyclic garbage waits, such as while executions take turns.

Python looks for cycles after every 700 new containers, and a record of 1 KB has a dozen: within a
few steps it would look through values that the state still holds, and in vain. So it looks once
after some milliseconds of turns instead; also after what is unpacked or imported, of which all is
kept. What no cycle holds is freed at once, as ever.
"""

from __future__ import annotations

import gc
import os

_waiting: list[None] = []
"""Holds something while the search waits because of this module."""


class CollectedLater:
    """A block after which cyclic garbage is searched for; where others turned that off, it stays.

    Only for blocks of a few milliseconds, or of seconds where somebody asks for a lot at once: this
    holds for the whole process.
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
    """A child that a step forks does not return from the block."""
    if _waiting:
        _waiting.clear()
        gc.enable()


os.register_at_fork(after_in_child=_search_in_child)
