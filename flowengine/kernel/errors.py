"""Errors of the language as data: their types, and which may be tried again.

See docs/language.md: Errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.kernel.graph.compiled import EvaluationError, Plain

if TYPE_CHECKING:
    from flowengine.kernel.events import ErrorData
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
"""Types of the engine that may be tried again by default; `HttpError` says it itself."""

FINAL = frozenset(
    {
        "HttpError",
        "ContextWindowExceeded",
        "ExitCode",
        "OutOfMemory",
        "ValidationError",
        "Refused",
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
    }
)
"""Types of the engine that are not tried again by default."""


class StepFailure(Exception):
    """Raised inside the kernel where a step fails; becomes data at the step's door.

    Args:
        type: Name of the error.
        message: What happened.
        data: What handlers may need.
        retryable: Whether it may be tried again; by default what the type says.
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
        failure: What was raised.
        address: Of the activation that failed.
        attempt: Which attempt failed.

    Returns:
        The error, complete.
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


def matches(type: str, patterns: list[str]) -> bool:
    """Return whether an error's type is named: exactly, by `Prefix.*`, or by `*`."""
    for pattern in patterns:
        if pattern == type or (pattern.endswith("*") and type.startswith(pattern[:-1])):
            return True
    return False


def is_named(handlers: list[HandlerSpec], type: str) -> bool:
    """Return whether a handler names a type of error, and does not only take whatever comes."""
    return any(
        matches(type, [pattern for pattern in spec.get("types") or () if pattern != "*"])
        for spec in handlers
    )


def may_retry(error: ErrorData, only: list[str] | None, exclude: list[str] | None) -> bool:
    """Return whether `retry` may try again after an error (docs/language.md: retry).

    Args:
        error: What the attempt ended with.
        only: The types that are tried again, if said; naming a type makes it retryable.
        exclude: The types that are not.

    Returns:
        True if another attempt is allowed by type.
    """
    type = error["type"]
    if type == "Cancelled" or (exclude and matches(type, exclude)):
        return False
    if only:
        return matches(type, only)
    if "retryable" in error:
        return error["retryable"]
    return type in RETRYABLE or type not in FINAL


def fits(handler: HandlerSpec, error: ErrorData) -> bool:
    """Return whether a handler is for this type of error; `Cancelled` has to be named."""
    types = handler.get("types")
    if types is None:
        return error["type"] != "Cancelled"
    return matches(error["type"], types)
