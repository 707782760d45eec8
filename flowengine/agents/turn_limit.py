"""How often models may be called in one run of agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from flowengine.errors import UsageError

TURNS = 30
LAST = ("fail", "answer")


class TurnLimit(NamedTuple):
    """How often, and what the last call is for."""

    turns: int = TURNS
    last: str = "fail"
    """`answer`: the model has to answer then, from what is known."""


def turn_limit(said: int | Mapping[str, Any]) -> TurnLimit:
    """Return what `max_turns` of a program means.

    Args:
        said: A number, or `{"count": 10, "last": "answer"}`.

    Raises:
        UsageError: It is neither.
    """
    keys: dict[str, Any] = dict(said) if isinstance(said, Mapping) else {"count": said}
    turns, last = keys.pop("count", TURNS), keys.pop("last", "fail")
    if keys or type(turns) is not int or turns < 1 or last not in LAST:
        raise UsageError(
            f"max_turns is {said!r}",
            hint="give a whole number from 1 on, or {'count': 10, 'last': 'answer'}",
        )
    return TurnLimit(turns, last)
