"""Changes of values, as stored for the results of reducers written in Python."""

from __future__ import annotations

from typing import Any


def change(old: Any, new: Any) -> dict[str, Any]:
    """Return a new value as an addition to an old list or map, or else as a whole."""
    if type(old) is list and type(new) is list and _alike(new[: len(old)], old):
        return {"append": new[len(old) :]}
    if type(old) is dict and type(new) is dict:
        changed = {k: v for k, v in new.items() if k not in old or not _alike(v, old[k])}
        if list({**old, **changed}) == list(new):
            return {"merge": changed}
    return {"value": new}


def changed(old: Any, change: dict[str, Any]) -> Any:
    """Return the value of a stored change.

    Raises:
        ValueError: The function raised this error, and the change is `{"error": MESSAGE}`.
    """
    if "error" in change:
        raise ValueError(change["error"])
    if "append" in change:
        return [*old, *change["append"]]
    return {**old, **change["merge"]} if "merge" in change else change["value"]


def _alike(first: Any, other: Any) -> bool:
    """Return whether two values are the same to the byte. `1` differs from `1.0` and `true`."""
    return first == other and repr(first) == repr(other)
