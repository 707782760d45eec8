"""Values of the operators and standard functions of CEL."""

from __future__ import annotations

import datetime
import math
import operator
import re
from collections.abc import Callable
from typing import Any

from flowengine.flow.expressions.clock import part_of
from flowengine.flow.expressions.paths import NoValue, name_of
from flowengine.flow.expressions.scope import TypeName, Unsigned
from flowengine.kernel.graph.compiled import Plain

# Values of the operators of CEL.
#
# Integers have 64 bits, and equality and order of numbers do not depend on their types. A function
# raises `WrongTypes` for operands that it does not take, and `NoValue` for all other failures.

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


# Conversions, mathematical functions, and parts of times of CEL.

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_WHOLE = re.compile(r"[ \t\n\v\f\r]*([+-]?[0-9]{1,1000})[ \t\n\v\f\r]*")
_DECIMAL = re.compile(
    r"[ \t\n\v\f\r]*([+-]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf(?:inity)?|nan))"
    r"[ \t\n\v\f\r]*",
    re.IGNORECASE,
)
_BOOLS = dict.fromkeys(["true", "True", "TRUE", "t", "1"], True)
_BOOLS |= dict.fromkeys(["false", "False", "FALSE", "f", "0"], False)
_TIME_PARTS = (
    "Date", "DayOfMonth", "DayOfWeek", "DayOfYear", "FullYear", "Hours", "Milliseconds", "Minutes",
    "Month", "Seconds",
)  # fmt: skip
_TYPES: dict[str, type] = {
    "i": int, "u": Unsigned, "d": float, "s": str, "b": bool, "l": list,
}  # fmt: skip


def takes(types: str, function: Callable[..., Plain]) -> Callable[..., Plain]:
    """Return a function that refuses values of other types.

    Args:
        types: The letters of the types that it takes together, as in the tables of `overloads`.
        function: The function.
    """
    accepted = {tuple(_TYPES[letter] for letter in letters) for letters in types.split()}

    def checked(*values: Plain) -> Plain:
        if tuple(map(type, values)) not in accepted:
            raise WrongTypes
        return function(*values)

    return checked


def to_int(value: Plain) -> int:
    """Return the integer of a number, a text, or the seconds since 1970 of a time."""
    if type(value) is str:
        return whole(_digits(value, "an integer"))
    if type(value) is float:
        if not LEAST < value < -LEAST:
            raise NoValue("the number is beyond the range of 64-bit integers")
        return int(value)
    if type(value) is datetime.datetime:
        return (value - _EPOCH) // datetime.timedelta(seconds=1)
    if isinstance(value, int):
        return whole(int(value))
    raise WrongTypes


def to_uint(value: Plain) -> int:
    """Return the unsigned integer of a number or a text."""
    if type(value) is str:
        return whole(_digits(value, "an unsigned integer"), Unsigned)
    if type(value) is float:
        if not 0 <= value < 2.0**64:
            raise NoValue("the number is beyond the range of unsigned 64-bit integers")
        return Unsigned(value)
    if type(value) in {int, Unsigned}:
        return whole(value, Unsigned)
    raise WrongTypes


def _digits(text: str, called: str) -> int:
    match = _WHOLE.fullmatch(text)
    if match is None:
        raise NoValue(f"cannot convert this text to {called}: it may only contain digits")
    return int(match[1])


def to_double(value: Plain) -> float:
    """Return the double of a number or a text."""
    if type(value) is str:
        match = _DECIMAL.fullmatch(value)
        if match is None:
            raise NoValue("cannot convert this text to a number: write it as in '-1.5' or '2e3'")
        return float(match[1])
    if type(value) in NUMBERS:
        return as_double(value)
    raise WrongTypes


def to_bool(value: Plain) -> bool:
    """Return the bool of a bool or a text."""
    if type(value) is bool:
        return value
    if type(value) is not str:
        raise WrongTypes
    if value not in _BOOLS:
        raise NoValue("cannot convert this text to true or false: write 'true' or 'false'")
    return _BOOLS[value]


def to_bytes(value: Plain) -> bytes:
    """Return the UTF-8 of a text."""
    if type(value) is bytes:
        return value
    if type(value) is not str:
        raise WrongTypes
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise NoValue("a text is not valid Unicode: it has lone surrogates") from None


def _part(microseconds: int, most: int | None = None) -> Callable[[Plain], int]:
    """Return the function for a part of a duration, or of a time in UTC."""

    def part(value: Plain) -> int:
        total = value // MICROSECOND
        units = abs(total) // microseconds
        return int(math.copysign(units % most if most else units, total))

    return part


_DURATION_PARTS = {
    "getHours": _part(3_600_000_000),
    "getMilliseconds": _part(1000, 1000),
    "getMinutes": _part(60_000_000),
    "getSeconds": _part(1_000_000),
}


def _time_part(name: str) -> Callable[[Plain], int]:
    """Return the function for a part of a time in UTC, or of a duration."""

    def part(value: Plain) -> int:
        if type(value) is datetime.datetime:
            return part_of(value, name, "UTC")
        if type(value) is datetime.timedelta and name in _DURATION_PARTS:
            return _DURATION_PARTS[name](value)
        raise WrongTypes

    return part


def _finite(function: Callable[[float], float]) -> Callable[[float], float]:
    """Return a function of doubles that leaves infinity and NaN unchanged."""
    return lambda value: math.copysign(function(value), value) if math.isfinite(value) else value


def _rounded(value: float) -> float:
    """Round a half away from zero."""
    size = math.floor(abs(value))
    return float(size + (abs(value) - size >= 0.5))


def _absolute(value: Any) -> Plain:
    return abs(value) if type(value) is float else whole(abs(value), type(value))


def _sign(value: Any) -> Plain:
    return value if math.isnan(value) else type(value)((value > 0) - (value < 0))


def _root(value: float) -> float:
    return math.nan if value < 0 else math.sqrt(value)


def _of_bits(combine: Callable[[int, int], int]) -> Callable[[Any, Any], int]:
    return lambda one, other: whole(combine(int(one), int(other)), type(one))


def _inverted(value: int) -> int:
    return Unsigned(value ^ MOST_UNSIGNED) if type(value) is Unsigned else ~value


def _shifted(name: str, shift: Callable[[int, int], int]) -> Callable[[int, int], int]:
    """Return a shift of 64 bits, regardless of the sign."""

    def shifted(value: int, count: int) -> int:
        if count < 0:
            raise NoValue(f"{name}() cannot shift by a negative number of bits: {count}")
        bits = shift(value & MOST_UNSIGNED, count) & MOST_UNSIGNED if count < 64 else 0
        if type(value) is Unsigned:
            return Unsigned(bits)
        return bits - 2**64 if bits > MOST else bits

    return shifted


def _extreme(name: str, better: Callable[[Any, Any], bool]) -> Callable[..., Plain]:
    def extreme(*values: Plain) -> Plain:
        numbers = values[0] if len(values) == 1 and isinstance(values[0], list) else values
        if not numbers:
            raise NoValue(f"{name}() needs at least one number")
        for number in numbers:
            if type(number) not in NUMBERS:
                raise NoValue(f"{name}() compares numbers, not {name_of(number)}")
        best = numbers[0]
        for number in numbers[1:]:
            best = number if better(number, best) else best
        return best

    return extreme


STANDARD_FUNCTIONS: dict[str, Callable[..., Plain]] = {
    "bool": to_bool,
    "bytes": to_bytes,
    "double": to_double,
    "int": to_int,
    "uint": to_uint,
    **{f"get{part}": _time_part(f"get{part}") for part in _TIME_PARTS},
    "math.abs": takes("i u d", _absolute),
    "math.bitAnd": takes("ii uu", _of_bits(operator.and_)),
    "math.bitNot": takes("i u", _inverted),
    "math.bitOr": takes("ii uu", _of_bits(operator.or_)),
    "math.bitShiftLeft": takes("ii ui", _shifted("math.bitShiftLeft", operator.lshift)),
    "math.bitShiftRight": takes("ii ui", _shifted("math.bitShiftRight", operator.rshift)),
    "math.bitXor": takes("ii uu", _of_bits(operator.xor)),
    "math.ceil": takes("d", _finite(math.ceil)),
    "math.floor": takes("d", _finite(math.floor)),
    "math.greatest": _extreme("math.greatest", operator.gt),
    "math.isFinite": takes("d", math.isfinite),
    "math.isInf": takes("d", math.isinf),
    "math.isNaN": takes("d", math.isnan),
    "math.least": _extreme("math.least", operator.lt),
    "math.round": takes("d", _finite(_rounded)),
    "math.sign": takes("i u d", _sign),
    "math.sqrt": takes("i u d", _root),
    "math.trunc": takes("d", _finite(math.trunc)),
}
