"""Parts of an execution beside its state: timers, shared locks, handed files, notices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import heappop, heappush
from typing import Any, NamedTuple

from flowengine.journal.encoding import pack
from flowengine.journal.records import LockOperation as StoredClaim
from flowengine.journal.records import Outgoing
from flowengine.kernel import Graph
from flowengine.kernel.commands import Claim, GiveBack, Notify, SetTimer
from flowengine.kernel.events import Event
from flowengine.kernel.notation.addresses import wait_id
from flowengine.kernel.notation.times import format_time
from flowengine.kernel.state.records import State
from flowengine.kernel.view import is_shared
from flowengine.sdk.texts.sizes import size_text

# The timers of an execution: which are set, which is due next, which are worth staying for.

MOVES_NOTHING = frozenset({"remind", "escalate"})
"""Reasons of recurring timers, for which no process stays."""


class Timers:
    """The timers of one execution."""

    def __init__(self) -> None:
        self._set: dict[int, SetTimer] = {}
        self._pauses: set[int] = set()
        self._heap: list[tuple[int, int]] = []
        """(due, number) of each. A cleared timer stays in the heap until it reaches the top."""

    def set(self, timer: SetTimer) -> None:
        self._set[timer.timer] = timer
        if timer.why == "pause":
            self._pauses.add(timer.timer)
        heappush(self._heap, (timer.due, timer.timer))

    def clear(self, number: int) -> bool:
        """Clear an obsolete or fired timer, and return whether it was set."""
        self._pauses.discard(number)
        return self._set.pop(number, None) is not None

    def clear_all(self) -> None:
        self._set.clear()
        self._pauses.clear()
        self._heap.clear()

    def next(self) -> int | None:
        """Return when the next timer is due (ms), or None."""
        heap = self._heap
        while heap and heap[0][1] not in self._set:
            heappop(heap)
        return heap[0][0] if heap else None

    def next_number(self) -> int:
        """Return the number of the next timer. There must be one."""
        self.next()
        return self._heap[0][1]

    def due(self, now: int) -> list[tuple[int, int]]:
        """Return (due, number) of the due timers, ordered by time. Each is returned only once."""
        found = []
        while (due := self.next()) is not None and due <= now:
            found.append(heappop(self._heap))
        return found

    def stays(self, until: int, pauses: int | None) -> bool:
        """Return whether to stay for a timer.

        Args:
            until: It is due by then.
            pauses: The same for the pauses of `retry` and `loop.every`. None: for all.
        """
        if self._pauses and pauses is None:
            return True
        first = self.next()
        if first is None or first > max(until, pauses or 0):
            return False
        return any(
            timer.due <= (pauses or until if timer.why == "pause" else until)
            and timer.why not in MOVES_NOTHING
            for timer in self._set.values()
        )


# Kept files that were handed to an execution, which it may read besides its own.
#
# A file is handed over by naming it - `{path, name, size, sha256}` - in inputs, a message, a
# decision or state written by an operator. An execution that sends a message can only hand over
# files that it may read itself. Text from a model may name any file, but gives access to none.

HANDING = frozenset({"started", "message", "decided", "state"})
"""Types of events with values from outside an execution."""
_PARTS = ("inputs", "data", "form", "edits", "value", "values")
_KEYS = {"path", "name", "size", "sha256"}
_EXECUTION = "execution:"


class HandedFile(NamedTuple):
    """A file named by a sender."""

    sha256: str
    sender: str | None
    """The execution that must be able to read it. None: it is enough that any execution keeps
    it."""


def handed(event: Event) -> list[HandedFile]:
    """Return the files that an event names.

    Args:
        event: An event of one of the types above.
    """
    data: Any = event
    sender = _sender(data)
    digests = {digest for part in _PARTS if part in data for digest in _digests(data[part])}
    return [HandedFile(digest, sender) for digest in sorted(digests)]


def _sender(event: Any) -> str | None:
    """Return the execution that sent an event. None: it comes from outside."""
    if event["type"] == "started":
        by = event.get("message", {}).get("sent_by") or ""
        parent = event["execution"]["parent"]
        if parent:
            return str(parent)
    else:
        by = event.get("by") or ""
    return by.removeprefix(_EXECUTION) if by.startswith(_EXECUTION) else None


def _digests(value: Any) -> Iterator[str]:
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            if part.keys() == _KEYS and isinstance(part["sha256"], str):
                yield part["sha256"]
            else:
                pending.extend(part.values())
        elif isinstance(part, list):
            pending.extend(part)


# Locks that executions share: conversion of commands into claims of the store.
#
# See docs/language.md: lock, Budgets.


def claim_of(execution: str, command: Claim | GiveBack, now: int) -> StoredClaim:
    """Return a command as a claim for the store, with the events that follow from it.

    Args:
        execution: Id of the execution that claims.
        command: The kernel's command.
        now: The time (ms).

    Returns:
        The claim.
    """
    if isinstance(command, GiveBack):
        return StoredClaim(command.lock, command.unit, then="give", amounts=command.used)
    granted = {"type": "granted", "at": now, "lock": command.lock, "unit": command.unit}
    cancel = b""
    if command.then == "cancel":
        reason = f"execution {execution} of the same flow took its place (concurrency)"
        by = f"execution:{execution}"
        cancel = pack({"type": "cancel", "at": now, "reason": reason, "by": by, "now": False})
    then: Any = "reject" if command.then == "skip" else command.then
    return StoredClaim(
        command.lock, command.unit, command.permits, then, pack(granted), cancel, command.needs
    )


def claims_in(execution: str, graph: Graph, state: State) -> Iterator[StoredClaim]:
    """Yield the claims that an execution needs to continue from a state, in a retry or a fork.

    Locks held in that state must be free, otherwise it cannot continue. Locks that it waited for
    are queued for again.

    Args:
        execution: Its id.
        graph: Its flow.
        state: The state.

    Yields:
        Claims.
    """
    wanted = []
    waiting = state.get("claims", {})
    if "bound" in state:
        name, most, then = state["bound"]
        wanted.append(Claim(name, 0, most, _again(then, 0 in waiting)))
    for number, unit in state["units"].items():
        if is_shared(unit.get("lock", "0")):
            lock = graph.node(state["acts"][unit["act"]]["step"]).lock
            permits = 1 if lock is None else lock["permits"]
            how = _again("reject", number in waiting)
            wanted.append(Claim(unit["lock"], number, permits, how))
    for number, reservations in state.get("reserved", {}).items():
        for name, held in reservations.items():
            if waiting.get(number) == name:
                wanted.append(Claim(name, number, 1, "queue", held["needs"]))
    yield from (claim_of(execution, claim, state["now"]) for claim in wanted)


def _again(then: str, waits: bool) -> str:
    """Return the mode in which a lock is claimed again."""
    return "queue" if waits else "cancel" if then == "cancel" else "reject"


# Notifications about approvals and the end, as they leave their execution.
#
# See docs/language/approvals.md: Notifications.
#
# They are stored together with the event that causes them, like messages to other executions, so a
# crash loses none. `messages.py` sends them.

RECEIVER = "notify"
"""The receiver of an outgoing notification."""
LARGEST = 64 * 1024
"""Maximum size of the content of a question, or of outputs, in bytes of msgpack."""
_INHERITED = ("labels", "workdir", "started_by", "forked_by")
_SHOWN = (
    "title",
    "body",
    "subject",
    "tool",
    "environment",
    "opens",
    "batch",
    "assignees",
    "choices",
)


def outgoing(
    execution: str,
    flow: str,
    hash: str,
    state: State,
    record: Mapping[str, Any] | None,
    notice: Notify,
) -> Iterator[Outgoing]:
    """Yield the stored record for each flow that sends a notification.

    Args:
        execution: The execution that notifies.
        flow: Id of its flow.
        hash: The form of its flow.
        state: Its state.
        record: The record of the approval. None: the execution has ended.
        notice: The kernel's command.
    """
    parent = state["execution"]
    about: dict[str, Any]
    if record is None:
        about = {"execution": _ended(execution, state)}
    else:
        about = {"wait": notice.wait, "approval": _approval(execution, flow, record, notice)}
    for sender in notice.flows:
        event = {
            "flow": sender,
            "hash": hash,
            "number": notice.number,
            "parent": {
                "id": execution,
                "identity": parent["identity"],
                **{key: parent[key] for key in _INHERITED if key in parent},
            },
            **about,
        }
        yield Outgoing(0, execution, RECEIVER, state["now"], pack(event))


def _ended(execution: str, state: State) -> dict[str, Any]:
    """Return how an execution ended as the tool receives it, except for its link."""
    own: Any = state["execution"]
    error: Any = state["error"]
    if error is not None:
        *_, place = ["", *failed_at(error)]
        error = {"type": error["type"], "message": error["message"][: LARGEST // 8]}
        error |= {"step": place} if place else {}
    outputs = state["outputs"] if len(pack(state["outputs"])) <= LARGEST else None
    return {
        "id": execution,
        **{key: own[key] for key in ("flow", "version", "labels", "started_by", "started_at")},
        "ended_at": format_time(state["now"]),
        "status": state["status"],
        "outputs": outputs,
        "error": error,
    }


def failed_at(error: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield where an error came from: first where it was reported, then its causes."""
    while error:
        if error.get("step"):
            yield error["step"]
        data = error.get("data")
        items = data.get("failed") if isinstance(data, Mapping) else None
        if error["type"] == "MapFailed" and isinstance(items, list) and items:
            error = items[0]["error"]
        else:
            error = error.get("cause")


def _approval(
    execution: str, flow: str, record: Mapping[str, Any], notice: Notify
) -> dict[str, Any]:
    """Return the question as the tool receives it, except for its link."""
    shown = {key: record.get(key) for key in _SHOWN}
    if len(pack(shown)) > LARGEST:
        shown |= {"body": None, "subject": None}
        shown["title"] = str(shown["title"])[: LARGEST // 8]
    return {
        "id": wait_id(execution, notice.wait),
        "execution": execution,
        "flow": flow,
        "step": record["step"],
        "why": notice.why,
        "number": notice.number,
        "to": notice.to,
        "since": format_time(record["since"]),
        "due": format_time(record["due"]) if "due" in record else None,
        **shown,
    }


# Outcomes of attempts that exceed `limits.stored`.

_SHORT = 1000
"""Characters of an error message that are kept."""


def bounded(event: Event, size: int, stored: int, most: int) -> Event:
    """Return the event that replaces the outcome of an attempt that exceeds `limits.stored`.

    A result becomes an error. Of an error, its type and the beginning of its message are kept.

    Args:
        event: The outcome. Others are returned unchanged.
        size: Its bytes.
        stored: Bytes of all earlier events.
        most: The limit.
    """
    about: Any = event
    error: dict[str, Any]
    if event["type"] == "succeeded":
        message = (
            f"its result was dropped: it needs {size_text(size)}, and the execution has stored "
            f"{size_text(stored)} of the {size_text(most)} that limits.stored allows. Keep large "
            "values as files, or raise the limit and retry with the changed flow (retry --flow)"
        )
        data = {"limit": "stored", "value": most, "stored": stored, "size": size}
        error = {"type": "LimitExceeded", "message": message, "data": data, "retryable": False}
    elif event["type"] in ("failed", "lost"):
        error = {key: about["error"][key] for key in _KEPT if key in about["error"]}
        error["message"] = error["message"][:_SHORT]
    else:
        return event
    kept = {key: value for key, value in about.items() if key not in ("value", "log", "evidence")}
    if event["type"] == "succeeded":
        kept["type"] = "failed"
    return {**kept, "error": error}  # type: ignore[return-value]


_KEPT = ("type", "message", "retryable", "retry_after", "source")


def has_expired(wait: Mapping[str, Any], now: int) -> bool:
    """Return whether the time of a wait is over, even if no process has closed it yet.

    Later decisions of approvers, grants and programs are refused.

    Args:
        wait: The wait's record.
        now: The time (ms).
    """
    due = wait.get("due")
    return due is not None and due <= now
