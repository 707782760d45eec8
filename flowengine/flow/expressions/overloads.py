"""Types of operators and standard functions of CEL, for the check."""

from __future__ import annotations

import functools
from typing import Any

from flowengine.flow.expressions import types
from flowengine.flow.expressions.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    INT,
    TEXT,
    TIMESTAMP,
    TYPE,
    UINT,
    article,
    common,
    kind,
    list_of,
)
from flowengine.sdk.values.schema_types import ANY, Schema

CONDITION = "a condition must be true or false, not "
TEXT_PART = "a part of a text must be text, a number, or true or false, not "
CONDITION_HINTS = {
    "string": "compare it: … != ''",
    "integer": "compare it: … != 0",
    "number": "compare it: … > 0.0",
    "array": "compare its size: size(…) > 0",
    "object": "compare its size: size(…) > 0",
    "null": "compare it: … != null",
}

_LETTERS: dict[str, Schema] = {
    "b": BOOL, "i": INT, "u": UINT, "d": DOUBLE, "s": TEXT, "o": BYTES, "t": TIMESTAMP,
    "p": DURATION, "l": list_of(ANY), "S": list_of(TEXT), "T": TYPE, "y": ANY,
}  # fmt: skip
"""Types by their letters in the tables: `o` are bytes, `p` is a duration, `y` is any value."""
_TABLE = {
    "math.greatest": "",
    "math.least": "",
    "+": "ii=i uu=u dd=d ss=s oo=o tp=t pt=t pp=p ll=l",
    "-": "ii=i uu=u dd=d tt=p tp=t pp=p i=i d=d",
    "*": "ii=i uu=u dd=d",
    "/": "ii=i uu=u dd=d",
    "%": "ii=i uu=u",
    "<": "bb=b ii=b uu=b dd=b id=b di=b iu=b ui=b ud=b du=b ss=b oo=b tt=b pp=b",
    "!": "b=b",
    "&&": "bb=b",
    "bool": "b=b s=b",
    "bytes": "o=o s=o",
    "charAt": "si=s",
    "contains": "ss=b",
    "double": "i=d u=d d=d s=d",
    "dyn": "y=y",
    "endsWith": "ss=b",
    "format": "sl=s",
    "indexOf": "ss=i ssi=i",
    "int": "i=i u=i d=i s=i t=i",
    "lastIndexOf": "ss=i ssi=i",
    "lowerAscii": "s=s",
    "matches": "ss=b",
    "reverse": "s=s",
    "split": "ss=S ssi=S",
    "startsWith": "ss=b",
    "string": "b=s i=s u=s d=s s=s o=s t=s p=s",
    "substring": "si=s sii=s",
    "trim": "s=s",
    "type": "y=T",
    "uint": "i=u u=u d=u s=u",
    "upperAscii": "s=s",
    **dict.fromkeys(["getHours", "getMilliseconds", "getMinutes", "getSeconds"], "t=i p=i"),
    **dict.fromkeys(["getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear"], "t=i"),
    **dict.fromkeys(["getFullYear", "getMonth"], "t=i"),
    "math.abs": "i=i u=u d=d",
    "math.bitNot": "i=i u=u",
    **dict.fromkeys(["math.bitAnd", "math.bitOr", "math.bitXor"], "ii=i uu=u"),
    **dict.fromkeys(["math.bitShiftLeft", "math.bitShiftRight"], "ii=i ui=u"),
    **dict.fromkeys(["math.ceil", "math.floor", "math.round", "math.trunc"], "d=d"),
    **dict.fromkeys(["math.isFinite", "math.isInf", "math.isNaN"], "d=b"),
    "math.sign": "i=i u=u d=d",
    "math.sqrt": "i=d u=d d=d",
    "strings.quote": "s=s",
}
"""For each operator and function, the types that it takes and gives. A method takes the value that
it is called on first."""
STANDARD = frozenset(name for name in _TABLE if name.isidentifier())
"""Standard functions of CEL."""
TIME_PARTS = frozenset(name for name in STANDARD if name.startswith("get"))
STANDARD_METHODS = STANDARD - {"bool", "bytes", "double", "dyn", "int", "string", "type", "uint"}
NAMESPACES = {
    space: frozenset(name[len(space) + 1 :] for name in _TABLE if name.startswith(f"{space}."))
    for space in ("math", "strings")
}
_SAME = {"<=": "<", ">": "<", ">=": "<", "||": "&&"}
_NUMBERS = frozenset(["integer", "uint", "number"])
_TIMES = frozenset(["timestamp", "duration"])


def result(name: str, operands: list[tuple[Schema, Schema]]) -> Schema | None:
    """Return the type of the result of an operator or function.

    Args:
        name: Its name in CEL.
        operands: The schema of each operand, and that of its items if it is a list.

    Returns:
        The schema of its value, or None if it does not take these types.
    """
    if name in {"==", "!="}:
        return BOOL if _comparable(*operands) else None
    if name == "in":
        return BOOL if _may_contain(*operands) else None
    if name in {"math.greatest", "math.least"}:
        return _extreme(operands)
    kinds = [kind(schema) for schema, _ in operands]
    given = [
        gives
        for takes, gives in _overloads(_SAME.get(name, name))
        if len(takes) == len(kinds)
        and all(
            one is None or other is None or one == other
            for one, other in zip(takes, kinds, strict=True)
        )
    ]
    if name == "+" and kinds == ["array", "array"]:
        return list_of(_items_of_both(operands[0][1], operands[1][1]))
    if not given:
        return None
    return given[0] if all(one == given[0] for one in given) else ANY


@functools.cache
def _overloads(name: str) -> list[tuple[list[str | None], Schema]]:
    """Return the types that an operator takes and gives."""
    pairs = [overload.split("=") for overload in _TABLE[name].split()]
    return [([kind(_LETTERS[one]) for one in takes], _LETTERS[gives]) for takes, gives in pairs]


def _items_of_both(one: Schema, other: Schema) -> Schema:
    """Return the schema of the items of two lists. One of them may be empty or unknown."""
    if one and other:
        return common([one, other])
    word = kind(one or other)
    return {"type": word} if word and types.CEL not in (one or other) else ANY


def _comparable(one: tuple[Schema, Schema], other: tuple[Schema, Schema]) -> bool:
    """Return whether two values may be equal."""
    kinds = {kind(one[0]), kind(other[0])}
    if None in kinds or kinds <= _NUMBERS:
        return True
    if kinds == {"array"}:
        return _comparable((one[1], ANY), (other[1], ANY))
    return len(kinds) == 1


def _may_contain(value: tuple[Schema, Schema], within: tuple[Schema, Schema]) -> bool:
    """Return whether a value may be an item of a list, or a key of a map."""
    container = kind(within[0])
    if container == "object":
        return kind(value[0]) in {None, "string"}
    return container is None or (
        container == "array" and _comparable((value[0], ANY), (within[1], ANY))
    )


def _extreme(operands: list[tuple[Schema, Schema]]) -> Schema | None:
    """Return the type of the largest or smallest of numbers, or of a list of numbers."""
    numbers = [schema for schema, _ in operands]
    if len(numbers) == 1 and kind(numbers[0]) == "array":
        numbers = [operands[0][1]]
    kinds = {kind(schema) for schema in numbers}
    if not numbers or not kinds <= {*_NUMBERS, None}:
        return None
    return numbers[0] if len(kinds) == 1 else ANY


def refusal(name: str, schemas: list[Schema]) -> tuple[str, str | None]:
    """Return the message that an operator does not take operands of these types, and the remedy.

    Args:
        name: Its name in CEL.
        schemas: The schemas of its operands.
    """
    shown = " and ".join("a value" if kind(one) is None else article(one) for one in schemas)
    return f"'{name}' does not take {shown or 'nothing'}", _hint(name, schemas)


def _hint(name: str, schemas: list[Schema]) -> str | None:
    kinds: set[Any] = {kind(schema) for schema in schemas}
    if len(schemas) == 2 and kinds <= _NUMBERS and "number" in kinds:
        return "make both numbers: write 2.0 for 2, or double(n)"
    if name == "+" and "string" in kinds and kinds & {*_NUMBERS, "boolean"}:
        return "write string(…) around values that are not text"
    if "string" in kinds and kinds & _TIMES:
        return "write timestamp(…) around the text"
    if "string" in kinds and kinds & _NUMBERS:
        return "write int(…) or double(…) around the text, or quotes around the number"
    if name in {"&&", "||", "!"}:
        return "a condition is true or false: compare the value with something"
    return None
