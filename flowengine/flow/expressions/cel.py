"""The CEL library, which only this module imports.

Its input never contains names of the flow: paths, function results and loops are replaced by slots
whose names encode their types (`s0` is text, `li3` a list of integers). One environment therefore
serves all expressions, and an identifier always means what was resolved before. A slot without a
value is an error only if the expression needs it: `&&`, `||` and `?:` skip it as CEL defines.
"""

from __future__ import annotations

import functools
import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from cel_expr_python import cel as library  # type: ignore[import-untyped]
from cel_expr_python.ext import ext_math, ext_strings  # type: ignore[import-untyped]

from flowengine.flow.expressions.paths import NoValue, TooExpensive, name_of
from flowengine.flow.expressions.scope import LoopNames, Run, is_time
from flowengine.flow.expressions.types import (
    ANY,
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    INT,
    MAP,
    NULL,
    TEXT,
    TIMESTAMP,
    TYPE,
    kind,
    list_of,
)

if TYPE_CHECKING:
    from flowengine.flow.expressions.interface import Schema
    from flowengine.kernel.graph.compiled import Plain
    from flowengine.kernel.graph.evaluator import ReadableNames

_T = library.Type
_SCALARS = {
    "b": ("boolean", _T.BOOL),
    "i": ("integer", _T.INT),
    "d": ("number", _T.DOUBLE),
    "s": ("string", _T.STRING),
    "o": ("bytes", _T.BYTES),
    "t": ("timestamp", _T.TIMESTAMP),
    "u": ("duration", _T.DURATION),
    "m": ("object", _T.Map(_T.STRING, _T.DYN)),
    "y": ("anything", _T.DYN),
}
_SLOT_TYPES = {letter: type_ for letter, (_, type_) in _SCALARS.items()}
_SLOT_TYPES.update({f"l{letter}": _T.List(type_) for letter, type_ in _SLOT_TYPES.items()})
_LETTERS = {word: letter for letter, (word, _) in _SCALARS.items()}
_WHOLE = (_LETTERS["integer"], f"l{_LETTERS['integer']}")
"""The first letters of slots that hold integers, or lists of them."""
_SIZES = (8, 64, 1024)
ROUND = 3
"""Additional cost of an evaluation by the library in a loop, compared to one without it."""

_ERROR = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (.*)")
_NO_VALUE = re.compile(r"""No value with name "(\w+)" found|for '(\w+)""")
_PREFIX = re.compile(r"^(?:[A-Z_]+: )?(.*?)(?: \[[A-Z_]+\])?$", re.DOTALL)


class Complaint(NamedTuple):
    """One error that the library reports in an expression."""

    offset: int
    message: str


def slot_letters(schema: Schema, items: Schema | None = None) -> str:
    """Return the first letters of a slot's name, which encode its type.

    Args:
        schema: The schema of the slot, with its references resolved.
        items: The schema of the items of a list.

    Returns:
        One of the keys of the slot types.
    """
    word = kind(schema)
    if word == "array":
        return "l" + _LETTERS.get(kind(items or ANY) or "anything", "y")
    return _LETTERS.get(word or "anything", "y")


@functools.cache
def _environment(size: int) -> Any:
    """Return an environment with the given number of slots of each type."""
    return library.NewEnv(
        variables={
            f"{letters}{number}": type_
            for letters, type_ in _SLOT_TYPES.items()
            for number in range(size)
        },
        extensions=[ext_strings.ExtStrings(), ext_math.ExtMath()],
    )


def _compiled(source: str, slots: int) -> Any:
    """Return the library's expression, with an environment that has as few slots as possible."""
    return _expression(source, next((size for size in _SIZES if slots <= size), slots))


@functools.lru_cache(maxsize=2048)
def _expression(source: str, size: int) -> Any:
    """Compile an expression once, for the check and for all executions."""
    return _environment(size).compile(source)


def check(source: str, slots: int) -> Schema | list[Complaint]:
    """Check the types of an expression over slots.

    Args:
        source: The expression.
        slots: Number of slots.

    Returns:
        The schema of its value, or the complaints.
    """
    try:
        return _schema(_compiled(source, slots).return_type().name())
    except RuntimeError as error:
        return _complaints(str(error), source)


def _complaints(report: str, source: str) -> list[Complaint]:
    """Parse the library's report."""
    lines = source.split("\n")
    problems = []
    for match in _ERROR.finditer(report):
        line, column = int(match[1]), int(match[2])
        before = sum(len(text) + 1 for text in lines[: line - 1]) if line > 0 else 0
        message = match[3].removesuffix(" [INVALID_ARGUMENT]")
        problems.append(Complaint(before + max(column - 1, 0), message))
    return problems or [Complaint(0, _bare(report))]


def _schema(name: str) -> Schema:
    """Return the schema for the name of one of the library's types."""
    simple = {
        "BOOL": BOOL,
        "INT": INT,
        "UINT": INT,
        "DOUBLE": DOUBLE,
        "STRING": TEXT,
        "BYTES": BYTES,
        "NULL": NULL,
        "TIMESTAMP": TIMESTAMP,
        "DURATION": DURATION,
    }
    if name.startswith("LIST<"):
        items = _schema(name[5:-1])
        return list_of(items if kind(items) not in {"timestamp", "duration"} else TEXT)
    if name.startswith("MAP<"):
        return MAP
    if name.startswith("TYPE"):
        return TYPE
    return simple.get(name, ANY)


def program(source: str, slots: dict[str, Run], shown: dict[str, str]) -> Run:
    """Return a function that evaluates an expression over slots.

    Args:
        source: The expression.
        slots: For each slot, the function that returns its value.
        shown: For each slot, its name in messages.

    Returns:
        The function.
    """
    try:
        evaluate = _compiled(source, len(slots)).eval
    except RuntimeError as error:
        reason = _bare(str(error))
        return _always(f"this version cannot evaluate the expression: {reason}")
    pairs = [(slot, _whole(get) if slot.startswith(_WHOLE) else get) for slot, get in slots.items()]

    def run(names: ReadableNames) -> Plain:
        data: dict[str, Plain] = {}
        failures: dict[str, NoValue] = {}
        for slot, get in pairs:
            try:
                data[slot] = get(names)
            except TooExpensive:
                raise
            except NoValue as error:
                failures[slot] = error
        if isinstance(names, LoopNames):
            names.budget.charge(ROUND)
            for value in data.values():
                names.budget.charge_value(value)
        try:
            result = evaluate(data=data)
            value = result.plain_value()
        except RuntimeError as error:
            raise _reason(str(error), data, failures, shown) from None
        if type(value) is bool:
            return value
        if type(value) is str and result.type() == _T.ERROR:
            raise _reason(value, data, failures, shown)
        value = _plain(value)
        if isinstance(names, LoopNames):
            names.budget.charge_value(value)
        return value

    return run


def _whole(get: Run) -> Run:
    """Return a function that returns integers where they are declared: `3` for `3.0`."""

    def run(names: ReadableNames) -> Plain:
        value = get(names)
        if type(value) is list and any(type(item) is float for item in value):
            return [_as_integer(item) for item in value]
        return _as_integer(value)

    return run


def _as_integer(value: Plain) -> Plain:
    return int(value) if type(value) is float and value.is_integer() else value


def _always(message: str) -> Run:
    """Return a function that always fails."""

    def run(names: ReadableNames) -> Plain:
        raise NoValue(message)

    return run


def _plain(value: Any, depth: int = 0) -> Plain:
    """Return a result of the library as plain data.

    Maps are sorted, because they have no order there.
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise NoValue("integer overflow: the result is beyond 64 bits")
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NoValue("the result is not a finite number")
        return value
    if isinstance(value, list):
        return [_plain(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {key: _plain(value[key], depth + 1) for key in sorted(value)}
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if is_time(value):
        return value if depth == 0 else _time_text(value)
    raise NoValue("the result is a type, no value")


def _time_text(value: Any) -> str:
    """Return a time inside a list or map as text."""
    from flowengine.flow.expressions.functions import plain_time

    return str(plain_time(value))


def _reason(
    report: str, data: dict[str, Plain], failures: dict[str, NoValue], shown: dict[str, str]
) -> NoValue:
    """Return the reason why an evaluation failed, in the terms of the flow."""
    match = _NO_VALUE.search(report)
    slot = (match[1] or match[2]) if match else None
    if slot in failures:
        return failures[slot]
    if slot in data:
        return _wrong_value(slot, data[slot], shown[slot], report)
    if "construction from null" in report:
        return NoValue("a text is not valid Unicode: it has lone surrogates")
    if "beyond" in report or "too big to convert" in report:
        return NoValue("an integer is beyond 64 bits")
    if "cannot be interpreted as an integer" in report:
        return NoValue("a number with a fraction stands where an integer was declared")
    operands = [f"{shown[slot]} is {name_of(value)}" for slot, value in data.items()]
    return NoValue(_in_words(_bare(report), ", ".join(operands)))


def _wrong_value(slot: str, value: Plain, shown: str, report: str) -> NoValue:
    """Return the error for the value of a slot."""
    if "out of range" in report:
        return NoValue(f"{shown} is or holds an integer beyond 64 bits")
    letters = slot.rstrip("0123456789")
    wanted = {"l": "a list"}.get(letters[0]) or {
        "b": "true or false",
        "i": "an integer",
        "d": "a number",
        "s": "text",
        "m": "a map",
    }.get(letters, "another type")
    if isinstance(value, list) and letters[0] == "l":
        return NoValue(f"{shown} holds items of another type than declared")
    return NoValue(f"{shown} is {name_of(value)}, but declared as {wanted}")


def _bare(report: str) -> str:
    """Return a report without its status."""
    match = _PREFIX.match(report.strip())
    return match[1] if match else report


def _in_words(report: str, operands: str) -> str:
    """Return a report of the library in the terms of the flow.

    `operands` names the slots' values.
    """
    match = re.fullmatch(r'Key not found in map : "?(.*?)"?', report)
    if match:
        return f"a map has no '{match[1]}'"
    match = re.fullmatch(r"Index error: index=(-?\d+) size=(\d+)", report)
    if match:
        return f"a list has {match[2]} items, but none at {match[1]}"
    match = re.match(r"No matching overloads found : (?:\(\w*\)\.)?(\S+?)(?:\(|$)", report)
    if match:
        why = f": {operands}" if operands else ""
        return f"{operator_words(match[1])} does not take values of these types{why}"
    if "SELECT to non-message" in report:
        return "a path leads into a value that is not a map"
    return report


def operator_words(name: str) -> str:
    """Return the name in messages for the library's name of an operator or function.

    Args:
        name: For example `_+_`, `@in`, `size`.

    Returns:
        For example `'+'`.
    """
    words = {"_?_:_": "?:", "_[_]": "[]", "@in": "in", "<jump_condition>": "?:"}
    if name in words:
        return f"'{words[name]}'"
    return f"'{name.strip('_') or name}'"
