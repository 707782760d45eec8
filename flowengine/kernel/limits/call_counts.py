"""Calls of tools, counted: how often each was called, and what its numbers add up to.

A call counts from the moment at which its arguments are known, before rules are looked at and
people are asked: of several calls at the same time each sees those before it. It counts once,
however often it is tried; one that is refused or rejected, or of which somebody gives the result,
was not made and does not count. What its arguments are changed to by whoever approves it counts in
place of what was asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.kernel.errors import StepFailure
from flowengine.kernel.graph.compiled import Plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flowengine.kernel.machine import Machine
    from flowengine.kernel.state.records import Unit


def count(m: Machine, unit: Unit, args: Plain, tool: str) -> None:
    """Count the call of a unit, if its step's calls are counted.

    Args:
        unit: It is about to call.
        args: The arguments.
        tool: The name of what is called.

    Raises:
        StepFailure: `LimitExceeded`: the tool was called as often as its `limits.calls` says.
    """
    node = m.graph.nodes[m.state["acts"][unit["act"]]["step"]]
    if not node.counts:
        return
    given = args if isinstance(args, dict) else {}
    numbers = {name: value for name, value in given.items() if type(value) in (int, float)}
    of = node.counts
    if node.tool.endswith(".*"):  # only now it is known which one of the server's it is
        of = f"{of} {tool[len(node.tool) - 1 :]}"
    mine: dict[str, Any] = {"of": of, "numbers": numbers}
    if "counted" in unit:
        if mine.items() <= unit["counted"].items():
            return
        forget(m, unit)
    calls = m.state.setdefault("calls", {})
    so_far = calls.setdefault(mine["of"], {"count": 0, "totals": {}})
    most = node.limits.get("calls")
    if most is not None and so_far["count"] >= most:
        message = f"{tool!r} was not called: its limits.calls allows {most} in an execution"
        data = {"tool": tool, "limit": "calls", "of": most}
        raise StepFailure("LimitExceeded", message, data, retryable=False)
    _add(so_far, numbers, 1)
    seen = {"count": so_far["count"], "totals": dict(so_far["totals"])}
    unit["counted"] = {**mine, "seen": seen}


def forget(m: Machine, unit: Unit) -> None:
    """Take back that a unit calls, if it was counted: the call is not made."""
    mine = unit.pop("counted", None)
    if mine is not None:
        _add(m.state["calls"][mine["of"]], mine["numbers"], -1)


def _add(so_far: dict[str, Any], numbers: Mapping[str, Any], times: int) -> None:
    so_far["count"] += times
    totals = so_far["totals"]
    for name, number in numbers.items():
        totals[name] = totals.get(name, 0) + times * number
