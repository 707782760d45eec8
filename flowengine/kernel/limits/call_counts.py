"""Counts of tool calls, and totals of their numeric arguments.

A call is counted as soon as its arguments are known, before rules are evaluated and approvals
requested. Each of several concurrent calls therefore sees those before it. A call counts once,
regardless of its number of attempts. A call that is refused, rejected, or answered by an approver
was not made and does not count. If an approver edits the arguments, the edited values count instead
of the original ones. A number counts by its absolute value. Otherwise a model could call with -500
and lower the total that a rule limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowengine.kernel.errors import StepFailure
from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.state.records import Unit
from flowengine.kernel.transition import Transition


def count(tx: Transition, unit: Unit, args: Plain, tool: str) -> None:
    """Count the call of a unit, if its step's calls are counted.

    Args:
        unit: The unit that is about to call.
        args: The arguments.
        tool: The name of the tool.

    Raises:
        StepFailure: `LimitExceeded`: the calls of the tool or the agent have reached
            `limits.calls`.
    """
    node = tx.graph.nodes[tx.state["acts"][unit["act"]]["step"]]
    if not node.counts:
        return
    given = args if isinstance(args, dict) else {}
    numbers = {
        name: _within(abs(value)) for name, value in given.items() if type(value) in (int, float)
    }
    of = node.counts
    if node.tool.endswith(".*"):  # the tool of the server is known only now
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
    """Remove the call of a unit from the counts because it is not made."""
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
    """Return a number in the range of expressions and stores. Beyond 64 bits it becomes a float."""
    return number if -(2**63) <= number < 2**63 else float(number)
