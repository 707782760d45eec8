"""Compiled values: made ready, and searched for secrets, once, when their step is linked."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from flowengine.kernel.graph.compiled import Plain, Value
from flowengine.kernel.graph.evaluator import Names

Evaluate = Callable[[int, Names], Plain]
Make = Callable[[Names], Plain]


def maker(evaluate: Evaluate, value: Value) -> Make | None:
    """Return what makes a value of constants, expressions, lists and maps; None of any other.

    What it makes is what `names.evaluate` gives.

    Args:
        evaluate: Gives an expression its value.
        value: See `graph`.
    """
    tag, content = value
    if tag == "const":
        return lambda names: content
    if tag == "expr":
        return lambda names: evaluate(content, names)
    if tag == "list":
        return _list(_all(evaluate, content))
    return _map(list(content), _all(evaluate, content.values())) if tag == "map" else None


def holds_secret(value: Value) -> bool:
    """Return whether a value names a secret anywhere.

    Args:
        value: See `graph`.
    """
    pending = [value]
    while pending:
        tag, content = pending.pop()
        if tag == "secret":
            return True
        if tag == "map":
            pending.extend(content.values())
        elif tag in {"list", "with"}:
            pending.extend(content)
        elif tag == "arguments":
            pending.extend(content[:2])  # then there are names
    return False


def _all(evaluate: Evaluate, values: Iterable[Value]) -> list[Make] | None:
    makers = [maker(evaluate, value) for value in values]
    made = [make for make in makers if make is not None]
    return made if len(made) == len(makers) else None


def _list(parts: list[Make] | None) -> Make | None:
    return None if parts is None else lambda names: [make(names) for make in parts]


def _map(keys: list[str], parts: list[Make] | None) -> Make | None:
    if parts is None:
        return None
    if len(keys) == 1:
        [key], [only] = keys, parts
        return lambda names: {key: only(names)}
    pairs = list(zip(keys, parts, strict=True))
    return lambda names: {key: make(names) for key, make in pairs}
