"""Conversion of Python values to the data of a flow file: text, numbers, lists and maps."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, get_origin

from flowengine.errors import UsageError
from flowengine.flow.building.expressions import Expr
from flowengine.flow.building.references import reference
from flowengine.flow.building.schemas import schema_of

_HINT = "give text, numbers, true and false, lists, maps, or expressions"
UNITS = ((604_800_000, "w"), (86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s"))


def plain(value: Any, named: Callable[[Any], str | None], what: str, *, typed: bool = False) -> Any:
    """Return a value in the form of a flow file.

    Args:
        value: Data that may contain expressions, steps, functions, types and durations anywhere.
        named: Returns the name of an object of the flow, such as a step or a tool, or None.
        what: Description of the value for messages: `'with' of step 'pay'`.
        typed: Whether it is for a function, whose hints restore durations and the keys of maps.

    Returns:
        Plain data.

    Raises:
        UsageError: A part of the value cannot be part of a flow.
    """
    if isinstance(value, Expr):
        return str(value)
    if value is None or isinstance(value, int | float | str):
        is_plain = value is None or type(value) in {bool, int, float, str}
        return value if is_plain else _kept(value, what)  # such as a member of an enumeration
    if isinstance(value, Mapping):
        keys = _keys(value, what, typed)
        entries = zip(keys, value.values(), strict=True)
        return {key: plain(entry, named, what, typed=typed) for key, entry in entries}
    if isinstance(value, list | tuple):
        return [plain(item, named, what, typed=typed) for item in value]
    if isinstance(value, timedelta) and not typed:
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
    if typed:
        return _kept(value, what)
    raise UsageError(f"{what}: {value!r} cannot be part of a flow", hint=_HINT)


def _keys(value: Mapping[Any, Any], what: str, typed: bool) -> list[str]:
    wrong = next((key for key in value if not isinstance(key, str)), None)
    if wrong is not None and not typed:
        raise UsageError(f"{what}: the key {wrong!r} is not text")
    return list(value if wrong is None else _kept(dict.fromkeys(value), what))


def _kept(value: Any, what: str) -> Any:
    """Return a value without expressions in its plain form, with bytes as base64."""
    from flowengine.json_values import plain as as_text
    from flowengine.sdk.errors import ValidationError
    from flowengine.sdk.plain_values import to_plain

    try:
        return json.loads(json.dumps(to_plain(value, number_keys=True), default=as_text))
    except ValidationError as error:
        raise UsageError(
            f"{what}: {value!r} cannot be part of a flow: {error.message}",
            hint=_HINT,
        ) from None


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
