"""Errors of steps: the form that a flow sees, and the evidence that is kept of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from traceback import FrameSummary
from types import TracebackType
from typing import Any

from flowengine.errors import FlowEngineError, InputError
from flowengine.kernel.errors import may_retry
from flowengine.kernel.events import ErrorData, Evidence
from flowengine.kernel.graph.compiled import Plain
from flowengine.sdk import StepError, ValidationError
from flowengine.sdk.errors import class_name, public_name, raised, type_of
from flowengine.sdk.texts.exception_text import attribute_of, leaves_of, message_of
from flowengine.sdk.values.plain_values import to_plain

# Evidence of a failed attempt: where its error was raised, and the end of its output.
#
# It is journaled with the failure, for operators. Flows do not see it: error handlers use the
# error's own `data`. Secrets are masked before anything is cut, so that no part of a secret
# remains.

TAIL = 4000
"""Characters to keep of the end of an attempt's output."""
STREAMS = ("stdout", "stderr")
_NO_MESSAGE = "raised without a message"
_FRAMES = 10
_LINE = 300
_CHAIN = 5
_OURS = frozenset(
    {"flowengine", "flowengine_nodes", "flowengine_envs", "flowengine_documents", "asyncio"}
)

Mask = Callable[["Plain"], "Plain"]


def evidence_of(error: BaseException, mask: Mask) -> Evidence:
    """Return the evidence that an exception contains, or empty evidence.

    Args:
        error: The exception that an attempt raised.
        mask: Replaces the values of secrets.
    """
    error = _raised(error)
    evidence: Evidence = {}
    lines = list(_chain(error, mask))
    if lines:
        evidence["traceback"] = lines
    data = attribute_of(error, "data", dict) or {}
    for name in STREAMS:
        # `subprocess.CalledProcessError` has them itself
        output = data.get(name) or attribute_of(error, name, (str, bytes))
        output = output.decode(errors="replace") if isinstance(output, bytes) else output
        if isinstance(output, str) and output.strip():
            evidence[name] = tail(output, mask)  # type: ignore[literal-required]
    return evidence


def tail(text: str, mask: Mask) -> str:
    """Return the end of a text, starting at a line break if there is one."""
    masked = str(mask(text))
    if len(masked) <= TAIL:
        return masked
    end = masked[-TAIL:]
    cut, _, rest = end.partition("\n")
    return f"…\n{rest}" if rest.strip() else f"…{cut}"


def cut(text: str, longest: int, mask: Mask) -> str:
    """Return a text with secrets masked, and cut if it is long."""
    masked = str(mask(text.encode(errors="replace").decode()))
    return masked if len(masked) <= longest else f"{masked[:longest]}…"


def places(error: BaseException, mask: Mask) -> list[str]:
    """Return where an exception was raised, innermost last: the places in the user's code.

    Args:
        error: The exception.
        mask: Replaces the values of secrets.

    Returns:
        `FILE:LINE in FUNCTION: CODE` each. If no code of the user is involved, the places in
        installed packages, or else in Python's own modules.
    """
    frames = _frames(error)
    theirs = [frame for frame in frames if _is_users(frame.filename)] or [
        frame for frame in frames if frame.filename.startswith(_paths("purelib", "platlib"))
    ]
    return [
        cut(f"{frame.filename}:{frame.lineno} in {frame.name}: {frame.line}", _LINE, mask)
        for frame in (theirs or frames)[-_FRAMES:]
    ]


def _frames(error: BaseException) -> list[FrameSummary]:
    """Return the frames of an exception outside the engine."""
    import traceback

    walked = list(traceback.walk_tb(attribute_of(error, "__traceback__", TracebackType)))
    frames = traceback.StackSummary.extract(walked)
    return [
        shown
        for (frame, _line), shown in zip(walked, frames, strict=True)
        if str(frame.f_globals.get("__name__")).partition(".")[0] not in _OURS
        and not shown.filename.startswith("<frozen")
    ]


def _is_users(file: str) -> bool:
    """Return whether a file belongs to the user, not to Python or an installed package."""
    return not file.startswith(_paths("stdlib", "purelib", "platlib"))


@cache
def _paths(*names: str) -> tuple[str, ...]:
    import sysconfig

    paths = sysconfig.get_paths()
    return tuple({f"{paths[name]}{os.sep}" for name in names})


def _chain(error: BaseException, mask: Mask) -> list[str]:
    """Return the places of an exception, and those of members and causes in the user's code."""
    members = leaves_of(error, _CHAIN)
    is_ours = isinstance(error, StepError | FlowEngineError)  # raised deliberately by a step kind
    hides = (is_ours or members) and not _has_users(error)
    lines = [] if hides else places(error, mask)
    for member in members:
        if _has_users(member):
            lines += [f"from {_error_line(member, mask)}", *places(member, mask)]
    seen = {id(error), *map(id, members)}
    for _ in range(_CHAIN):
        before = attribute_of(error, "__cause__", BaseException)
        if before is None and attribute_of(error, "__suppress_context__", bool) is False:
            before = attribute_of(error, "__context__", BaseException)
        if before is None or id(before) in seen:
            break
        if _has_users(before):
            lines += [f"after {_error_line(before, mask)}", *places(before, mask)]
        seen.add(id(before))
        error = before
    return lines


def _has_users(error: BaseException) -> bool:
    return any(_is_users(frame.filename) for frame in _frames(error))


def _error_line(error: BaseException, mask: Mask) -> str:
    text = public_name(message_of(error))
    return cut(" ".join(f"{class_name(error)}: {text}".split()), _LINE, mask)


# Conversion of exceptions raised by steps into the errors that a flow sees.

_LONGEST = 4000
_CAUSES = 3
_MEMBERS = 10
"""Maximum number of members of an exception group that are part of its data."""


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
    data: ErrorData = mask(_as_data(_raised(error), mask, _CAUSES))
    return data


def _raised(error: BaseException) -> BaseException:
    """Return the exception that code raised: no coroutine can raise `StopIteration` as it is."""
    cause = attribute_of(error, "__cause__", (StopIteration, StopAsyncIteration))
    is_replaced = type(error) is RuntimeError and " raised Stop" in message_of(error)
    return cause if cause is not None and is_replaced else raised(error)


def is_over_call_limit(error: ErrorData) -> bool:
    """Return whether a call was not made because it exceeded its tool's `limits.calls`."""
    data = error.get("data")
    return (
        error["type"] == "LimitExceeded" and isinstance(data, dict) and data.get("limit") == "calls"
    )


def _as_data(error: BaseException, mask: Mask, causes: int) -> Plain:
    text = error.with_hint if isinstance(error, FlowEngineError) else None
    message = public_name(message_of(error, text))
    message = cut(message if message.strip() else _NO_MESSAGE, _LONGEST, mask)
    data: dict[str, Any] = {"type": type_of(error), "message": message}
    data["data"] = _data_of(error, mask)
    members: list[Any] = [_as_data(each, mask, 0) for each in leaves_of(error, _MEMBERS)]
    if members and isinstance(data["data"], dict):
        data["data"].setdefault("errors", members)
    retryable = attribute_of(error, "retryable", bool)
    if retryable is not None:
        data["retryable"] = retryable
    elif members and not all(may_retry(each, None) for each in members):
        data["retryable"] = False
    seconds = attribute_of(error, "retry_after", (int, float))
    if seconds is not None and not isinstance(seconds, bool) and seconds >= 0:
        data["retry_after"] = int(min(seconds, 10**9) * 1000)
    if isinstance(error, StepError) and error.source is not None:
        data["source"] = error.source
    cause = attribute_of(error, "__cause__", BaseException)
    if cause is not None and causes:
        data["cause"] = _as_data(cause, mask, causes - 1)
    return data


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
