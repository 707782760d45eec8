"""The paths into `steps` that a compiled expression reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from flowengine.flow.expressions.scope import Tree


def step_paths(node: Tree, handled: bool = False) -> Iterator[tuple[list[Any], bool]]:
    """Yield the keys of each path into `steps`, up to the first computed one.

    Args:
        node: A node of an expression, see `program`.
        handled: Whether the expression has a value even if the node leads to nothing.

    Yields:
        The keys, and whether the expression has a value even if they lead to nothing.
    """
    if node[:2] == ["path", "steps"]:
        computed = [place for place, key in enumerate(node[2]) if isinstance(key, list)]
        yield node[2][: computed[0]] if computed else node[2], handled
    for part in _INNER[node[0]](*node[1:]):
        lenient = node[0] == "has" or (node[0] == "default" and part[0] in ("path", "get"))
        yield from step_paths(part, lenient or (node[0] == "get" and handled))


def tested_steps(node: Tree) -> Iterator[str]:
    """Yield the steps whose result an expression tests: whether it is there, null, or of a type."""
    if node[0] in ("null", "has", "type") or node[:2] == ["op", "type"]:
        (tested,) = _INNER[node[0]](*node[1:])
        yield from (keys[0] for keys, _ in step_paths(tested) if keys and isinstance(keys[0], str))
    for part in _INNER[node[0]](*node[1:]):
        yield from tested_steps(part)


def _computed(keys: list[Any]) -> list[Tree]:
    return [key[0] for key in keys if isinstance(key, list)]


_INNER: dict[str, Callable[..., list[Tree]]] = {
    "and": lambda nodes: nodes,
    "or": lambda nodes: nodes,
    "not": lambda node: [node],
    "as": lambda node, *_kinds: [node],
    "compare": lambda _operator, node, _constant, _kind: [node],
    "call": lambda _name, nodes: nodes,
    "cel": lambda _source, slots: list(slots.values()),
    "const": lambda _data: [],
    "default": lambda nodes: nodes,
    "get": lambda base, keys: [base, *_computed(keys)],
    "has": lambda node: [node],
    "if": lambda condition, yes, no: [condition, yes, no],
    "list": lambda nodes: nodes,
    "loop": lambda _macro, over, _name, bodies: [over, *bodies],
    "map": lambda entries: [*_computed([key for key, _ in entries]), *(n for _, n in entries)],
    "null": lambda node, _equal: [node],
    "op": lambda _name, nodes: nodes,
    "path": lambda _root, keys: _computed(keys),
    "type": lambda node, _name: [node],
}
"""Kind of a node → the nodes in it."""
