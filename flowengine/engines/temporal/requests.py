"""Requests of a store in Temporal to a workflow, and their encoding as plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flowengine import errors
from flowengine.journal.records import (
    Append,
    Beginning,
    ClosedWait,
    ExecutionHead,
    ExecutionRecord,
    FlowGrant,
    JournalEntry,
    ListedWait,
    ListPart,
    LockOperation,
    NewExecution,
    NewGrant,
    Outgoing,
    SendResult,
    StoredWaitPage,
    Vote,
    WaitFilter,
)
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
WRITES = ("send", "decide")


def queue_of_needs(labels: Sequence[str]) -> str:
    """Return the task queue of workers that offer some labels.

    Args:
        labels: In alphabetical order.
    """
    return f"{QUEUE}-needs-{'+'.join(labels)}"


def plain(value: Any) -> Any:
    """Return records as lists, including nested records. Maps are not changed."""
    return [plain(part) for part in value] if isinstance(value, tuple | list) else value


def error_as_data(error: errors.FlowEngineError) -> list[Any]:
    """Return an error of a store as data."""
    standing = getattr(error, "standing", None)
    kind = (
        type(standing).__name__
        if isinstance(standing, ExecutionRecord | FlowGrant | ListedWait)
        else None
    )
    shown = plain(standing) if kind else None
    return [type(error).__name__, error.message, hint_as_data(error.hint), kind, shown]


def hint_as_data(hint: str | None) -> Any:
    """Return a hint as data, with its wording on each surface."""
    return [str(hint), hint.cli, hint.http] if isinstance(hint, errors.Hint) else hint


def hint_of(data: Any) -> str | None:
    """Return the hint that `hint_as_data` has returned the data of."""
    return errors.Hint(*data) if isinstance(data, list) else data


def raise_error(data: list[Any]) -> None:
    """Raise the error that a workflow has returned.

    Raises:
        FlowEngineError: That error.
    """
    name, message, hint, kind, shown = data
    error_type: type[errors.FlowEngineError] = getattr(errors, name, errors.StoreError)
    error = error_type(message, hint=hint_of(hint))
    if isinstance(error, errors.Conflict) and kind is not None:
        error.standing = _STANDING[kind](shown)
    raise error


def _wait(data: list[Any]) -> ListedWait:
    return ListedWait(*data)


def _record(data: list[Any]) -> ExecutionRecord:
    return ExecutionRecord(*data)


_STANDING: Mapping[str, Callable[[list[Any]], Any]] = {
    "ExecutionRecord": _record,
    "FlowGrant": lambda data: FlowGrant(*data),
    "ListedWait": _wait,
}


def _vote(given: list[Any]) -> list[Any]:
    by, at, approves, event, gives, uses = given[1]
    return [given[0], Vote(by, at, approves, event, gives and NewGrant(*gives), uses)]


ARGUMENTS: Mapping[str, Callable[[list[Any]], list[Any]]] = {
    "decide": _vote,
    "open_waits": lambda given: [WaitFilter(*given[0]), tuple(given[1]), given[2]],
    "refusal_of_decide": _vote,
    "waits": lambda given: [WaitFilter(*given[0]), *given[1:]],
}
"""Method → function that decodes its arguments. Arguments of other methods are plain data."""
ANSWERS: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("around", "find_wait", "get_flow", "place", "texts"), lambda data: data),
    "open_waits": lambda data: [_wait(one) for one in data],
    "events": lambda data: (data[0], [JournalEntry(*one) for one in data[1]], data[2]),
    "undelivered": lambda data: [Outgoing(*item) for item in data],
    "wait": _wait,
    "waits": lambda data: StoredWaitPage([_wait(one) for one in data[0]], data[1]),
    "send": lambda data: SendResult(*data),
    "decide": lambda data: (data[0], _wait(data[1])),
}
"""Method → function that decodes its result."""


def new_execution(data: list[Any]) -> NewExecution:
    """Return the entry of a new execution in lists."""
    return NewExecution(*data)


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


def append_of(data: list[Any]) -> Append:
    """Return an append from plain data, without claims and for a store without leases."""
    append = Append(*data)
    new = None if append.new is None else NewExecution(*append.new)._replace(owner=None)
    return append._replace(
        epoch=0,
        events=[(at, event) for at, event in append.events],
        new=new,
        head=None if append.head is None else ExecutionHead(*append.head),
        closed=[ClosedWait(*closed) for closed in append.closed],
        keys=[(signal, key) for signal, key in append.keys],
        sent=[Outgoing(*sent) for sent in append.sent],
        claims=(),
        snapshot=None if append.snapshot is None else (append.snapshot[0], append.snapshot[1]),
        moved=None if append.moved is None else (append.moved[0], append.moved[1]),
        lists=[ListPart(*part) for part in append.lists],
        files=(),
    )


def beginning(data: Mapping[str, Any]) -> Beginning:
    """Return an execution to start, from plain data."""
    keys = [(signal, key) for signal, key in data["keys"]]
    claims = [LockOperation(*claim) for claim in data["claims"]]
    return Beginning(data["id"], new_execution(data["new"]), keys, data["event"], claims)


def beginning_as_data(begin: Beginning) -> dict[str, Any]:
    """Return an execution to start as plain data."""
    return {name: plain(value) for name, value in begin._asdict().items()}
