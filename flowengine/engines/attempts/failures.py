"""Conversion of exceptions raised by steps into the errors that a flow sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.engines.attempts.evidence import Mask, cut, places
from flowengine.errors import FlowEngineError, InputError
from flowengine.kernel.errors import may_retry
from flowengine.python_modules import public_name
from flowengine.sdk import StepError, ValidationError
from flowengine.sdk.plain_values import to_plain

if TYPE_CHECKING:
    from flowengine.kernel.events import ErrorData
    from flowengine.kernel.graph.compiled import Plain

_LONGEST = 4000
_CAUSES = 3
_MEMBERS = 10
"""Maximum number of members of an exception group that are part of its data."""
COMPENSATION = "/compensate"
"""Ends the address of the compensation of a step."""


def failure_of(error: BaseException, mask: Mask) -> ErrorData:
    """Return an exception as the error of an attempt, secrets masked.

    Errors of the language keep their type and data. Any other exception has its `module.Class` as
    type (built-in exceptions only their name), can define `retryable`, and has the places in the
    author's code as data.

    Args:
        error: The exception.
        mask: Replaces the values of secrets.

    Returns:
        The error, without `step` and `attempt`.
    """
    data: ErrorData = mask(_as_data(error, mask, _CAUSES))
    return data


def not_undone(error: ErrorData | None) -> list[str]:
    """Return the addresses of the steps whose compensation failed, if the error is about that."""
    return [address.removesuffix(COMPENSATION) for address in failed_compensations(error)]


def is_over_call_limit(error: ErrorData) -> bool:
    """Return whether a call was not made because it exceeded its tool's `limits.calls`."""
    data = error.get("data")
    return (
        error["type"] == "LimitExceeded" and isinstance(data, dict) and data.get("limit") == "calls"
    )


def failed_compensations(error: ErrorData | None) -> list[str]:
    """Return the addresses of the compensations that failed, if the error reports that.

    The error may belong to items of a map, or be the cause of another error.
    """
    if not isinstance(error, dict):
        return []
    lines: list[str] = []
    if error.get("type") == "CompensationFailed":
        lines = [
            str(failure["step"]) for failure in _listed(error, "failures") if "step" in failure
        ]
    if error.get("type") == "MapFailed":
        for item in _listed(error, "failed"):
            lines += failed_compensations(item.get("error"))
    return list(dict.fromkeys([*lines, *failed_compensations(error.get("cause"))]))


def _listed(error: ErrorData, key: str) -> list[dict[str, Any]]:
    """Return the maps in a list of an error's data, which may have any shape if set by a tool."""
    data: Any = error.get("data")
    listed = data.get(key) if isinstance(data, dict) else None
    return (
        [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    )


def _as_data(error: BaseException, mask: Mask, causes: int) -> Plain:
    from flowengine.sdk.exception_text import leaves_of

    data: dict[str, Any] = {"type": _type_of(error), "message": _message_of(error, mask)}
    data["data"] = _data_of(error, mask)
    members: list[Any] = [_as_data(each, mask, 0) for each in leaves_of(error, _MEMBERS)]
    if members and isinstance(data["data"], dict):
        data["data"].setdefault("errors", members)
    retryable = getattr(error, "retryable", None)
    if isinstance(retryable, bool):
        data["retryable"] = retryable
    elif members and not all(may_retry(each, None, None) for each in members):
        data["retryable"] = False
    seconds = getattr(error, "retry_after", None)
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds >= 0:
        data["retry_after"] = int(min(seconds, 10**9) * 1000)
    if isinstance(error, StepError) and error.source is not None:
        data["source"] = error.source
    if error.__cause__ is not None and causes:
        data["cause"] = _as_data(error.__cause__, mask, causes - 1)
    return data


def _type_of(error: BaseException) -> str:
    if isinstance(error, StepError) and error.name:
        return error.name
    if isinstance(error, InputError):
        return "ValidationError"
    kind = type(error)
    if isinstance(error, FlowEngineError):
        return kind.__name__
    module = public_name(kind.__module__)
    return kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"


def _message_of(error: BaseException, mask: Mask) -> str:
    from flowengine.sdk.exception_text import message_of

    text = error.with_hint if isinstance(error, FlowEngineError) else None
    return cut(public_name(message_of(error, text)) or type(error).__name__, _LONGEST, mask)


def _data_of(error: BaseException, mask: Mask) -> Plain:
    if isinstance(error, InputError):
        return {"field": error.field}
    if isinstance(error, FlowEngineError):
        return None
    if isinstance(error, StepError):
        try:
            return to_plain(error.data)
        except ValidationError:
            return {"repr": cut(repr(error.data), _LONGEST, mask)}
    return {"traceback": places(error, mask)}
