"""The outcome of an attempt: a value or an error, and the event that records it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from flowengine.engines.attempts.serialization import StoredValue
from flowengine.kernel.commands import Run
from flowengine.kernel.events import ErrorData, Event, Evidence, Log, Opening, Succeeded
from flowengine.sdk.steps.context import ExecutionContext
from flowengine.sdk.steps.step_kind import Need

ASKING = frozenset({"NeedsApproval", "NeedsInput", "ToolChanged"})
"""Errors of attempts that may be asked about before the call is made again."""
Ran = Literal["no", "maybe"]


class AttemptFailed(Exception):
    """An attempt failed.

    Args:
        error: The content of the `failed` event, without `step` and `attempt`.
        ran: If one of its environments is lost, whether it took effect: see the event `lost`.
        evidence: Evidence of the failure, for operators.

    Attributes:
        openings: The environments that the attempt was the first to use.
        log: The log of the attempt. None: nothing.
    """

    def __init__(
        self, error: ErrorData, ran: Ran | None = None, evidence: Evidence | None = None
    ) -> None:
        super().__init__(f"{error['type']}: {error['message']}")
        self.error = error
        self.ran = ran
        self.evidence = evidence
        self.openings: Sequence[Opening] = ()
        self.log: Log | None = None


QuickCall = Callable[["ExecutionContext", Run], "StoredValue"]
Patience = Callable[[], float]
"""Returns the seconds to wait for the function of a withdrawn attempt."""


def succeeded(
    run: Run, value: Any, now: int, openings: Sequence[Opening] = (), log: Log | None = None
) -> Event:
    """Return the event of a successful attempt."""
    event: Succeeded = {
        "type": "succeeded",
        "at": now,
        "unit": run.unit,
        "attempt": run.attempt,
        "value": value,
    }
    if openings:
        event["opened"] = [*openings]
    if log is not None:
        event["log"] = log
    return event


def measured(run: Run, needs: Mapping[str, Need], now: int) -> Event:
    """Return the event with the amounts that an attempt may use, before it begins."""
    return {
        "type": "measured",
        "at": now,
        "unit": run.unit,
        "attempt": run.attempt,
        "needs": {meter: [float(amount) for amount in need] for meter, need in needs.items()},
    }


def failed(run: Run, failure: AttemptFailed, now: int) -> Event:
    """Return the event of an attempt that failed or lost its environment."""
    event: dict[str, Any] = {
        "type": "failed",
        "at": now,
        "unit": run.unit,
        "attempt": run.attempt,
        "error": failure.error,
    }
    if failure.ran is not None:
        event |= {"type": "lost", "ran": failure.ran}
    if failure.evidence:
        event["evidence"] = failure.evidence
    if failure.openings:
        event["opened"] = [*failure.openings]
    if failure.log is not None:
        event["log"] = failure.log
    return event  # type: ignore[return-value] # built key by key
