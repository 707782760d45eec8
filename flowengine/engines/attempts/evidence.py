"""Evidence of a failed attempt: where its error was raised, and the end of its output.

It is journaled with the failure, for operators. Flows do not see it: error handlers use the error's
own `data`. Secrets are masked before anything is cut, so that no part of a secret remains.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from flowengine.errors import FlowEngineError
from flowengine.sdk.exception_text import leaves_of, message_of

if TYPE_CHECKING:
    from traceback import FrameSummary

    from flowengine.kernel.events import Evidence
    from flowengine.kernel.graph.compiled import Plain

TAIL = 4000
"""Characters to keep of the end of an attempt's output."""
STREAMS = ("stdout", "stderr")
_FRAMES = 10
_LINE = 300
_CHAIN = 5
_OURS = frozenset({"flowengine", "flowengine_nodes", "flowengine_envs", "asyncio"})

Mask = Callable[["Plain"], "Plain"]


def evidence_of(error: BaseException, mask: Mask) -> Evidence:
    """Return the evidence that an exception contains, or empty evidence.

    Args:
        error: The exception that an attempt raised.
        mask: Replaces the values of secrets.
    """
    evidence: Evidence = {}
    lines = list(_chain(error, mask))
    if lines:
        evidence["traceback"] = lines
    data = getattr(error, "data", None)
    if isinstance(data, dict):
        for name in STREAMS:
            if isinstance(data.get(name), str) and data[name].strip():
                evidence[name] = tail(data[name], mask)  # type: ignore[literal-required]
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
        frame for frame in frames if _is_package(frame.filename)
    ]
    return [
        cut(f"{frame.filename}:{frame.lineno} in {frame.name}: {frame.line}", _LINE, mask)
        for frame in (theirs or frames)[-_FRAMES:]
    ]


def _frames(error: BaseException) -> list[FrameSummary]:
    """Return the frames of an exception outside the engine."""
    import traceback

    walked = list(traceback.walk_tb(error.__traceback__))
    frames = traceback.StackSummary.extract(walked)
    return [
        shown
        for (frame, _line), shown in zip(walked, frames, strict=True)
        if str(frame.f_globals.get("__name__")).partition(".")[0] not in _OURS
        and not shown.filename.startswith("<frozen")
    ]


def _is_users(file: str) -> bool:
    """Return whether a file belongs to the user, not to Python or an installed package."""
    return not file.startswith(_installed())


def _is_package(file: str) -> bool:
    """Return whether a file belongs to an installed package, such as the user's project."""
    return file.startswith(_paths("purelib", "platlib"))


def _installed() -> tuple[str, ...]:
    return _paths("stdlib", "purelib", "platlib")


@cache
def _paths(*names: str) -> tuple[str, ...]:
    import sysconfig

    paths = sysconfig.get_paths()
    return tuple({f"{paths[name]}{os.sep}" for name in names})


def _chain(error: BaseException, mask: Mask) -> list[str]:
    """Return the places of an exception, and those of members and causes in the user's code."""
    members = leaves_of(error, _CHAIN)
    lines = [] if _is_told(error) or (members and not _has_users(error)) else places(error, mask)
    for member in members:
        if _has_users(member):
            lines += [f"from {_error_line(member, mask)}", *places(member, mask)]
    seen = {id(error), *map(id, members)}
    for _ in range(_CHAIN):
        before = error.__cause__
        if before is None and not error.__suppress_context__:
            before = error.__context__
        if before is None or id(before) in seen:
            break
        if _has_users(before):
            lines += [f"after {_error_line(before, mask)}", *places(before, mask)]
        seen.add(id(before))
        error = before
    return lines


def _is_told(error: BaseException) -> bool:
    """Return whether a step kind raised it deliberately, outside the user's code."""
    from flowengine.sdk import StepError

    return isinstance(error, StepError | FlowEngineError) and not _has_users(error)


def _has_users(error: BaseException) -> bool:
    return any(_is_users(frame.filename) for frame in _frames(error))


def _error_line(error: BaseException, mask: Mask) -> str:
    """Return an exception on one line."""
    from flowengine.python_modules import public_name

    module = public_name(type(error).__module__)
    name = (
        type(error).__qualname__ if module == "builtins" else f"{module}.{type(error).__qualname__}"
    )
    text = public_name(message_of(error))
    return cut(" ".join(f"{name}: {text}".split()), _LINE, mask)
