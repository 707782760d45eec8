"""Paths through values: `steps.draft.output.items[0]`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from flowengine.flow.expressions.scope import Tree
from flowengine.kernel.graph.compiled import Plain, ReadableNames

Key = str | int

ABSENT: Any = object()
"""Result of a lenient path that leads to nothing."""


class NoValue(Exception):
    """An expression, or a part of one, has no value. The message does not contain its place."""


class TooExpensive(NoValue):
    """An evaluation exceeds its maximum cost. No other operand can make up for that."""


class Missing(NoValue):
    """A path leads to nothing: to a missing key or item, or through null."""


def step(value: Plain, key: Plain, shown: Callable[[], str]) -> Plain:
    """Return the value of a key of a map, or the item at an index of a list.

    Args:
        value: The map or list.
        key: The key or index.
        shown: Returns the text of the path so far, for messages.

    Returns:
        The value there.

    Raises:
        Missing: The value does not exist, or `value` is null.
        NoValue: `value` or `key` has the wrong type.
    """
    if value is None:
        raise Missing(f"{shown()} is null")
    if isinstance(value, list):
        index = key
        if isinstance(index, str):
            raise NoValue(f"{shown()} is a list, so it has no '{index}'")
        if isinstance(index, float) and index.is_integer():
            index = int(index)
        if not isinstance(index, int) or isinstance(index, bool):
            raise NoValue(f"the index of {shown()} is {name_of(index)}, not an integer")
        if not 0 <= index < len(value):
            raise Missing(f"{shown()} has {len(value)} items, but none at {index}")
        return value[index]
    if isinstance(key, str) and not isinstance(value, (str, bytes, bool, int, float)):
        try:
            return value[key]
        except KeyError:
            raise Missing(f"{shown()} has no '{key}'") from None
    if isinstance(value, dict):
        raise NoValue(f"the keys of {shown()} must be text, not {name_of(key)}")
    raise NoValue(f"{shown()} is {name_of(value)}, which has no keys or items")


def name_of(value: Plain) -> str:
    """Return the name of a value's type in messages.

    Args:
        value: Any value.

    Returns:
        `a list`, `text`, ...
    """
    if value is None or value is ABSENT:
        return "null"
    names = {
        bool: "true or false",
        int: "an integer",
        float: "a number",
        str: "text",
        bytes: "bytes",
        list: "a list",
        dict: "a map",
    }
    return names.get(type(value)) or _INSIDE.get(type(value).__name__, "a value of no JSON type")


_INSIDE = {
    "datetime": "a time",
    "timedelta": "a duration",
    "Unsigned": "an unsigned integer",
    "TypeName": "a type",
}
"""Types that exist only inside an expression."""


def written(root: str, keys: Sequence[object]) -> str:
    """Return a path in the notation of the language.

    Args:
        root: Its first name.
        keys: Keys and indexes. All others are shown as `…`.

    Returns:
        The text.
    """
    text = root
    for key in keys:
        if isinstance(key, str):
            text += f".{key}" if key.isidentifier() else f'["{key}"]'
        else:
            text += f"[{key}]" if isinstance(key, int) else "[…]"
    return text


def of_names(root: str, keys: Sequence[str]) -> Callable[[ReadableNames], Plain]:
    """Return a function that follows a path of constant text keys.

    Args:
        root: The name it begins with.
        keys: The keys after it.

    Returns:
        The function, which raises `Missing` or `NoValue`.
    """
    if root == "steps" and len(keys) > 1:
        return _of_step(keys)
    if root == "state" and keys:
        return _of_state(keys)

    def get(names: ReadableNames) -> Plain:
        try:
            value = names[root]
            for key in keys:
                value = value[key]
        except (KeyError, TypeError):
            return follow(names, root, keys)
        return value

    return get


def _of_step(keys: Sequence[str]) -> Callable[[ReadableNames], Plain]:
    """Return a function that follows a path into one field of a step."""
    name, field, *rest = keys

    def get(names: Any) -> Plain:
        try:
            # most views have it, and build only the requested field
            value = names.field(name, field)
            for key in rest:
                value = value[key]
        except (AttributeError, KeyError, TypeError):
            return follow(names, "steps", keys)
        return value

    return get


def _of_state(keys: Sequence[str]) -> Callable[[ReadableNames], Plain]:
    """Return a function that follows a path into one key of the state."""
    first, *rest = keys

    def get(names: Any) -> Plain:
        try:
            value = names.variable(first)
            for key in rest:
                value = value[key]
        except (AttributeError, KeyError, TypeError):
            return follow(names, "state", keys)
        return value

    return get


def follow(names: ReadableNames, root: str, keys: Sequence[Key]) -> Plain:
    """Follow a path step by step, for an exact error message.

    Args:
        names: The values of root names.
        root: The name it begins with.
        keys: Keys and indexes.

    Returns:
        The value at its end.

    Raises:
        Missing: The path leads to nothing.
    """
    try:
        value = names[root]
    except KeyError:
        raise Missing(f"'{root}' has no value here") from None
    for at, key in enumerate(keys):
        value = step(value, key, lambda at=at: written(root, keys[:at]))  # type: ignore[misc]
    return value


# The paths that a compiled expression reads.


def step_paths(
    node: Tree, handled: bool = False, root: str = "steps"
) -> Iterator[tuple[list[Any], bool]]:
    """Yield the keys of each path into `steps` or another name, up to the first computed one.

    Args:
        node: A node of an expression, see `program`.
        handled: Whether the expression has a value even if the node leads to nothing.
        root: The name.

    Yields:
        The keys, and whether the expression has a value even if they lead to nothing.
    """
    if node[:2] == ["path", root]:
        computed = [place for place, key in enumerate(node[2]) if isinstance(key, list)]
        yield node[2][: computed[0]] if computed else node[2], handled
    for part in _INNER[node[0]](*node[1:]):
        lenient = node[0] == "has" or (node[0] == "default" and part[0] in ("path", "get"))
        yield from step_paths(part, lenient or (node[0] == "get" and handled), root)


def tested_steps(node: Tree) -> Iterator[str]:
    """Yield the steps whose result an expression tests: whether it is there, null, or of a type."""
    if node[0] in ("null", "has") or node[:2] == ["op", "type"]:
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
    "call": lambda _name, nodes: nodes,
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
}
"""Kind of a node → the nodes in it."""
