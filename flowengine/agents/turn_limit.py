"""The limit on model calls in one run of agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowengine.errors import UsageError

TURNS = 30
LAST = ("fail", "answer")


def turn_limit(spec: int | Mapping[str, Any]) -> dict[str, Any]:
    """Return the turn limit for a value of `max_turns`, in long form.

    Args:
        spec: A number, or `{"count": 10, "last": "answer"}`. The `last` turn fails, or makes the
            model answer without tools.

    Raises:
        UsageError: The value has another form.
    """
    given = dict(spec) if isinstance(spec, Mapping) else {"count": spec}
    limit = {"count": TURNS, "last": "fail", **given}
    turns = limit["count"]
    if len(limit) > 2 or type(turns) is not int or turns < 1 or limit["last"] not in LAST:
        raise UsageError(
            f"max_turns is {spec!r}",
            hint="give a whole number from 1 on, or {'count': 10, 'last': 'answer'}",
        )
    return limit
