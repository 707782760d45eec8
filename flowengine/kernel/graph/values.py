"""Compiled values: preparation when their step is linked, secrets in them, and digests.

Texts that name secrets are removed from plain data for storage, and inserted again for use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from flowengine.kernel.graph.compiled import Plain, SecretText, Value
from flowengine.kernel.graph.evaluator import ReadableNames

Evaluate = Callable[[int, ReadableNames], Plain]
Make = Callable[[ReadableNames], Plain]


def maker(evaluate: Evaluate, value: Value) -> Make | None:
    """Return a function that evaluates a value of constants, expressions, lists and maps.

    None for other values. The function has the same result as `names.evaluate`.

    Args:
        evaluate: Evaluates an expression.
        value: See `graph`.
    """
    tag, content = value
    if tag == "const":
        return lambda names: content
    if tag == "expr":
        return partial(evaluate, content)
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
            pending.extend(content[:2])  # the third part contains names
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


def masked(value: Plain) -> Plain:
    """Return a value for display, with secrets masked."""
    if isinstance(value, SecretText):
        return "".join([part if isinstance(part, str) else "***" for part in value.parts])
    if isinstance(value, dict):
        return {key: masked(part) for key, part in value.items()}
    return [masked(part) for part in value] if isinstance(value, list) else value


def split_secrets(value: Plain, path: list[Any], secrets: list[Plain]) -> Plain:
    """Return a value with None for each text that names a secret, and add these to `secrets`."""
    if isinstance(value, SecretText):
        secrets.append([path, value.parts])
        return None
    if isinstance(value, dict):
        return {k: split_secrets(v, [*path, k], secrets) for k, v in value.items()}
    if isinstance(value, list):
        return [split_secrets(v, [*path, i], secrets) for i, v in enumerate(value)]
    return value


def join_secrets(value: Plain, secrets: list[Plain]) -> Plain:
    """Return a copy of a value with the texts that name secrets in their places."""
    for path, parts in secrets:
        value = put_at(value, path, SecretText(parts))
    return value


def put_at(value: Plain, path: list[Any], leaf: Plain) -> Plain:
    """Return a copy of nested data with `leaf` at `path`."""
    if not path:
        return leaf
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = put_at(copy[path[0]], path[1:], leaf)
    return copy


def digest(value: Plain) -> str:
    """Return the SHA-256 of a value in its canonical form, in hexadecimal digits.

    Different values have different forms: `1` and `1.0`, bytes and any text, the reference to a
    secret and any map. The order of the keys of a map does not matter.
    """
    import hashlib
    import json

    text = json.dumps(_canonical(value), separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _canonical(value: Any) -> Any:
    if isinstance(value, dict):
        return {"map": [[key, _canonical(value[key])] for key in sorted(value)]}
    if isinstance(value, list):
        return [_canonical(part) for part in value]
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    return {"secret": value.parts} if isinstance(value, SecretText) else value
