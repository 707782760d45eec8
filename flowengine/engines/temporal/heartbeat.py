"""How soon the death of a worker is noticed."""

from __future__ import annotations

import os
from datetime import timedelta

from flowengine.errors import UsageError
from flowengine.kernel.notation.times import parse_duration

VARIABLE = "FLOWENGINE_HEARTBEAT"
"""The environment variable with the heartbeat of a store's workers, for workers and
callers."""
DEFAULT = 10.0
LONGEST_TASK = 10.0
"""Seconds after which Temporal gives a workflow task to another worker, by default."""
_SHORTEST_TASK = 1.0
_EVENTS_PER_SECOND = 410
"""Events of a history that a worker surely replays in a second. On two cores, it replays 800.
In ten seconds, these are as many as those after which Temporal suggests another run."""


def configured_heartbeat() -> float:
    """Return the seconds of `VARIABLE`, or the default.

    Raises:
        UsageError: It is not a duration.
    """
    text = os.environ.get(VARIABLE)
    if text is None:
        return DEFAULT
    try:
        seconds = parse_duration(text) / 1000
    except ValueError:
        seconds = 0.0
    if not seconds:
        raise UsageError(f"{VARIABLE}: {text!r} is not a duration, such as 3s")
    return seconds


def task_time(heartbeat: float) -> timedelta:
    """Return how long a worker may be silent about a workflow task of a new execution.

    Args:
        heartbeat: Seconds without a heartbeat after which an attempt is interrupted.
    """
    return timedelta(seconds=min(max(heartbeat, _SHORTEST_TASK), LONGEST_TASK))


def is_too_long(history: int, task: timedelta | None) -> bool:
    """Return whether a history may be too long to be replayed within a short workflow task.

    Args:
        history: Number of its events.
        task: The time of the task. With the default, Temporal's own suggestion suffices.
    """
    if task is None or task >= timedelta(seconds=LONGEST_TASK):
        return False
    return history > _EVENTS_PER_SECOND * task.total_seconds()
