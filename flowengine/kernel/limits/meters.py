"""Meters: what a call uses of a budget, beside time.

See docs/language.md: Budgets.

A call is one tool call, unless its step kind says what it uses instead: tokens, money. How much it
will use at most stands in its input, and how much it has used in its result. All amounts are whole
numbers; money is counted in billionths of a dollar, so that sums are exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING

from flowengine.kernel.view import DOLLAR

if TYPE_CHECKING:
    from flowengine.kernel.graph.compiled import Plain
    from flowengine.kernel.graph.linked import Node
    from flowengine.kernel.machine import Machine
    from flowengine.kernel.state.records import Budget

AMOUNTS = ("tokens", "cost_usd")
"""What is measured in amounts; `tool_calls` are counted."""


def counted_as(meter: str, value: Plain) -> int:
    """Return an amount as it is counted; 0 for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    if not isfinite(value) or value < 0:
        return 0
    return round(value * DOLLAR) if meter == "cost_usd" else int(value)


def names(node: Node) -> frozenset[str]:
    """Return what the calls of a step use; all of them use time."""
    return _CALL if node.meters is None else frozenset(node.meters)


_CALL = frozenset({"tool_calls"})


def reserved(m: Machine, number: int) -> dict[str, int] | None:
    """Return what an attempt that begins may use at most; None: it is one tool call.

    Args:
        number: The unit whose attempt it is, or whose attempt was cut off and is settled.
    """
    unit = m.state["units"].get(number)
    cut = m.state["cuts"].get(number)
    if unit is not None:
        node, given = m.node(m.act_of(unit)), unit.get("input")
    elif cut is not None:
        node, given = m.graph.node(cut["step"]), cut.get("input")
    else:
        return None
    if node.meters is None:
        return None
    if node.environments and isinstance(given, dict):
        given = given.get("input")
    return {
        meter: counted_as(meter, _at(given, said.get("reserved"))) if meter in AMOUNTS else 1
        for meter, said in node.meters.items()
    }


def used(node: Node, result: Plain) -> dict[str, int]:
    """Return what an attempt says that it has used, by its result or the data of its error."""
    return {
        meter: sum(counted_as(meter, _at(result, path)) for path in said.get("used", ()))
        for meter, said in (node.meters or {}).items()
        if meter in AMOUNTS
    }


def _at(data: Plain, path: list[str] | None) -> Plain:
    if path is None:
        return None
    for key in path:
        if not isinstance(data, dict):
            return None
        data = data.get(key)
    return data


def hold(budget: Budget, number: int, amounts: Mapping[str, int]) -> None:
    """Reserve what a call may use at most."""
    kept = {*budget["limits"], "tool_calls"}  # calls are counted whether they are bounded or not
    bounded = {meter: amount for meter, amount in amounts.items() if meter in kept}
    budget.setdefault("reserved", {})[number] = bounded


def settle(budget: Budget, number: int, told: dict[str, int] | None, *, ran: bool) -> None:
    """Replace what was reserved for a call by what it has used.

    Args:
        budget: The budget.
        number: The unit whose call is over.
        told: What it has used; None: nobody knows, so what was reserved is taken for it.
        ran: Whether it began outside.
    """
    amounts = budget.get("reserved", {}).pop(number, None)
    if amounts is None:
        budget["used"] += ran
        return
    if not budget["reserved"]:
        del budget["reserved"]
    for meter, amount in amounts.items() if ran else ():
        if meter == "tool_calls":
            budget["used"] += amount
            continue
        if told is None:
            estimated = budget.setdefault("estimated", {})
            estimated[meter] = estimated.get(meter, 0) + amount
        settled = budget.setdefault("amounts", {})
        settled[meter] = settled.get(meter, 0) + (amount if told is None else told.get(meter, 0))
