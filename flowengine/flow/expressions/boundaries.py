"""Values of the flow that enter operators as their declared types, and results that leave them."""

from __future__ import annotations

from flowengine.flow.expressions.paths import NoValue, name_of
from flowengine.flow.expressions.scope import TypeName, Unsigned, is_time
from flowengine.kernel.graph.compiled import Plain

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
    from flowengine.flow.expressions.types import WORDS

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


def leave(value: Plain, inside: bool = False) -> Plain:
    """Return the result of an operator as a value of the flow language.

    Args:
        value: The result.
        inside: It is in a list or map, where times are texts.

    Raises:
        NoValue: It is no value outside an expression.
    """
    kind = type(value)
    if kind is str or kind is bool or kind is int or value is None:
        return value
    if kind is float:
        if value - value != 0:
            raise NoValue("the result is not a finite number")
        return value
    if kind is list:
        return [leave(item, inside=True) for item in value]
    if kind is dict:
        return {key: leave(item, inside=True) for key, item in value.items()}
    if kind is Unsigned:
        if value >= 2**63:
            raise NoValue("integer overflow: the result is beyond 64 bits")
        return int(value)
    if kind is TypeName:
        raise NoValue("the result is a type, no value")
    if inside and is_time(value):
        from flowengine.flow.expressions.functions import plain_time

        return plain_time(value)
    return value
