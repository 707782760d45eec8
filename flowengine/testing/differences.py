"""Differences between two values, part by part, in readable form."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any

from flowengine.equality import same

MOST = 20
"""Lines that are shown."""
LONGEST = 200


def differences(expected: Any, actual: Any) -> list[str]:
    """Return a line for each part in which two values differ.

    Args:
        expected: The expected value.
        actual: The actual value.

    Returns:
        Lines such as `amount: expected 1, found 2`. If there are many, only the first ones.
    """
    lines = list(_parts(expected, actual, ""))
    more = len(lines) - MOST
    return [*lines[:MOST], f"… and {more} more"] if more > 0 else lines


def ways_apart(expected: Sequence[str], actual: Sequence[str]) -> list[str]:
    """Return two paths side by side as one list: `-` was expected, `+` is there instead."""
    lines = []
    matcher = SequenceMatcher(None, expected, actual, autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind == "equal":
            lines += [f"  {line}" for line in expected[a:b]]
        else:
            lines += [f"- {line}" for line in expected[a:b]] + [f"+ {one}" for one in actual[c:d]]
    return lines


def shown(value: Any) -> str:
    """Return a value on one line, cut if it is long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _parts(expected: Any, actual: Any, path: str) -> Iterator[str]:
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key in [*expected, *(key for key in actual if key not in expected)]:
            inner = f"{path}.{key}" if path else key
            if key not in actual:
                yield f"{inner}: expected {shown(expected[key])}, it is missing"
            elif key not in expected:
                yield f"{inner}: not expected, found {shown(actual[key])}"
            else:
                yield from _parts(expected[key], actual[key], inner)
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for index, (one, other) in enumerate(zip(expected, actual, strict=True)):
            yield from _parts(one, other, f"{path}[{index}]")
    elif not same(expected, actual):
        place = f"{path}: " if path else ""
        yield f"{place}expected {shown(expected)}, found {shown(actual)}"
