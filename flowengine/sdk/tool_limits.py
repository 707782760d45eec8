"""`limits` of a tool, as Python programs say them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def largest_result(limits: Any) -> int | None:
    """Return how large a result may be, in bytes; None: nothing is said.

    Args:
        limits: `{"output": "64KiB"}`, or None.

    Raises:
        ValueError: It is something else; the message is what has to be written.
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
    raise ValueError(f"limits {limits!r}: say {{'output': SIZE}} with a size such as '64KiB'")
