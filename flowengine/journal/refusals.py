"""Errors that all stores raise with the same messages."""

from __future__ import annotations

from collections.abc import Sequence

from flowengine.errors import Conflict, Hint, NotFound, UsageError
from flowengine.journal.records import ENDED, FlowGrant


def not_free(lock: str, holder: str, standing: object) -> Conflict:
    """Return the conflict for a lock that is not free.

    Args:
        lock: Its name.
        holder: Id of the execution that has claimed it first.
        standing: The record of that execution.
    """
    kind, _, key = lock.partition(":")
    if kind.startswith("concurrency"):
        flow = kind.removeprefix("concurrency ")
        of = f" for {key!r}" if key else ""
        message = f"flow {flow} is at its concurrency limit{of}: execution {holder} is open"
    else:
        message = f"the lock {key!r} is held by execution {holder}"
    hint = Hint(
        f"see why: flowengine why {holder}", http=f"see why: GET /v1/executions/{holder}/why"
    )
    return Conflict(message, standing=standing, hint=hint)


def ended(execution: str, status: str, standing: object) -> Conflict:
    """Return the conflict for an execution that has ended.

    Args:
        execution: Its id.
        status: Its final status.
        standing: Its record.
    """
    how = "was cancelled" if status == "cancelled" else f"has {status}"
    return Conflict(f"execution {execution} {how}", standing=standing)


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
    return NotFound(f"there is no grant {id}", hint=Hint("list them: flowengine grants list"))


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
                hint=f"cancel them first; {', '.join(ENDED)} can be pruned",
            )
