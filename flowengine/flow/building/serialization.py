"""Conversion of Python values to the data of a flow file: text, numbers, lists and maps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, get_origin

from flowengine.errors import UsageError
from flowengine.flow.building.expressions import Expr
from flowengine.flow.building.references import reference
from flowengine.flow.building.schemas import schema_of

UNITS = ((604_800_000, "w"), (86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s"))


def plain(value: Any, named: Callable[[Any], str | None], what: str) -> Any:
    """Return a value in the form of a flow file.

    Args:
        value: Data that may contain expressions, steps, functions, types and durations anywhere.
        named: Returns the name of an object of the flow, such as a step or a tool, or None.
        what: Description of the value for messages: `'with' of step 'pay'`.

    Returns:
        Plain data.

    Raises:
        UsageError: A part of the value cannot be part of a flow.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Expr):
        return str(value)
    if isinstance(value, Mapping):
        wrong = next((key for key in value if not isinstance(key, str)), None)
        if wrong is not None:
            raise UsageError(f"{what}: the key {wrong!r} is not text")
        return {key: plain(entry, named, what) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, named, what) for item in value]
    if isinstance(value, timedelta):
        return duration(value)
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise UsageError(
                f"{what}: {value} has no time zone", hint="pass for example tzinfo=UTC"
            )
        return value.isoformat().replace("+00:00", "Z")
    name = named(value)
    if name is not None:
        return name
    if isinstance(value, type) or get_origin(value) is not None:
        return schema_of(value)
    if callable(value):
        return reference(value)
    raise UsageError(
        f"{what}: {value!r} cannot be part of a flow",
        hint="give text, numbers, true and false, lists, maps, or expressions",
    )


def duration(value: timedelta) -> str:
    """Return a duration in the notation of flow files: `1h30m`.

    Args:
        value: A duration that is not negative. Microseconds are dropped.

    Returns:
        The text.
    """
    rest = value // timedelta(milliseconds=1)
    text = ""
    for size, unit in UNITS:
        count, rest = divmod(rest, size)
        text += f"{count}{unit}" if count else ""
    return text + (f"{rest}ms" if rest or not text else "")
