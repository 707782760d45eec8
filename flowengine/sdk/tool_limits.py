"""Parsing of a tool's `limits` in Python programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def largest_result(limits: Any) -> int | None:
    """Return the maximum size of a result in bytes, or None if it is not limited.

    Args:
        limits: `{"output": "64KiB"}`, or None.

    Raises:
        ValueError: It is another value. The message contains the valid form.
    """
    from flowengine.sdk.models import parse_size

    if limits is None:
        return None
    if isinstance(limits, Mapping) and limits.keys() == {"output"}:
        try:
            size = parse_size(limits["output"])
        except ValueError:
            size = None
        if type(size) is int and size > 0:
            return size
    raise ValueError(f"limits {limits!r}: must be {{'output': SIZE}} with a size such as '64KiB'")
