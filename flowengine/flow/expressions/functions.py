"""The functions that the flow language adds to CEL, the values that they take, and their cost."""

from __future__ import annotations

import datetime
import json as json_library
import math
from collections.abc import Callable
from typing import Any

from flowengine.flow.expressions import clock
from flowengine.flow.expressions.bounds import PART, room_for
from flowengine.flow.expressions.clock import plain_time
from flowengine.flow.expressions.operators import whole
from flowengine.flow.expressions.paths import NoValue, TooExpensive, name_of
from flowengine.flow.expressions.scope import TypeName, Unsigned
from flowengine.flow.expressions.types import WORDS
from flowengine.kernel.graph.compiled import Plain
from flowengine.sdk.errors import StepError
from flowengine.sdk.texts.untrusted import marked_data
from flowengine.sdk.tools.command_rules import check

# Limits on the cost of one evaluation.

LIMIT = 1_000_000
"""Rounds of `map`, `filter` and similar macros, all levels together, plus parts of values passed on
in them. About three seconds."""
_TEXT = 64
"""Characters that count as one part."""
_DEPTH = 100


class EvaluationBudget:
    """Counts down the cost of an evaluation with loops."""

    __slots__ = ("_weights", "left")

    def __init__(self) -> None:
        self.left = LIMIT
        self._weights: dict[int, tuple[Plain, int]] = {}

    def charge(self, amount: int) -> None:
        """Charge an amount.

        Args:
            amount: The amount.

        Raises:
            TooExpensive: The remaining budget is smaller.
        """
        self.left -= amount
        if self.left < 0:
            raise TooExpensive(
                f"the expression is too expensive: more than {LIMIT} rounds or parts of "
                "values. Compute this in a tool"
            )

    def charge_value(self, value: Plain) -> None:
        """Charge the cost of passing on a value.

        Args:
            value: The value. Parts that occur several times count each time.
        """
        if isinstance(value, (str, bytes)):
            self.charge(len(value) // _TEXT)
        elif isinstance(value, (list, dict)):
            self.charge(self.weigh(value))

    def weigh(self, value: Plain, depth: int = 0) -> int:
        """Return the number of parts of a value, counting a part at each occurrence.

        Args:
            value: Plain data. The same object in several places is examined once.
            depth: Its nesting depth.

        Returns:
            At least 1.

        Raises:
            TooExpensive: The value has more parts than an evaluation may handle.
            NoValue: The value is nested too deeply.
        """
        if isinstance(value, (str, bytes)):
            return 1 + len(value) // _TEXT
        if not isinstance(value, (list, dict)):
            return 1
        known = self._weights.get(id(value))
        if known is not None:
            return known[1]
        if depth > _DEPTH:
            raise NoValue(f"the value is nested more than {_DEPTH} levels deep")
        weight = 1
        for part in value.values() if isinstance(value, dict) else value:
            weight += self.weigh(part, depth + 1)
        if weight > LIMIT:
            raise TooExpensive(
                f"the value is too large: more than {LIMIT} parts. Compute it in a tool"
            )
        self._weights[id(value)] = (value, weight)
        return weight


# The functions that the flow language adds to CEL. All are pure.

MAX_RANGE = 1_000_000
MAX_NESTING = 100


def _needs(value: Plain, kind: type, function: str, called: str) -> None:
    """Refuse an argument of the wrong type."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise NoValue(f"{function}() needs {called}, not {name_of(value)}")


def size(value: Plain) -> int:
    """Return the number of characters, bytes, items or keys."""
    if not isinstance(value, (str, bytes, list, dict)):
        raise NoValue(f"{name_of(value)} has no size")
    return len(value)


def keys(value: Plain) -> list[Plain]:
    """Return the keys of a map, sorted."""
    _needs(value, dict, "keys", "a map")
    return sorted(value)


def values(value: Plain) -> list[Plain]:
    """Return the values of a map in the order of its keys."""
    _needs(value, dict, "values", "a map")
    return [value[key] for key in sorted(value)]


def entries(value: Plain) -> list[Plain]:
    """Return a list of `{key, value}` in the order of the keys."""
    _needs(value, dict, "entries", "a map")
    return [{"key": key, "value": value[key]} for key in sorted(value)]


def merge(first: Plain, second: Plain) -> Plain:
    """Return a map with the keys of both. The second map's values take precedence."""
    _needs(first, dict, "merge", "maps")
    _needs(second, dict, "merge", "maps")
    both = {**first, **second}
    return {key: both[key] for key in sorted(both)}


def sum_(items: Plain) -> Plain:
    """Return the sum of numbers: an integer if all are."""
    _needs(items, list, "sum", "a list")
    for item in items:
        if isinstance(item, bool) or not isinstance(item, (int, float)):
            raise NoValue(f"sum() adds numbers, but the list contains {name_of(item)}")
    if all(isinstance(item, int) for item in items):
        return whole(sum(items))
    try:
        return math.fsum(items)
    except OverflowError:
        raise NoValue("the sum is not a finite number") from None


def total(calls: Plain, name: Plain) -> Plain:
    """Return the sum of a numeric argument over the calls of a tool."""
    found = calls.get("totals", {}).get(name) if isinstance(calls, dict) else None
    if found is None:
        raise NoValue(f"total(): no call has a number {name!r}, or calls are not counted here")
    return found


def sort(items: Plain) -> Plain:
    """Return a list of numbers, times, durations, or texts by code point, in ascending order."""
    _needs(items, list, "sort", "a list")
    kinds = {"number" if isinstance(i, (int, float)) else type(i).__name__ for i in items}
    if len(kinds) > 1 or not kinds <= _SORTED or any(isinstance(item, bool) for item in items):
        raise NoValue("sort() needs a list of numbers, of texts, of times or of durations")
    return sorted(items)


_SORTED = frozenset(["number", "str", "datetime", "timedelta"])


def unique(items: Plain) -> Plain:
    """Return the first of equal items, in their order."""
    _needs(items, list, "unique", "a list")
    groups: dict[Any, Plain] = {}
    for item in items:
        groups.setdefault(_identity(item), item)
    return list(groups.values())


def _identity(value: Plain) -> Any:
    """Return a hashable key that is equal for equal values. `1` and `1.0` are equal."""
    if isinstance(value, dict):
        return ("map", frozenset((key, _identity(part)) for key, part in value.items()))
    if isinstance(value, list):
        return ("list", tuple(map(_identity, value)))
    return (isinstance(value, bool), value)


def only_runs(command: Plain, allowed: Plain) -> bool:
    """Return whether a command runs only one of the allowed programs.

    Args:
        command: Text for a shell, or program and arguments.
        allowed: The first words of commands. `git log` allows all commands with this beginning,
            except for options by which a program writes files or runs others.
    """
    _needs(allowed, list, "only_runs", "a list of commands")
    if not isinstance(command, (str, list)) or not all(isinstance(one, str) for one in allowed):
        raise NoValue("only_runs() needs a command, and a list of texts")
    try:
        check(command, allowed, "only_runs")
    except StepError:
        return False
    return True


def flatten(items: Plain) -> Plain:
    """Return a list with the items of inner lists in place of the lists, one level deep."""
    _needs(items, list, "flatten", "a list")
    flat: list[Plain] = []
    room_for(sum(len(item) if isinstance(item, list) else 1 for item in items), PART)
    for item in items:
        flat.extend(item if isinstance(item, list) else [item])
    return flat


def range_(count: Plain) -> Plain:
    """Return 0, 1, ..., count - 1."""
    _needs(count, int, "range", "an integer")
    if count > MAX_RANGE:
        raise NoValue(f"range({count}) is too long: at most {MAX_RANGE}")
    return list(range(count))


def json(value: Plain) -> str:
    """Return a value as compact JSON with sorted keys."""
    EvaluationBudget().weigh(value)
    parts: list[str] = []
    _write_json(value, parts, 0)
    return "".join(parts)


def marked(value: Plain, source: Plain) -> str:
    """Return a foreign value in the form for a model. See `flowengine.sdk.texts.untrusted`.

    Data is converted to JSON. Without any text, it cannot give instructions and needs no mark.
    """
    _needs(source, str, "marked", "text as source")
    return marked_data(value, source, json)


def _write_json(value: Plain, parts: list[str], depth: int) -> None:
    """Append the JSON of a value."""
    if depth > MAX_NESTING:
        raise NoValue(f"the value is nested more than {MAX_NESTING} levels deep")
    if isinstance(value, dict):
        opening = "{"
        for key in sorted(value):
            parts.append(f"{opening}{_json_text(key)}:")
            _write_json(value[key], parts, depth + 1)
            opening = ","
        parts.append("}" if value else "{}")
    elif isinstance(value, list):
        opening = "["
        for item in value:
            parts.append(opening)
            _write_json(item, parts, depth + 1)
            opening = ","
        parts.append("]" if value else "[]")
    elif isinstance(value, str):
        parts.append(_json_text(value))
    else:
        parts.append(_json_scalar(value))


def _json_text(text: str) -> str:
    return json_library.dumps(text, ensure_ascii=False)


def _json_scalar(value: Plain) -> str:
    if value is None:
        return "null"
    if isinstance(value, (datetime.datetime, datetime.timedelta)):
        return _json_text(plain_time(value))
    if not isinstance(value, (bool, int, float)):
        raise NoValue(f"{name_of(value)} cannot be written as JSON")
    return number_text(value)


def number_text(value: float) -> str:
    """Return a number or a bool in the notation of JSON and templates.

    A double without fraction has no `.0`, and no exponent up to 21 digits: `3`, `0.1`, `1e+21`.

    Args:
        value: The number.

    Returns:
        The text.

    Raises:
        NoValue: The value is infinite or not a number.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        if value.bit_length() > 10_000:
            raise NoValue("the integer has too many digits")
        return str(value)
    if not math.isfinite(value):
        raise NoValue("the result is not a finite number")
    if value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    text = repr(value)
    mantissa, _, exponent = text.partition("e")
    if not exponent:
        return text
    power = int(exponent)
    if -7 < power < 0:
        return f"{value:.{len(mantissa.replace('.', '').lstrip('-')) - 1 - power}f}"
    return f"{mantissa.removesuffix('.0')}e{power:+d}"


def parse_json(text: Plain) -> Plain:
    """Return the value that a JSON text stands for."""
    _needs(text, str, "parse_json", "text")
    try:
        value = json_library.loads(text, parse_constant=_no_constant, parse_float=_finite)
        if "\\u" in text:
            json_library.dumps(value, ensure_ascii=False).encode()  # refuses lone surrogates
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise NoValue(f"parse_json(): the text is not JSON: {reason}") from None
    return value


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits} is out of range")
    return value


def _no_constant(name: str) -> Plain:
    raise ValueError(f"'{name}' is not JSON")


def digest(*arguments: Plain) -> str:
    """Return the SHA-256 of the canonical JSON of one value, or of the list of several."""
    import hashlib

    text = json(arguments[0] if len(arguments) == 1 else list(arguments))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def replace(text: Plain, old: Plain, new: Plain, count: Plain = -1) -> str:
    """Return a text with all, or the first `count`, occurrences of `old` replaced by `new`."""
    for part in (text, old, new):
        _needs(part, str, "replace", "texts")
    _needs(count, int, "replace", "an integer as its third argument")
    places = text.count(old) if count < 0 else min(text.count(old), count)
    room_for(len(text) + places * (len(new) - len(old)))
    return str(text.replace(old, new, count))


def join(items: Plain, separator: Plain = "") -> str:
    """Return the concatenation of texts."""
    _needs(items, list, "join", "a list")
    _needs(separator, str, "join", "text as separator")
    for item in items:
        if not isinstance(item, str):
            raise NoValue(f"join() concatenates texts, but the list contains {name_of(item)}")
    room_for(sum(map(len, items)) + len(items) * len(separator))
    return str(separator.join(items))


def format_time(time: Plain, pattern: Plain, zone: Plain = "UTC") -> str:
    """Return a time as text, by the letters of Unicode date patterns."""
    _needs(pattern, str, "format_time", "text as pattern")
    _needs(zone, str, "format_time", "text as zone")
    return clock.format_time(clock.moment(time), pattern, zone)


def timestamp(value: Plain) -> Any:
    """Return the time that a text, or a number of seconds since 1970, stands for."""
    return clock.of_seconds(value) if type(value) is int else clock.moment(value)


def duration(value: Plain) -> Any:
    """Return the duration that a text stands for."""
    return clock.duration_of(value)


def time_part(time: Plain, part: Plain, zone: Plain) -> int:
    """Return a part of a time in a zone, as CEL's `getHours(zone)` and similar functions do."""
    _needs(zone, str, part, "text as zone")
    return clock.part_of(clock.moment(time), part, zone)


FUNCTIONS: dict[str, Callable[..., Plain]] = {
    "digest": digest,
    "duration": duration,
    "entries": entries,
    "flatten": flatten,
    "format_time": format_time,
    "join": join,
    "json": json,
    "keys": keys,
    "marked": marked,
    "merge": merge,
    "only_runs": only_runs,
    "parse_json": parse_json,
    "range": range_,
    "replace": replace,
    "size": size,
    "sort": sort,
    "sum": sum_,
    "time_part": time_part,
    "timestamp": timestamp,
    "total": total,
    "unique": unique,
    "values": values,
}


# Values of the flow that enter operators as their declared types, and results that leave them.

KINDS: dict[str, type] = {
    "boolean": bool, "integer": int, "number": float, "string": str, "bytes": bytes,
    "array": list, "object": dict,
}  # fmt: skip
"""Types that are checked when a value enters an operator."""


def converted(value: Plain, kind: str, shown: str) -> Plain:
    """Return a number as the declared one of the two types of numbers.

    Args:
        value: A value of another type than declared.
        kind: A key of `KINDS`.
        shown: Its name in messages.

    Returns:
        `3` for `3.0` as an integer, and `3.0` for `3` as a number.

    Raises:
        NoValue: It is not of the declared type.
    """
    if kind == "integer" and type(value) is float and value.is_integer():
        return int(value)
    if kind == "number" and type(value) is int:
        try:
            return float(value)
        except OverflowError:
            raise NoValue(f"{shown} is an integer beyond 64 bits") from None

    raise NoValue(f"{shown} is {name_of(value)}, but declared as {WORDS[kind]}")


def items_converted(values: list[Plain], kind: str, shown: str) -> list[Plain]:
    """Return a list whose items are of the declared type.

    Args:
        values: The list.
        kind: A key of `KINDS`.
        shown: Its name in messages.

    Raises:
        NoValue: One is of another type.
    """
    wanted = KINDS[kind]
    if all(type(value) is wanted for value in values):
        return values
    try:
        return [v if type(v) is wanted else converted(v, kind, shown) for v in values]
    except NoValue:
        raise NoValue(f"{shown} holds items of another type than declared") from None


def leave(value: Plain) -> Plain:
    """Return the result of an operator as a value of the flow language.

    Args:
        value: The result. Times and durations remain until the whole expression is evaluated.

    Raises:
        NoValue: It is not a value outside an expression.
    """
    kind = type(value)
    if kind is str or kind is bool or kind is int or value is None:
        return value
    if kind is float:
        if value - value != 0:
            raise NoValue("the result is not a finite number")
        return value
    if kind is list:
        return [leave(item) for item in value]
    if kind is dict:
        return {key: leave(item) for key, item in value.items()}
    if kind is Unsigned:
        if value >= 2**63:
            raise NoValue("integer overflow: the result is beyond 64 bits")
        return int(value)
    if kind is TypeName:
        raise NoValue("the result is a type, no value")
    return value
