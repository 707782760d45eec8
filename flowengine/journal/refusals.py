"""Errors that all stores raise with the same messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flowengine.errors import Conflict, Hint, NotFound, UsageError
from flowengine.journal.records import (
    ENDED,
    Append,
    Claimed,
    ExecutionRecord,
    FlowGrant,
    InboxMessage,
)
from flowengine.kernel.notation.times import format_time


def not_free(lock: str, holder: str, standing: object) -> Conflict:
    """Return the conflict for a lock that is not free.

    Args:
        lock: Its name.
        holder: Id of the execution that has claimed it first.
        standing: The record of that execution.
    """
    kind, _, key = lock.partition(":")
    flow = None
    if kind.startswith("concurrency"):
        flow = kind.removeprefix("concurrency ")
        plain, of = f"flow {flow} is at its concurrency limit", f" for {key!r}" if key else ""
        message = f"{plain}{of}: execution {holder} is open"
    else:
        plain = "another execution holds the lock"
        message = f"the lock {key!r} is held by execution {holder}"
    hint = Hint(
        f"see why: flowengine why {holder}", http=f"see why: GET /v1/executions/{holder}/why"
    )
    return Conflict(message, standing=standing, hint=hint, plain=plain, flow=flow)


def check_movable(execution: str, lock: str, claims: Sequence[Claimed]) -> None:
    """Check that an execution can leave its store with a lock, because no other waits for it.

    Args:
        execution: Its id.
        lock: Name of a lock on which it has claims.
        claims: All claims on the lock, in order.

    Raises:
        UsageError: Two executions would have the lock, each in its own store.
    """
    name = lock.partition(":")[2] or lock
    others = [claim for claim in claims if claim.execution != execution]
    has_it = any(claim.held for claim in claims if claim not in others)
    waiting = next((claim.execution for claim in others if not claim.held), None)
    if has_it and waiting is not None:
        raise UsageError(
            f"execution {execution} has the lock {name!r}, for which execution {waiting} waits",
            hint=Hint(f"move it after the other one has ended: flowengine cancel {waiting}"),
        )
    if others and not all(claim.held for claim in claims if claim not in others):
        raise UsageError(
            f"execution {execution} waits for the lock {name!r}, which execution "
            f"{others[0].execution} has",
            hint="move it when it has the lock",
        )


def ended(record: ExecutionRecord) -> Conflict:
    """Return the conflict for an execution that has ended, with how and when."""
    how = "was cancelled" if record.status == "cancelled" else f"has {record.status}"
    at = "" if record.ended_at is None else f" at {format_time(record.ended_at // 1000 * 1000)}"
    return Conflict(f"execution {record.id} {how}{at}", standing=record)


def no_execution(id: str) -> NotFound:
    """Return the error for an unknown execution."""
    hint = Hint("list them: flowengine list", http="list them: GET /v1/executions")
    return NotFound(f"there is no execution {id}", hint=hint)


def no_wait(id: str) -> NotFound:
    """Return the error for an unknown wait."""
    hint = Hint("list them: flowengine approvals list", http="list them: GET /v1/approvals")
    return NotFound(f"there is no wait {id}", hint=hint)


def no_grant(id: str) -> NotFound:
    """Return the error for an unknown grant."""
    return NotFound(f"there is no grant {id}", hint=Hint("list them: flowengine grants"))


def revoked_already(grant: FlowGrant) -> Conflict:
    """Return the conflict for a grant that was revoked before."""
    return Conflict(f"the grant {grant.id} was revoked by {grant.revoked_by}", standing=grant)


def check_statuses(statuses: Sequence[str]) -> None:
    """Refuse to prune open executions.

    Args:
        statuses: The statuses passed to `prune`.

    Raises:
        UsageError: One of them is not the status of an execution that has ended.
    """
    for status in statuses:
        if status not in ENDED:
            raise UsageError(
                f"executions that are {status} cannot be pruned",
                hint=f"cancel them first. Only {', '.join(ENDED)} can be pruned",
            )


def unheard(append: Append, inbox: Iterable[InboxMessage]) -> Conflict | None:
    """Return why an execution does not end yet, or None: it has not taken a message.

    Its sender counts on it.

    Args:
        append: Ends it.
        inbox: The messages that it has not taken before.
    """
    first = next((message for message in inbox if message.number not in append.taken), None)
    if first is None:
        return None
    message = f"execution {append.execution} received a message before it ended"
    return Conflict(message, standing=first)


def not_new(execution: str, standing: ExecutionRecord) -> Conflict:
    """Return the error that an execution cannot be created, because its id exists."""
    return Conflict(
        f"there is an execution {execution} already",
        standing=standing,
        hint="if it has just been started elsewhere with this id, run the same command again",
    )
