"""The limit on model calls in one run of agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from flowengine.errors import UsageError

TURNS = 30
LAST = ("fail", "answer")


class TurnLimit(NamedTuple):
    """A number of turns, and the purpose of the last one."""

    turns: int = TURNS
    last: str = "fail"
    """`fail`, or `answer`, which makes the model answer in the last turn without tools."""


def turn_limit(spec: int | Mapping[str, Any]) -> TurnLimit:
    """Return the turn limit for a value of `max_turns`.

    Args:
        spec: A number, or `{"count": 10, "last": "answer"}`.

    Raises:
        UsageError: The value has another form.
    """
    keys: dict[str, Any] = dict(spec) if isinstance(spec, Mapping) else {"count": spec}
    turns, last = keys.pop("count", TURNS), keys.pop("last", "fail")
    if keys or type(turns) is not int or turns < 1 or last not in LAST:
        raise UsageError(
            f"max_turns is {spec!r}",
            hint="give a whole number from 1 on, or {'count': 10, 'last': 'answer'}",
        )
    return TurnLimit(turns, last)
