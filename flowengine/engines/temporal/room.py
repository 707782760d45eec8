"""The room in the history of an execution, which Temporal ends at 51,200 events or 50 MiB.

A history is continued in another run before, whose start contains the state of the execution. With
an object store, that is a reference. Without one, Temporal refuses a start of 2 MiB, so that a
state with large values stays in its run for as long as there is room.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from temporalio import workflow

from flowengine.engines.temporal.heartbeat import is_too_long
from flowengine.engines.temporal.objects import VARIABLE
from flowengine.engines.temporal.payloads import packed
from flowengine.engines.temporal.requests import MOST_BYTES
from flowengine.sdk.texts.sizes import size_text

LONGEST_HISTORY = 40_000
"""Maximum number of events in a history."""
LARGEST_HISTORY = 44_000_000
"""Maximum bytes of a history, with the largest results of the attempts at work."""
LARGEST_START = 1_900_000
"""Maximum bytes of what another run starts with, without an object store."""
_GROWTH = 1.5
"""How much longer a history must be before another run is tried again."""


class Room:
    """The room in the history of the current run.

    Args:
        most: Maximum bytes of a value.
    """

    def __init__(self, most: int) -> None:
        self._is_bounded = most <= MOST_BYTES
        self._stays_until: tuple[float, float] = 0, 0
        """Number of events and bytes until which the state was too large for another run."""
        self._start = 0

    @property
    def is_to_continue(self) -> bool:
        """Whether the history is to be continued in another run."""
        info = workflow.info()
        length, size = info.get_current_history_length(), info.get_current_history_size()
        if not (info.is_continue_as_new_suggested() or is_too_long(length, info.task_timeout)):
            return False
        return length >= self._stays_until[0] or size >= self._stays_until[1]

    def fits(self, start: Sequence[Mapping[str, Any]]) -> bool:
        """Return whether another run can start with some arguments. Otherwise, this one stays."""
        if not self._is_bounded:
            return True
        self._start = sum(len(packed(dict(argument))) for argument in start)
        info = workflow.info()
        length, size = info.get_current_history_length(), info.get_current_history_size()
        last = LARGEST_HISTORY - MOST_BYTES
        self._stays_until = length * _GROWTH, inf if size >= last else min(size * _GROWTH, last)
        return self._start <= LARGEST_START

    def is_for(self, attempts: int, sent: int) -> bool:
        """Return whether there is room for attempts and the largest results that they can have.

        Args:
            attempts: How many will be at work.
            sent: Bytes of inputs that the current workflow task sends.
        """
        if not self._is_bounded:
            return True
        size = workflow.info().get_current_history_size() + sent
        return size + attempts * MOST_BYTES <= LARGEST_HISTORY and not self.is_full

    @property
    def is_full(self) -> bool:
        """Whether the history has too many events for any other."""
        return workflow.info().get_current_history_length() > LONGEST_HISTORY

    def refusal(self) -> dict[str, Any]:
        """Return the error of an attempt that does not fit."""
        message = (
            "the history of the execution is full. Without an object store, it is continued in "
            f"another one only if the values of the execution have at most "
            f"{size_text(LARGEST_START)} together, and they have {size_text(self._start)}: start "
            f"the execution again with ${VARIABLE} set for all processes"
        )
        return {"type": "LimitExceeded", "message": message}
