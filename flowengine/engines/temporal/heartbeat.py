"""How soon the death of a worker is noticed."""

from __future__ import annotations

import os
from datetime import timedelta

from flowengine.errors import UsageError
from flowengine.kernel.notation.times import TooLong, parse_duration

VARIABLE = "FLOWENGINE_HEARTBEAT"
"""The environment variable with the heartbeat of a store's workers, for workers and
callers."""
DEFAULT = 30.0
LONG = 3
"""After this many times the heartbeat, the activity of an attempt ends, and others watch it."""
UNWATCHED = 3
"""A worker ends an attempt that no activity has watched for this many times the heartbeat."""
TAKEN = 6
"""An activity that is to watch an attempt is taken within this many times the heartbeat, or its
worker has ended. It is more than `UNWATCHED` and the two heartbeats that it can take until a
worker knows that the activity of an earlier run is not wanted any more."""
_DEFAULT_TASK = 10.0
"""Seconds after which Temporal gives a workflow task to another worker, by default."""
_SHORTEST_TASK, _LONGEST_TASK = 1.0, 120.0
"""Temporal reduces longer ones to this time."""
_AT_WORK = 0.9
"""Part of the time of a workflow task after which a worker gives up one that is still at work."""
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
    except TooLong as error:
        raise UsageError(f"{VARIABLE}: {error}") from None
    except ValueError:
        seconds = 0.0
    if not seconds:
        raise UsageError(f"{VARIABLE}: {text!r} is not a duration, such as 3s")
    return seconds


def task_time(heartbeat: float) -> timedelta:
    """Return how long a worker may be silent about a workflow task of a new execution.

    Temporal cannot distinguish a worker that has died during a workflow task from a slow one. So
    this time is not longer than the heartbeat, and that of Temporal by default, although a single
    event can need more: it can begin 100,000 steps.

    Args:
        heartbeat: Seconds without a heartbeat after which an attempt is interrupted.
    """
    seconds = heartbeat if heartbeat > DEFAULT else min(heartbeat, _DEFAULT_TASK)
    return timedelta(seconds=min(max(seconds, _SHORTEST_TASK), _LONGEST_TASK))


def patience_with_task(heartbeat: float) -> float:
    """Return after how many seconds a worker gives up a workflow task that is still at work.

    That of an execution from a caller with a shorter heartbeat can take as long as by default: the
    server has given it to another worker then.

    Args:
        heartbeat: As for `task_time`, of the worker.
    """
    return _AT_WORK * max(task_time(heartbeat).total_seconds(), _DEFAULT_TASK)


def is_too_long(history: int, task: timedelta | None) -> bool:
    """Return whether a history may be too long to be replayed within a short workflow task.

    Args:
        history: Number of its events.
        task: The time of the task. With the default or more, Temporal's own suggestion suffices.
    """
    if task is None or task >= timedelta(seconds=_DEFAULT_TASK):
        return False
    return history > _EVENTS_PER_SECOND * task.total_seconds()
