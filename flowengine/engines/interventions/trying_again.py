"""The command that tries again what failed in an execution."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING

from flowengine.engines.attempts.failures import failed_compensations, is_over_call_limit
from flowengine.engines.interventions.retracing import retrace
from flowengine.errors import Conflict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flowengine.engines.host import Host
    from flowengine.kernel.events import ErrorData, Event

LASTING = frozenset({"BudgetExceeded", "ExpressionError"})
"""Types of errors over what a retry keeps: a budget that is used up, values that do not change. So
does the count of a tool's calls."""


def command(
    host: Host, execution: str, hash: str, journal: Sequence[Event], error: ErrorData | None
) -> str:
    """Return the command line that tries again what failed in an execution.

    What was not undone is undone in a fork. An execution that was compensated cannot be retried,
    so a fork starts at the first step that was undone. Anything else is retried, with a changed
    flow if the same one would fail again.

    Args:
        execution: Full id of a failed execution.
        hash: Of the flow that it runs.
        journal: All its events.
        error: What it failed with.
    """
    id = host.store.short_execution(execution)
    if failed_compensations(error):
        return fork_command(id, None, error)
    try:
        retrace(host.flows, hash, journal)
    except Conflict as refused:
        return fork_command(id, refused.hint, error)
    fixed = " --file FILE" if _comes_again(error) else ""
    return f"flowengine retry {id}{fixed}"


def _comes_again(error: ErrorData | None) -> bool:
    """Return whether the same flow must fail with the same error again."""
    while error is not None:
        if error["type"] in LASTING or is_over_call_limit(error):
            return True
        error = error.get("cause")  # those of Python's exceptions have none
    return False


def fork_command(id: str, where: str | None, error: ErrorData | None) -> str:
    """Return the command line that tries again in a fork what cannot be retried.

    Args:
        id: Of the failed execution, as short as people type it.
        where: The step to begin with, as far as that is known.
        error: What the execution failed with. What it has not undone is undone first: a fork at
            the step itself would have its effect twice.
    """
    where = next(iter(failed_compensations(error)), where)
    return f"flowengine fork {id} --at {quote(where) if where else 'STEP'}"
