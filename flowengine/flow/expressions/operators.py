"""Values of the operators of CEL.

Integers have 64 bits, and equality and order of numbers do not depend on their types. A function
raises `WrongTypes` for operands that it does not take, and `NoValue` for all other failures.
"""

from __future__ import annotations

import datetime
import math
import operator
from collections.abc import Callable
from typing import Any

from flowengine.flow.expressions.paths import NoValue
from flowengine.flow.expressions.scope import TypeName, Unsigned
from flowengine.kernel.graph.compiled import Plain

LEAST, MOST = -(2**63), 2**63 - 1
"""The range of integers."""
MOST_UNSIGNED = 2**64 - 1
MICROSECOND = datetime.timedelta(microseconds=1)
_TIMES = (datetime.datetime, datetime.timedelta)
_INTEGERS = frozenset([int, Unsigned])
NUMBERS = frozenset([int, float, Unsigned])
_ORDERED = frozenset([*NUMBERS, str, bool, bytes, *_TIMES])
_COMPARED = frozenset([*_ORDERED, type(None), TypeName])
_NAMES: dict[type, str] = {
    bool: "bool", int: "int", Unsigned: "uint", float: "double", str: "string", bytes: "bytes",
    type(None): "null_type", list: "list", TypeName: "type",
    datetime.datetime: "google.protobuf.Timestamp", datetime.timedelta: "google.protobuf.Duration",
}  # fmt: skip


class WrongTypes(NoValue):
    """An operator or function does not take values of these types."""


def whole(value: int, kind: type = int) -> int:
    """Return an integer within the range of its type.

    Args:
        value: The integer.
        kind: `int`, or `Unsigned`.

    Raises:
        NoValue: It is beyond 64 bits.
    """
    if kind is int and LEAST <= value <= MOST:
        return value
    if kind is Unsigned and 0 <= value <= MOST_UNSIGNED:
        return Unsigned(value)
    sign = "unsigned " if kind is Unsigned else ""
    raise NoValue(f"{sign}integer overflow: the result is beyond 64 bits")


def _integers(one: Plain, other: Plain) -> bool:
    """Return whether both are integers of the same type, within its range."""
    if type(one) is not type(other) or type(one) not in _INTEGERS:
        return False
    if type(one) is int and not (LEAST <= one <= MOST and LEAST <= other <= MOST):
        raise WrongTypes
    return True


def equal(one: Plain, other: Plain) -> bool:
    """Return whether two values are equal.

    Numbers of different types can be, and values of other types are not. `true` is not a number.

    Args:
        one: A value.
        other: Another one.
    """
    kind, second = type(one), type(other)
    if kind is second and kind in _COMPARED:
        return bool(one == other)
    if kind in NUMBERS and second in NUMBERS:
        return _as_doubles(operator.eq, one, other)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    return False


def _as_doubles(compare: Callable[[Any, Any], bool], one: Any, other: Any) -> bool:
    """Compare numbers of different types: as doubles if one of them is a double."""
    if type(one) is float or type(other) is float:
        return compare(as_double(one), as_double(other))
    return compare(one, other)


def _ordering(compare: Callable[[Any, Any], bool]) -> Callable[[Plain, Plain], bool]:
    def ordered(one: Plain, other: Plain) -> bool:
        kind, second = type(one), type(other)
        if kind is not second or kind not in _ORDERED:
            if kind not in NUMBERS or second not in NUMBERS:
                raise WrongTypes
        elif kind is not int:
            return compare(one, other)
        for number in (one, other):
            if type(number) is int and not LEAST <= number <= MOST:
                raise WrongTypes
        return _as_doubles(compare, one, other)

    return ordered


def contained(value: Plain, within: Plain) -> bool:
    """Return whether a list has an item that is equal to a value, or a map has a key."""
    if isinstance(within, list):
        if type(value) not in NUMBERS and value not in within:  # for Python, more are equal
            return False
        return any(equal(value, item) for item in within)
    if isinstance(within, dict) and isinstance(value, (str, bool, int, float)):
        return isinstance(value, str) and value in within
    raise WrongTypes


def add(one: Plain, other: Plain) -> Plain:
    """Return the sum of numbers, times and durations, or a text or list made of two."""
    kind, second = type(one), type(other)
    if kind is int and second is int and LEAST <= one <= MOST and LEAST <= other <= MOST:
        return whole(one + other)
    if _integers(one, other):
        return whole(one + other, kind)
    if kind is second and kind in {float, str, bytes, list, datetime.timedelta}:
        return _bounded(one + other) if kind is datetime.timedelta else one + other
    if {kind, second} == set(_TIMES):
        return _moved(one, other)
    raise WrongTypes


def subtract(one: Plain, other: Plain) -> Plain:
    """Return the difference of numbers, times and durations."""
    kind, second = type(one), type(other)
    if _integers(one, other):
        return whole(one - other, kind)
    if kind is second and kind in {float, *_TIMES}:
        return one - other if kind is float else _bounded(one - other)
    if kind is datetime.datetime and second is datetime.timedelta:
        return _moved(one, -other)
    raise WrongTypes


def _bounded(duration: datetime.timedelta) -> datetime.timedelta:
    """Return a duration within the 64 bits of its nanoseconds."""
    if abs(duration) // MICROSECOND > MOST // 1000:
        raise NoValue("duration overflow: the result is longer than 292 years")
    return duration


def _moved(one: Any, other: Any) -> Plain:
    try:
        return one + other
    except OverflowError:
        raise NoValue("timestamp overflow: the time is out of range") from None


def multiply(one: Plain, other: Plain) -> Plain:
    """Return the product of two numbers of the same type."""
    if _integers(one, other):
        return whole(one * other, type(one))
    if type(one) is float is type(other):
        return one * other
    raise WrongTypes


def divide(one: Plain, other: Plain) -> Plain:
    """Return the quotient of two numbers of the same type. That of integers is cut off."""
    if _integers(one, other):
        if other == 0:
            raise NoValue("divide by zero")
        quotient = abs(one) // abs(other)
        return whole(quotient if (one < 0) is (other < 0) else -quotient, type(one))
    if type(one) is float is type(other):
        if other:
            return one / other
        return math.nan if one == 0 or math.isnan(one) else one * math.copysign(math.inf, other)
    raise WrongTypes


def modulo(one: Plain, other: Plain) -> Plain:
    """Return the remainder of integers, with the sign of the first."""
    if not _integers(one, other):
        raise WrongTypes
    if other == 0:
        raise NoValue("modulus by zero")
    if (one, other) == (LEAST, -1):
        return whole(-one)
    return type(one)(int(math.copysign(1, one)) * (abs(one) % abs(other)))


def subtract_or_negate(*operands: Plain) -> Plain:
    """Return `-x`, or `x - y`."""
    if len(operands) == 2:
        return subtract(*operands)
    (value,) = operands
    if type(value) is int and _integers(value, value):
        return whole(-value)
    if type(value) is float:
        return -value
    raise WrongTypes


def as_double(value: Plain) -> float:
    """Return the double of a number.

    Args:
        value: The number.

    Raises:
        NoValue: It is an integer beyond the range of doubles.
    """
    try:
        return float(value)
    except OverflowError:
        raise NoValue("an integer is beyond 64 bits") from None


def type_of(value: Plain) -> TypeName:
    """Return the type of a value."""
    return TypeName(_NAMES.get(type(value), "map"))


OPERATIONS: dict[str, Callable[..., Plain]] = {
    "==": equal,
    "!=": lambda one, other: not equal(one, other),
    "<": _ordering(operator.lt),
    "<=": _ordering(operator.le),
    ">": _ordering(operator.gt),
    ">=": _ordering(operator.ge),
    "in": contained,
    "+": add,
    "-": subtract_or_negate,
    "*": multiply,
    "/": divide,
    "%": modulo,
    "@bytes": bytes.fromhex,
    "@type": TypeName,
    "dyn": lambda value: value,
    "type": type_of,
}
"""Operators by name, `dyn` and `type`. JSON has no constants like `@bytes` and `@type`."""
