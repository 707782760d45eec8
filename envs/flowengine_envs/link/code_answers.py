"""What a process that runs code may say of it; the process is the code's own, and may say anything.

An answer is a map with `value` (as `plain.encode` makes it), `text`, `large`, `error` and `left`,
all of which may be missing. One that is anything else breaks the protocol, and is worth nothing.
"""

from __future__ import annotations

import json
from typing import Any

from flowengine_envs.link import plain

LARGEST = 8 * 1024 * 1024
"""Bytes of an answer; a value and each text in it are cut before, to much less."""
_ERROR = {"type": str, "message": str, "traceback": str}


class Broken(Exception):
    """It is no answer; the message says why."""


def read(body: bytes) -> dict[str, Any]:
    """Return the map in an answer as it was sent; what is in it is not looked at.

    Raises:
        Broken: It is no map.
    """
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        raise Broken("it is not JSON") from None
    if not isinstance(answer, dict):
        raise Broken("it is not a map")
    return answer


def check(answer: dict[str, Any]) -> dict[str, Any]:
    """Return what there is of an answer that may be passed on.

    Raises:
        Broken: Something in it is of the wrong type.
    """
    found = {name: answer[name] for name in _CHECKS if name in answer}
    for name, value in found.items():
        if not _CHECKS[name](value):
            raise Broken(f"its '{name}' is none")
    return found


def _is_plain(value: Any) -> bool:
    try:
        plain.decode(value)
    except ValueError:
        return False
    return True


def _is_error(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == {*_ERROR, "line"}
        and all(isinstance(value[name], kind) for name, kind in _ERROR.items())
        and (value["line"] is None or type(value["line"]) is int)
    )


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


_CHECKS = {
    "value": _is_plain,
    "text": lambda value: isinstance(value, str),
    "large": lambda value: value is True,
    "error": _is_error,
    "left": _are_texts,
}
