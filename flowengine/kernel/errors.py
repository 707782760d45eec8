"""Errors of the language as data: their types, and which of them can be retried.

See docs/language.md: Errors.
"""

from __future__ import annotations

from flowengine.kernel.events import ErrorData
from flowengine.kernel.graph.compiled import EvaluationError, Plain
from flowengine.kernel.graph.specs import HandlerSpec

RETRYABLE = frozenset(
    {
        "Timeout",
        "RateLimited",
        "ModelError",
        "ToolError",
        "EnvironmentStartFailed",
        "EnvironmentLost",
        "EnvironmentBusy",
    }
)
"""Engine error types that are retried by default. `HttpError` sets `retryable` itself."""

FINAL = frozenset(
    {
        "HttpError",
        "ContextWindowExceeded",
        "ExitCode",
        "OutOfMemory",
        "ValidationError",
        "Refused",
        "UrlRefused",
        "EnvironmentUnavailable",
        "EnvironmentClosed",
        "ImageUnavailable",
        "PathEscape",
        "NotAFile",
        "NotResolved",
        "MaxTurns",
        "BudgetExceeded",
        "Rejected",
        "Expired",
        "Deadline",
        "LoopLimit",
        "LockCycle",
        "LimitExceeded",
        "NoBranch",
        "TooFew",
        "StateConflict",
        "MapFailed",
        "CompensationFailed",
        "ExpressionError",
        "SecretMissing",
        "Cancelled",
        "Stopped",
    }
)
"""Engine error types that are not retried by default."""


MOST_CAUSES = 20
"""Maximum number of causes of an error."""


class StepFailure(Exception):
    """A failure of a step inside the kernel. It is converted to data before it leaves the step.

    Args:
        type: Name of the error.
        message: Text for users.
        data: Details for handlers.
        retryable: Whether it may be retried. Default: as its type implies.
    """

    def __init__(
        self, type: str, message: str, data: Plain = None, retryable: bool | None = None
    ) -> None:
        super().__init__(message)
        self.type = type
        self.message = message
        self.data = data
        self.retryable = retryable


def as_error(failure: StepFailure | EvaluationError, address: str, attempt: int = 1) -> ErrorData:
    """Return a failure as data.

    Args:
        failure: The exception.
        address: Address of the activation that failed.
        attempt: Number of the attempt that failed.

    Returns:
        The complete error.
    """
    if isinstance(failure, EvaluationError):
        failure = StepFailure("ExpressionError", failure.message, failure.data)
    error: ErrorData = {
        "type": failure.type,
        "message": failure.message,
        "data": failure.data,
        "step": address,
        "attempt": attempt,
        "cause": None,
    }
    if failure.retryable is not None:
        error["retryable"] = failure.retryable
    return error


def caused(error: ErrorData, cause: ErrorData | None) -> ErrorData:
    """Return an error with its cause.

    With each subflow and handler that an error passes, it gets another cause. Those in between are
    left out: kept are the error and the first causes, which are the most informative.
    """
    causes, last = 0, cause
    while isinstance(last, dict):
        causes, last = causes + 1, last.get("cause")
    for _ in range(causes - MOST_CAUSES):
        cause = cause and cause.get("cause")
    return {**error, "cause": cause}


def matches(type: str, patterns: list[str]) -> bool:
    """Return whether a pattern matches an error type: its name, `Prefix.*`, or `*`."""
    for pattern in patterns:
        if pattern == type or (pattern.endswith("*") and type.startswith(pattern[:-1])):
            return True
    return False


def is_named(handlers: list[HandlerSpec], type: str) -> bool:
    """Return whether a handler names an error type, rather than only matching all of them."""
    return any(
        matches(type, [pattern for pattern in spec.get("types") or () if pattern != "*"])
        for spec in handlers
    )


def may_retry(error: ErrorData, only: list[str] | None) -> bool:
    """Return whether `retry` permits another attempt after an error (docs/language.md: retry).

    Args:
        error: The error of the attempt.
        only: The types that are retried, if declared. Naming a type makes it retryable.

    Returns:
        True if the error's type permits another attempt.
    """
    type = error["type"]
    if type == "Cancelled":
        return False
    if only:
        return matches(type, only)
    if "retryable" in error:
        return error["retryable"]
    return type in RETRYABLE or type not in FINAL


def fits(handler: HandlerSpec, error: ErrorData) -> bool:
    """Return whether a handler matches an error's type. `Cancelled` must be named explicitly."""
    types = handler.get("types")
    if types is None:
        return error["type"] != "Cancelled"
    return matches(error["type"], types)
