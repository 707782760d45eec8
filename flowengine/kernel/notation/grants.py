"""Scopes of grants, and patterns for the arguments of calls."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

FLOW = "flow"
"""The scope of a grant for all executions of a flow."""
ONLY_PEOPLE = frozenset({"required", "difference", "found", "form", "opens"})
"""Keys of a question about a call that no grant can answer."""

_DOT = re.compile("%2e", re.IGNORECASE)
"""A dot in a URL can be written like this."""
_EARLY_END = re.compile(r"[^/]*://[^/]*[?#@\\]")


def covers(grant: Mapping[str, Any], args: dict[str, Any]) -> bool:
    """Return whether arguments fit a grant: its patterns, or else the approved values.

    Args:
        grant: `patterns` by argument, and the `args` of the approved call.
        args: The arguments of another call.
    """
    patterns, before = grant["patterns"], grant["args"]
    if any(name not in args for name in patterns):
        return False
    return all(
        fits(patterns[name], value)
        if name in patterns
        else name in before and _same(before[name], value)
        for name, value in args.items()
    ) and all(name in args or name in patterns for name in before)


def fits(pattern: str, value: Any) -> bool:
    """Return whether a value fits a pattern.

    In a pattern, `*` matches any characters except `/`, `**` any characters, and `?` one character.
    A pattern with any of these never fits text with `..` in its path, so that `out/*` is limited to
    the contents of `out`. A URL pattern never fits a URL whose host ends earlier than it appears
    to, for example at a `#`.

    Args:
        pattern: A pattern for text. Other values are compared as JSON.
        value: The value.
    """
    text = value if isinstance(value, str) else _text(value)
    if pattern == "**":
        return True
    wild = any(sign in pattern for sign in "*?")
    if wild and ".." in re.split(r"[/\\]", _DOT.sub(".", text)):
        return False
    if wild and "://" in pattern and _EARLY_END.match(text):
        return False
    parts = re.split(r"(\*\*|\*|\?)", pattern)
    meaning = {"**": ".*", "*": r"[^/\\]*", "?": r"[^/\\]"}
    made = "".join([meaning.get(part) or re.escape(part) for part in parts])
    return re.fullmatch(made, text, re.DOTALL) is not None


def _same(first: Any, other: Any) -> bool:
    """Return whether two values and their types are the same: 1 differs from 1.0 and true."""
    if isinstance(first, dict) and isinstance(other, dict):
        ours, theirs = ({(type(key), key): key for key in each} for each in (first, other))
        return ours.keys() == theirs.keys() and all(
            _same(first[ours[key]], other[theirs[key]]) for key in ours
        )
    if isinstance(first, list | tuple) and isinstance(other, list | tuple):
        return len(first) == len(other) and all(map(_same, first, other))
    return type(first) is type(other) and repr(first) == repr(other)


def _text(value: Any) -> str:
    import json

    if isinstance(value, bytes):
        return f"bytes:{value.hex()}"
    try:
        return json.dumps(value, sort_keys=True, ensure_ascii=False, default=repr)
    except TypeError:  # keys of mixed types cannot be sorted
        return json.dumps(value, ensure_ascii=False, default=repr)
