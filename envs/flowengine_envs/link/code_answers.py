"""Answers of a process that runs code, which may send anything because the code controls it.

An answer is a map with `value` (as encoded by `plain.encode`), `text`, `large`, `error` and `left`,
all optional. Anything else violates the protocol and is discarded.
"""

from __future__ import annotations

import json
from typing import Any

from flowengine_envs.link import plain

LARGEST = 8 * 1024 * 1024
"""Maximum bytes of an answer. Its value and texts are truncated to much less before."""
_ERROR = {"type": str, "message": str, "traceback": str}


class Broken(Exception):
    """The answer is invalid. The message contains the reason."""


def read(body: bytes) -> dict[str, Any]:
    """Return the map in an answer without checking its contents.

    Raises:
        Broken: It is not a map.
    """
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        raise Broken("it is not JSON") from None
    if not isinstance(answer, dict):
        raise Broken("it is not a map")
    return answer


def check(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the known fields of an answer after checking their types.

    Raises:
        Broken: A field has the wrong type.
    """
    answers = {name: answer[name] for name in _CHECKS if name in answer}
    for name, value in answers.items():
        if not _CHECKS[name](value):
            raise Broken(f"its '{name}' is none")
    return answers


def _is_plain(value: Any) -> bool:
    try:
        plain.decode(value)
    except ValueError:
        return False
    return True


def _is_error(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() - {"file_is_full"} == {*_ERROR, "line"}
        and value.get("file_is_full", True) is True
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
