"""The part of an expression that the CEL library evaluates: its text over slots."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from flowengine.flow.expressions import cel
from flowengine.flow.expressions.interface import Schema
from flowengine.flow.expressions.program import Tree
from flowengine.flow.expressions.syntax_tree import (
    Binary,
    CallNode,
    Items,
    Literal,
    Name,
    Node,
    Ternary,
    Unary,
)

_LEVELS = {"||": 1, "&&": 2, "+": 4, "-": 4, "*": 5, "/": 5, "%": 5}
_RELATION = 3
_UNARY = 6
_MEMBER = 7


class Fragment:
    """Writes the text of operators and standard functions. All other parts become slots.

    Args:
        slot: Returns node, schema and item schema of the value in a slot.
        raw: Returns whether a tree is passed to the library unchanged.
        mixed: Comparisons of integers with numbers, by position. The library supports them only for
            dynamic values.
    """

    def __init__(
        self,
        slot: Callable[[Node], tuple[Tree, Schema, Schema]],
        raw: Callable[[Node], bool],
        mixed: set[int],
    ) -> None:
        self._slot_of = slot
        self._raw = raw
        self._mixed = mixed
        self._parts: list[str] = []
        self._length = 0
        self._starts: list[int] = []
        self._origins: list[Node] = []
        self._known: dict[str, str] = {}
        self.slots: dict[str, Tree] = {}

    @property
    def text(self) -> str:
        """The expression in the form for the library."""
        return "".join(self._parts)

    def origin(self, offset: int) -> Node:
        """Return the tree that a position in the text comes from.

        Args:
            offset: The position.

        Returns:
            The tree.
        """
        return self._origins[max(bisect_right(self._starts, offset) - 1, 0)]

    def write(self, node: Node, level: int = 0) -> None:
        """Append a tree.

        Args:
            node: The tree.
            level: The precedence below which it is put in brackets.
        """
        if not self._raw(node):
            self._put(self._slot(node), node)
        elif isinstance(node, Ternary):
            self._bracketed(node, 0, level, self._ternary)
        elif isinstance(node, Binary):
            self._bracketed(node, _LEVELS.get(node.op, _RELATION), level, self._binary)
        elif isinstance(node, Unary):
            self._unary(node)
        elif isinstance(node, CallNode):
            self._call(node)
        elif isinstance(node, Items):
            self._arguments("[", node.items, "]", node)
        else:
            self._put(node.text if isinstance(node, Literal) else _name(node), node)

    def _unary(self, node: Unary) -> None:
        """Write a unary operator.

        A sign before a sign gets brackets, because `--1` would be an error.
        """
        inner = node.operand
        signed = isinstance(inner, Unary) or (
            isinstance(inner, Literal) and inner.text.startswith("-")
        )
        self._put(f"{node.op}(" if signed else node.op, node)
        self.write(inner, 0 if signed else _UNARY)
        if signed:
            self._put(")", node)

    def _put(self, text: str, origin: Node) -> None:
        self._starts.append(self._length)
        self._origins.append(origin)
        self._parts.append(text)
        self._length += len(text)

    def _slot(self, node: Node) -> str:
        """Return the slot for the value of a tree. Equal trees share one."""
        tree, schema, items = self._slot_of(node)
        key = repr(tree)
        if key not in self._known:
            letters = cel.slot_letters(schema, items)
            number = sum(name.rstrip("0123456789") == letters for name in self.slots)
            self._known[key] = f"{letters}{number}"
            self.slots[self._known[key]] = tree
        return self._known[key]

    def _bracketed(self, node: Any, own: int, needed: int, write: Callable[[Any], None]) -> None:
        if own < needed:
            self._put("(", node)
        write(node)
        if own < needed:
            self._put(")", node)

    def _ternary(self, node: Ternary) -> None:
        self.write(node.condition, 1)
        self._put(" ? ", node)
        self._branch(node.yes, 1)
        self._put(" : ", node)
        self._branch(node.no, 0)

    def _branch(self, node: Node, level: int) -> None:
        """Write a branch.

        Null beside a typed value makes the result dynamic instead of an error.
        """
        if isinstance(node, Literal) and node.value is None:
            self._put("dyn(null)", node)
        else:
            self.write(node, level)

    def _binary(self, node: Binary) -> None:
        level = _LEVELS.get(node.op, _RELATION)
        mixed = node.at in self._mixed
        self._dynamic(node.left, level, mixed and node.op == "in")
        self._put(f" {node.op} ", node)
        self._dynamic(node.right, level + 1, mixed and node.op != "in")

    def _dynamic(self, node: Node, level: int, dynamic: bool) -> None:
        if dynamic:
            self._put("dyn(", node)
        self.write(node, 0 if dynamic else level)
        if dynamic:
            self._put(")", node)

    def _call(self, node: CallNode) -> None:
        if node.target is not None:
            self.write(node.target, _MEMBER)
            self._put(".", node)
        self._arguments(f"{node.name}(", node.args, ")", node)

    def _arguments(self, opening: str, nodes: list[Node], closing: str, origin: Node) -> None:
        self._put(opening, origin)
        for count, node in enumerate(nodes):
            if count:
                self._put(", ", origin)
            self.write(node)
        self._put(closing, origin)


def _name(node: Node) -> str:
    """Return the name of a type or namespace."""
    return node.name if isinstance(node, Name) else ""
