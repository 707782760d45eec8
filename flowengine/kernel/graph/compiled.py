"""The compiled flow, which the kernel runs.

A compiled flow has two forms. The *plain* form (`CompiledFlow` in `specs.py`: nested dicts and
lists of JSON-like data) is written by the compiler, hashed, and stored next to an execution. The
*linked* form (`Graph`, `Body`, `Node` in `linked.py`) is created from it when an execution is
loaded. Steps are linked when control reaches them, so the cost of loading depends on the steps that
run rather than on the size of the flow. This module has the parts that both forms use.

A *value* is a small tree that may contain expressions:

    ["const", data]                  the data itself
    ["expr", i]                      the value of expression i, with its type
    ["text", [str | int, ...]]       text, with expressions given by their numbers
    ["list", [value, ...]]           a list of values
    ["map", {key: value}]            a map of values
    ["secret", [str | int | [name], ...]]   text that names secrets, see `SecretText`
    ["with", [args, value]]          a value whose expressions read the first one as `args`
    ["arguments", [given, fixed, names]]   the first map, extended by the second one. It is an
                                     error if the first map has one of the names (a list)
    ["given", [name, ...]]           a part of the input from the step that runs this flow,
                                     evaluated again in the place of that step

A *condition* is the number of an expression whose value is a bool.
"""

from __future__ import annotations

from typing import Any

FORMAT = 3
"""The version of compiled flows, events and states. It is increased by each change that gives
stored data another meaning: for example, if `State.last` counted records in another order, an event
would refer to a different unit than before. Any other format is rejected."""

END = -1
"""Target of an edge: this token ends."""
END_ALL = -2
"""Target of an edge: the enclosing scope ends, successfully."""
START = -1
"""Source of an edge: the start of the scope."""
TRIGGER = -2
"""Source of an edge: the step's own trigger."""

OPENING = "environments"
"""Kind and name of the hidden step that opens the initial environments of a flow."""

Value = list[Any]
Condition = int
Plain = Any
"""JSON-like data plus bytes: None, bool, int, float, str, bytes, list, dict with text keys."""


class SecretText:
    """Text that names secrets, in an evaluated input.

    Only the process that performs a side effect resolves it to text. It deliberately is not plain
    data: no value from a model, a tool or a file can imitate it, and it cannot be stored.
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
    """The format of a flow or of the state of an execution is not supported by this kernel.

    Args:
        version: Its format.
    """

    def __init__(self, version: object) -> None:
        super().__init__(
            f"it has format {version}; this version of flowengine runs format {FORMAT}"
        )


def check_format(version: object) -> None:
    """Reject stored data in another format.

    Args:
        version: The `format` of a compiled flow or of a state.

    Raises:
        OtherFormat: This kernel does not support the format.
    """
    if version != FORMAT:
        raise OtherFormat(version)


class EvaluationError(Exception):
    """An expression that has no value: `ExpressionError` in a flow.

    Args:
        message: The problem, with its position in the file.
        data: `{file, line, column, source}` where known.
    """

    def __init__(self, message: str, data: Plain = None) -> None:
        super().__init__(message)
        self.message = message
        self.data = data
