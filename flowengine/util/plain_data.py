"""Plain data down to its leaves: the texts, numbers and the like in maps and lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any


def leaves(data: Any) -> Iterator[Any]:
    """Yield the leaves of plain data, in order."""
    if isinstance(data, Mapping | list | tuple):
        for part in data.values() if isinstance(data, Mapping) else data:
            yield from leaves(part)
    else:
        yield data


def with_leaves(data: Any, change: Callable[[Any], Any], kind: type = object) -> Any:
    """Return a copy of plain data with its leaves changed.

    Args:
        data: The data. Keys do not change.
        change: Makes another value of a leaf.
        kind: The type of the leaves to change.
    """
    if isinstance(data, Mapping):
        return {key: with_leaves(part, change, kind) for key, part in data.items()}
    if isinstance(data, list | tuple):
        return [with_leaves(part, change, kind) for part in data]
    return change(data) if isinstance(data, kind) else data
