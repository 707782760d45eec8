"""Expressions and values of a compiled flow as short texts, for labels."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

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
    simple = node[0] in ("path", "get", "call", "const", "has", "default", "not", "loop")
    return text if simple else f"({text})"


def _joined(sign: str) -> Callable[[Sequence[Any]], str]:
    return lambda nodes: f" {sign} ".join(
        _node(node) if node[0] in ("compare", "null") else _operand(node) for node in nodes
    )


_NODES: dict[str, Any] = {
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
