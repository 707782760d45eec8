"""Log events about the work of agents: fixed fields, plain data, no secrets."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from flowengine.kernel.graph.compiled import Plain

Kind = Literal[
    "tool_call", "agent_handoff", "llm_call", "retry", "termination", "context_clash", "note"
]

_SECRET_NAMES = re.compile(
    r"(authorization|cookie|password|passwd|secret|api[-_]?key|access[-_]?key|private[-_]?key|"
    r"(^|[-_])token$|credential)",
    re.IGNORECASE,
)
MASK = "***"


@dataclass(frozen=True)
class LogEvent:
    """One event."""

    event: Kind
    text: str
    """A description without arguments."""
    agent: str = ""
    execution: str = ""
    step: str = ""
    """Address of the activation."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """`tool_call`: tool, arguments, status. `agent_handoff`: to. `llm_call`: model, input_tokens,
    output_tokens, cost_usd, estimated. `retry`: attempt, error. `termination`: termination, reason.
    `context_clash`: key, calls."""
    level: int = 20
    time: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="milliseconds"))


def masked(event: LogEvent, mask: Callable[[Plain], Plain]) -> LogEvent:
    """Return an event without secrets.

    Args:
        event: The event.
        mask: Replaces the values of secrets that this process has read.
    """
    clean = mask([event.text, _plain(event.data)])
    return LogEvent(
        event.event, clean[0], event.agent, event.execution, event.step, clean[1], event.level,
        event.time,
    )  # fmt: skip


def _plain(value: Any, depth: int = 20) -> Any:
    """Return a value as JSON data, masking everything under the name of a secret."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value
    if depth and isinstance(value, Mapping):
        return {
            _text(key): MASK if _SECRET_NAMES.search(_text(key)) else _plain(entry, depth - 1)
            for key, entry in value.items()
        }
    if depth and isinstance(value, list | tuple | set | frozenset):
        return [_plain(item, depth - 1) for item in value]
    return f"<{type(value).__name__}>"  # an object: its repr could contain a secret


def _text(key: Any) -> str:
    return key if isinstance(key, str) else f"<{type(key).__name__}>"
