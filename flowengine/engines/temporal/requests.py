"""Names and data that a store in Temporal, its workflows and their activities have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flowengine.kernel.commands import Run
from flowengine.kernel.events import Log, ProcessData
from flowengine.kernel.graph.compiled import join_secrets, split_secrets

PLACES = 100
"""Maximum number of activities that a worker runs at once from the shared task queue."""
WORKFLOW = "flowengine.execution"
"""The workflow type of an execution."""
ATTEMPT = "flowengine.attempt"
"""The activity type of an attempt."""
WATCH = "flowengine.watch"
"""The activity type that watches an attempt that an earlier activity has left at work."""
WHO = "flowengine.who"
"""The activity type that returns which worker has begun an activity."""
AT_WORK = "at work"
"""The type of the result of an activity that has left its attempt at work. See `left_at_work`."""
SHARED = "flowengine.shared"
"""The workflow type of what executions share."""
SHARE = "flowengine.share"
"""The activity type that passes on requests of an execution."""
DESCRIBE = "flowengine.describe"
"""The activity type that describes a call to its approvers."""
PLACE = "flowengine.place"
"""The activity type that returns the task queue of a worker's own environments."""
RELEASE = "flowengine.release"
"""The activity type that releases environments of an execution."""
PACK = "flowengine.pack"
"""The activity type that keeps the files of an execution's environments in the object store."""
UNPACK = "flowengine.unpack"
"""The activity type that restores them from there."""
BEGIN = "flowengine.begin"
"""The activity type that starts an execution."""
WANTED = "flowengine.wanted"
"""The activity type that returns whether others wait for locks."""
USE = "flowengine.use"
"""The activity type that uses a grant for all executions of a flow."""
START_DUE = "flowengine.start_due"
"""The activity type that starts the executions of schedules that are due."""
REDUCE = "flowengine.reduce"
"""The activity type that calls a reducer in Python."""
QUEUE = "flowengine"
"""The task queue of executions and attempts."""
OFFER = "flowengine.offer"
"""The activity type that reserves a place at a worker for an attempt with needs."""
MOST_OFFERED = 4
"""How many labels a worker may offer: it has a task queue for each set of them."""
NOT_BEGUN = "NotBegun"
"""Type of the error of an activity whose attempt could not begin at its worker, for now."""
OUTCOMES = ("succeeded", "failed")
"""Types of events that report whether an attempt has taken effect."""
REFUSED = "Refused"
"""Type of the error with which a workflow refuses an update. Its detail is the answer."""
NOT_COMPLETED = "the workflow task with its newest events is not completed yet"
"""With this message, a workflow refuses a query until a worker has taken its newest events."""
RESTING = ("waiting", "stalled")
"""Statuses of open executions that do nothing now."""
MOVED = "moved"
"""Status of a workflow whose execution was moved to another store."""
MOST_BYTES = 1_000_000
"""Maximum bytes of one value without an object store. Temporal refuses a payload of 2 MiB."""
MOST_BYTES_BY_REFERENCE = 64_000_000
"""Maximum bytes of one value with an object store."""

_LOGGED = "flowengine.log"
"""The first detail of a heartbeat with the log of its attempt."""
_REGIONS = Run._fields.index("regions")
_NOTHING = object()
READS = (
    "around",
    "events",
    "find_wait",
    "get_flow",
    "open_waits",
    "place",
    "sent",
    "texts",
    "undelivered",
    "wait",
    "waits",
)
"""Queries. The workflow's own store answers them."""
VOTES = ("send", "decide")
"""Updates that the workflow's own store carries out."""
MOVES = ("leave", "pack")
"""Updates that move the execution to another store."""


def queue_of_needs(labels: Sequence[str]) -> str:
    """Return the task queue of workers that offer some labels.

    Args:
        labels: In alphabetical order.
    """
    return f"{QUEUE}-needs-{'+'.join(labels)}"


def run_as_data(run: Run, *, secrets: bool = True) -> list[Any]:
    """Return a command of the kernel as plain data, in which secrets stay references.

    Args:
        run: The command.
        secrets: Whether its flow has secrets. The search for them is slow in a workflow.
    """
    answers: list[Any] = []
    fields = [*run]
    while fields[-1] == Run._field_defaults.get(Run._fields[len(fields) - 1], _NOTHING):
        del fields[-1]
    if len(fields) > _REGIONS:
        fields[_REGIONS] = [*run.regions]
    return [split_secrets(fields, [], answers) if secrets else fields, answers]


def beat_of(log: Log | None) -> list[Any]:
    """Return the details of the heartbeat of an attempt, with its log."""
    return [_LOGGED, log]


def log_in(beat: Sequence[Any]) -> Log | None:
    """Return the log of an attempt at a heartbeat. Steps may have sent other details."""
    return beat[1] if len(beat) == 2 and beat[0] == _LOGGED else None


def cut(log: Log | None) -> dict[str, Any]:
    """Return the result of an attempt that was interrupted."""
    return {"type": "cut"} if log is None else {"type": "cut", "log": log}


def process_of(identity: str) -> ProcessData | None:
    """Return the process with an identity of `connect`. None: it has another form."""
    pid, _, host = identity.partition("@")
    host = host.partition("#")[0]
    return {"pid": int(pid), "host": host} if pid.isdecimal() and host else None


def left_at_work(key: str, queue: str, place: str, heartbeat: float, who: str) -> dict[str, Any]:
    """Return where an attempt is at work whose activity has left it.

    Args:
        key: Of the attempt, there.
        queue: The task queue of activities that watch it.
        place: The task queue of the environments of its worker.
        heartbeat: Seconds without a heartbeat after which it counts as interrupted.
        who: The identity of its worker.
    """
    named = {"key": key, "queue": queue, "place": place, "heartbeat": heartbeat, "who": who}
    return {"type": AT_WORK, **named}


def run_of(data: list[Any]) -> Run:
    """Return a command of the kernel from plain data."""
    run = Run(*join_secrets(*data))
    return run._replace(regions=tuple(run.regions))


def summary_of(run: Run) -> str:
    """Return the summary of the activities of an attempt, by which users recognize it."""
    return f"{run.address} #{run.attempt}"
