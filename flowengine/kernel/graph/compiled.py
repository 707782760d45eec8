"""The compiled flow: what the kernel walks over.

A compiled flow has two forms. The *plain* form (`CompiledFlow` in `specs.py`: nested dicts and
lists of JSON-like data) is what the compiler writes, what is hashed, and what is stored beside an
execution. The *linked* form (`Graph`, `Body`, `Node` in `linked.py`) is made from it when an
execution is loaded, step by step as control reaches them, so that loading costs in proportion to
what runs and not to the size of the flow. Here is what both forms are written with.

A *value* is a small tree that may hold expressions:

    ["const", data]                  the data itself
    ["expr", i]                      the value of expression i, with its type
    ["text", [str | int, ...]]       text with the expressions (by number) put in
    ["list", [value, ...]]           a list of values
    ["map", {key: value}]            a map of values
    ["secret", [str | int | [name], ...]]   text that names secrets; see `SecretText`
    ["with", [args, value]]          a value that sees the first one as `args`
    ["arguments", [given, fixed, names]]   the map that the first one gives, with the map of the
                                     second; an error if it has one of the names (a list)
    ["given", [name, ...]]           a part of what the step that runs this flow gives it, evaluated
                                     anew: where, and as, that step stands

A *condition* is the number of an expression that gives a bool.
"""

from __future__ import annotations

from typing import Any

FORMAT = 3
"""What a compiled flow, the events of its executions and their states mean. A change by which what
is stored would mean something else raises it: by another order or number of what `State.last`
counts, an event names another unit than it did. Any other format is refused."""

END = -1
"""Target of an edge: this token ends."""
END_ALL = -2
"""Target of an edge: the enclosing scope ends, successfully."""
START = -1
"""Source of an edge: the start of the scope."""
TRIGGER = -2
"""Source of an edge: the step's own trigger."""

OPENING = "environments"
"""Kind and name of the hidden step that opens what is to be open from the start of a flow."""

Value = list[Any]
Condition = int
Plain = Any
"""JSON-like data plus bytes: None, bool, int, float, str, bytes, list, dict with text keys."""


class SecretText:
    """Text that names secrets, as an evaluated input holds it.

    Only the process that performs an effect turns it into text. It is no plain data on purpose:
    nothing that comes from a model, a tool or a file can look like one, and it cannot be stored.
    """

    __slots__ = ("parts",)

    def __init__(self, parts: list[str | list[str]]) -> None:
        self.parts = parts
        """Text, or a list with the name of one secret."""

    def __repr__(self) -> str:
        return "SecretText(***)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SecretText) and self.parts == other.parts

    def __hash__(self) -> int:
        return hash(str(self.parts))


class OtherFormat(Exception):
    """A flow, or the state of an execution, is of a format that this kernel does not run.

    Args:
        found: Its format.
    """

    def __init__(self, found: object) -> None:
        super().__init__(f"it has format {found}; this version of flowengine runs format {FORMAT}")


def check_format(found: object) -> None:
    """Refuse what is stored in another format.

    Args:
        found: The `format` of a compiled flow or of a state.

    Raises:
        OtherFormat: It is not the one that this kernel runs.
    """
    if found != FORMAT:
        raise OtherFormat(found)


class EvaluationError(Exception):
    """An expression that has no value: `ExpressionError` in a flow.

    Args:
        message: What happened, with the place in the file.
        data: `{file, line, column, source}` where known.
    """

    def __init__(self, message: str, data: Plain = None) -> None:
        super().__init__(message)
        self.message = message
        self.data = data
