"""Ids of traces and spans. They follow from the execution, the address of a step and its start."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

TRACEPARENT = re.compile(r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}")
"""Header of W3C Trace Context: the ids of the trace and of the parent span."""
LABEL = "traceparent"
"""Label of an execution that continues the trace of its caller."""


def trace_of(execution: str, labels: Mapping[str, str]) -> str:
    """Return the trace of an execution: 32 hexadecimal digits."""
    given = TRACEPARENT.fullmatch(labels.get(LABEL, ""))
    return own_ids(execution)[0] if given is None else given[1]


def own_ids(execution: str) -> tuple[str, str]:
    """Return the trace and the span of an execution that continues no other trace."""
    return _digest(f"trace {execution}")[:32], _digest(f"execution {execution}")[:16]


def attempt_span(execution: str, address: str, at: int) -> str:
    """Return the span of an attempt that began at a time (ms)."""
    return span_of("attempt", execution, address, at)


def span_of(what: str, execution: str, address: str, at: int) -> str:
    """Return the id of a span: 16 hexadecimal digits.

    Args:
        what: `step`, `attempt`, `wait` or `environment NAME`.
        execution: Full id.
        address: Address of the step.
        at: When it began (ms).
    """
    return _digest(f"{what} {execution} {address} {at}")[:16]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
