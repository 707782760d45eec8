"""The tree of an expression. Each node has its position in the text."""

from __future__ import annotations

from typing import Any, NamedTuple


class Literal(NamedTuple):
    """A constant. `text` is its notation."""

    value: Any
    text: str
    start: int
    end: int


class Name(NamedTuple):
    """An identifier that is not a keyword."""

    name: str
    start: int
    end: int


class Select(NamedTuple):
    """`base.field`."""

    base: Node
    field: str
    start: int
    end: int


class Index(NamedTuple):
    """`base[index]`."""

    base: Node
    key: Node
    start: int
    end: int


class CallNode(NamedTuple):
    """`name(args)` or `target.name(args)`. `at` is the position of the name."""

    target: Node | None
    name: str
    args: list[Node]
    start: int
    end: int
    at: int


class Items(NamedTuple):
    """A list literal."""

    items: list[Node]
    start: int
    end: int


class Entries(NamedTuple):
    """A map literal."""

    entries: list[tuple[Node, Node]]
    start: int
    end: int


class Unary(NamedTuple):
    """`!x`, `-x`."""

    op: str
    operand: Node
    start: int
    end: int


class Binary(NamedTuple):
    """`left op right`. `at` is the position of the operator."""

    op: str
    left: Node
    right: Node
    start: int
    end: int
    at: int


class Ternary(NamedTuple):
    """`condition ? yes : no`. `at` is the position of the `?`."""

    condition: Node
    yes: Node
    no: Node
    start: int
    end: int
    at: int


Node = Literal | Name | Select | Index | CallNode | Items | Entries | Unary | Binary | Ternary
