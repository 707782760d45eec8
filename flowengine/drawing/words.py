"""Expressions and values of a compiled flow as short texts, for labels."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from flowengine.flow.expressions.overloads import STANDARD_METHODS

LONGEST = 60


def condition(number: int, expressions: Sequence[Any]) -> str:
    """Return a condition as text.

    Args:
        number: Number of its expression.
        expressions: All expressions of the flow.
    """
    return cut(_node(expressions[number]["node"]))


def value(tree: Any, expressions: Sequence[Any]) -> str:
    """Return a value of the compiled flow as text.

    Args:
        tree: See `flowengine.kernel.graph.compiled`.
        expressions: All expressions of the flow.
    """
    kind = tree[0]
    if kind == "const":
        return cut(json.dumps(tree[1], ensure_ascii=False))
    if kind == "expr":
        return condition(tree[1], expressions)
    return "…"


def _node(node: Any) -> str:
    """Return an expression's tree as source text."""
    kind, *rest = node
    if kind == "cel":
        return _fragment(*rest)
    maker = _NODES.get(kind)
    return maker(*rest) if maker else "…"


def _fragment(text: str, slots: Any) -> str:
    """Return a piece of CEL with its slots filled in, and without casts of constants."""
    for name, node in slots.items():
        text = re.sub(rf"\b{name}\b", lambda _, node=node: _node(node), text)  # type: ignore[misc]
    return re.sub(r"\bdyn\(([^()]*)\)", r"\1", text)


def _operation(name: str, nodes: Sequence[Any]) -> str:
    if name in _BINDING and len(nodes) > 1:
        left, right = (_within(node, _BINDING[name] + place) for place, node in enumerate(nodes))
        return f"{left} {name} {right}"
    if name in _BINDING:
        return f"{name}{_operand(nodes[0])}"
    if name in STANDARD_METHODS:
        first, *others = nodes
        return f"{_operand(first)}.{name}({', '.join(map(_node, others))})"
    return f"{name}({', '.join(map(_node, nodes))})"


def _within(node: Any, binding: int) -> str:
    """Return an operand, in parentheses if it is an operator that binds less than its own."""
    inner = node
    while inner[0] == "as":
        inner = inner[1]
    is_looser = inner[0] == "op" and _BINDING.get(inner[1], 9) < binding and len(inner[2]) > 1
    return _operand(inner) if is_looser or inner[0] in ("and", "or", "if") else _node(inner)


def _path(root: str, keys: Sequence[Any]) -> str:
    text = root
    for key in keys:
        text += f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{_key(key)}]"
    return text


def _key(key: Any) -> str:
    return _node(key[0]) if isinstance(key, list) else json.dumps(key, ensure_ascii=False)


def _loop(name: str, over: Any, variable: str, nodes: Sequence[Any]) -> str:
    return f"{_node(over)}.{name}({', '.join([variable, *map(_node, nodes)])})"


def _null(inner: Any, equal: bool) -> str:
    return f"{_node(inner)} {'==' if equal else '!='} null"


def _compare(sign: str, left: Any, constant: Any, _type: str) -> str:
    return f"{_node(left)} {sign} {_constant(constant)}"


def _constant(constant: Any) -> str:
    return json.dumps(constant, ensure_ascii=False)


def _operand(node: Any) -> str:
    """Return a part of a condition, in parentheses where necessary."""
    text = _node(node)
    simple = ("path", "get", "call", "const", "has", "default", "not", "loop", "list", "map")
    while node[0] == "as":
        node = node[1]
    is_call = node[0] == "op" and node[1] not in _BINDING
    return text if node[0] in simple or is_call else f"({text})"


def _joined(sign: str) -> Callable[[Sequence[Any]], str]:
    return lambda nodes: f" {sign} ".join(
        _node(node) if node[0] in ("compare", "null", "op") else _operand(node) for node in nodes
    )


_BINDING = {
    **dict.fromkeys(("<", "<=", ">", ">=", "==", "!=", "in"), 1),
    **dict.fromkeys(("+", "-"), 2),
    **dict.fromkeys(("*", "/", "%"), 3),
}
"""Operator → how tightly it binds."""

_NODES: dict[str, Any] = {
    "op": _operation,
    "as": lambda node, *_types: _node(node),
    "map": lambda items: f"{{{', '.join(f'{_key(key)}: {_node(node)}' for key, node in items)}}}",
    "const": _constant,
    "compare": _compare,
    "and": _joined("&&"),
    "or": _joined("||"),
    "not": lambda inner: f"!{_operand(inner)}",
    "path": _path,
    "get": lambda base, keys: _path(_node(base), keys),
    "call": lambda name, nodes: f"{name}({', '.join(map(_node, nodes))})",
    "default": lambda nodes: f"default({', '.join(map(_node, nodes))})",
    "has": lambda inner: f"has({_node(inner)})",
    "if": lambda test, yes, no: f"{_node(test)} ? {_node(yes)} : {_node(no)}",
    "list": lambda nodes: f"[{', '.join(map(_node, nodes))}]",
    "null": _null,
    "loop": _loop,
}


def cut(text: str) -> str:
    """Return text that fits into a box or beside an arrow.

    Args:
        text: Any text, also of several lines.
    """
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
