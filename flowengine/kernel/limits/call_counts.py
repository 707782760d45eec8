"""Calls of tools, counted: how often each was called, and what its numbers add up to.

A call counts from the moment at which its arguments are known, before rules are looked at and
people are asked: of several calls at the same time each sees those before it. It counts once,
however often it is tried; one that is refused or rejected, or of which somebody gives the result,
was not made and does not count. What its arguments are changed to by whoever approves it counts in
place of what was asked. A number counts by its size, whatever its sign: a model that could call
with -500 would lower the sum that a rule bounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.kernel.errors import StepFailure
from flowengine.kernel.graph.compiled import Plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flowengine.kernel.state.records import Unit
    from flowengine.kernel.transition import Transition


def count(tx: Transition, unit: Unit, args: Plain, tool: str) -> None:
    """Count the call of a unit, if its step's calls are counted.

    Args:
        unit: It is about to call.
        args: The arguments.
        tool: The name of what is called.

    Raises:
        StepFailure: `LimitExceeded`: the tool was called, or the agent has called, as often as
            `limits.calls` says.
    """
    node = tx.graph.nodes[tx.state["acts"][unit["act"]]["step"]]
    if not node.counts:
        return
    given = args if isinstance(args, dict) else {}
    numbers = {
        name: _within(abs(value)) for name, value in given.items() if type(value) in (int, float)
    }
    of = node.counts
    if node.tool.endswith(".*"):  # only now it is known which one of the server's it is
        of = f"{of} {tool[len(node.tool) - 1 :]}"
    mine: dict[str, Any] = {"of": of, "numbers": numbers}
    caller, most = node.caller_limit or ("", None)
    if caller:
        mine["by"] = caller
    if "counted" in unit:
        if mine.items() <= unit["counted"].items():
            return
        uncount(tx, unit)
    so_far = _so_far(tx, of)
    _check(so_far, node.limits.get("calls"), tool, "its limits.calls allows")
    if caller:
        theirs = _so_far(tx, caller)
        _check(theirs, most, tool, f"limits.calls of the agent {node.caller!r} allows")
        _add(theirs, {}, 1)
    _add(so_far, numbers, 1)
    seen = {"count": so_far["count"], "totals": dict(so_far["totals"])}
    unit["counted"] = {**mine, "seen": seen}


def uncount(tx: Transition, unit: Unit) -> None:
    """Take back that a unit calls, if it was counted: the call is not made."""
    mine = unit.pop("counted", None)
    if mine is not None:
        _add(tx.state["calls"][mine["of"]], mine["numbers"], -1)
        if "by" in mine:
            _add(tx.state["calls"][mine["by"]], {}, -1)


def _so_far(tx: Transition, of: str) -> dict[str, Any]:
    return tx.state.setdefault("calls", {}).setdefault(of, {"count": 0, "totals": {}})


def _check(so_far: Mapping[str, Any], most: int | None, tool: str, whose: str) -> None:
    """Refuse a call beyond a limit."""
    if most is not None and so_far["count"] >= most:
        message = f"{tool!r} was not called: {whose} {most} in an execution"
        data = {"tool": tool, "limit": "calls", "of": most}
        raise StepFailure("LimitExceeded", message, data, retryable=False)


def _add(so_far: dict[str, Any], numbers: Mapping[str, Any], times: int) -> None:
    so_far["count"] += times
    totals = so_far["totals"]
    for name, number in numbers.items():
        totals[name] = _within(totals.get(name, 0) + times * number)


def _within(number: float) -> float:
    """Return a number that expressions and stores can hold: beyond 64 bits it is no integer."""
    return number if -(2**63) <= number < 2**63 else float(number)
