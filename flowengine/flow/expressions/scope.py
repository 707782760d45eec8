"""The form of each part of a built expression: a function of the surrounding names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flowengine.kernel.graph.compiled import Plain, ReadableNames

Tree = list[Any]
"""A node of an expression, see `program`."""
Run = Callable[[ReadableNames], Plain]
"""Evaluates a part of an expression, or raises `NoValue`."""


class Unsigned(int):
    """An unsigned integer: `5u`. Outside an expression, it is an integer."""

    __slots__ = ()


class TypeName(str):
    """The type of a value, by its name in CEL. It is not a value outside an expression."""

    __slots__ = ()


def is_time(value: Plain) -> bool:
    """Return whether a value is a time or a duration, without importing `datetime`."""
    return type(value).__module__ == "datetime"


class LoopNames:
    """The names inside a loop: the surrounding ones and its item."""

    __slots__ = ("budget", "name", "names", "value")

    def __init__(self, names: ReadableNames, name: str, value: Plain, budget: Any) -> None:
        self.names = names
        self.name = name
        self.value = value
        self.budget = budget
        """`EvaluationBudget` of the whole evaluation."""

    def __getitem__(self, root: str) -> Plain:
        return self.value if root == self.name else self.names[root]

    def field(self, name: str, field: str) -> Plain:
        names: Any = self.names
        return names.field(name, field)

    def variable(self, key: str) -> Plain:
        names: Any = self.names
        return names.variable(key)
