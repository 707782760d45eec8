"""Conditions without the CEL library: comparisons with constants, type tests, combinations."""

from __future__ import annotations

from collections.abc import Callable

from flowengine.flow.expressions.interface import Schema
from flowengine.flow.expressions.program import KINDS, TYPES, Tree
from flowengine.flow.expressions.syntax_tree import Binary, CallNode, Literal, Name, Node, Unary
from flowengine.flow.expressions.types import kind

_MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_JOINS = {"&&": "and", "||": "or"}
_EXACT = 2**53
"""Integers up to this limit equal their doubles."""

Slot = Callable[[Node], tuple[Tree, Schema] | None]


def lower(node: Node, slot: Slot) -> Tree | None:
    """Return the node of an operator that is evaluated without the library.

    Args:
        node: An expression with valid types.
        slot: Returns node and schema of a part that is evaluated here, or None if it needs the
            library.

    Returns:
        The node, or None if it needs the library.
    """
    if isinstance(node, Unary) and node.op == "!":
        inner = _condition(node.operand, slot)
        return inner and ["not", inner]
    if not isinstance(node, Binary):
        return None
    if node.op in _JOINS:
        left, right = _condition(node.left, slot), _condition(node.right, slot)
        if left is None or right is None:
            return None
        word = _JOINS[node.op]
        first = left[1] if left[0] == word else [left]
        return [word, [*first, right]]
    if node.op in _MIRRORED:
        if isinstance(node.left, Literal):
            return _comparison(_MIRRORED[node.op], node.right, node.left, slot)
        if isinstance(node.right, Literal):
            return _comparison(node.op, node.left, node.right, slot)
        if node.op in {"==", "!="}:
            same = _same_type(node.left, node.right, slot)
            return same if same is None or node.op == "==" else ["not", same]
    return None


def _condition(node: Node, slot: Slot) -> Tree | None:
    """Return the node of an operand of `&&`, `||` or `!`."""
    index = slot(node)
    return lower(node, slot) if index is None else index[0]


def _comparison(op: str, operand: Node, constant: Literal, slot: Slot) -> Tree | None:
    """Return the node of a comparison with a constant."""
    value = constant.value
    if constant.text.endswith(("u", "U")) or not isinstance(value, (bool, int, float, str)):
        return None
    if isinstance(value, (int, float)) and abs(value) > _EXACT:
        return None
    index = slot(operand)
    if index is None:
        return None
    declared = kind(index[1])
    if declared is not None and declared not in KINDS:
        return None
    return ["compare", op, index[0], value, declared]


def _same_type(call: Node, name: Node, slot: Slot) -> Tree | None:
    """Return the node of `type(x) == map`, if the type of `x` is known only from its value."""
    if not (isinstance(call, CallNode) and call.name == "type" and isinstance(name, Name)):
        return None
    if name.name not in TYPES or slot(name) is not None:  # the name has another meaning here
        return None
    index = slot(call.args[0])
    return ["type", index[0], name.name] if index and kind(index[1]) is None else None
