"""Meters: what a call uses of a budget, beside time.

See docs/language.md: Budgets.

A call is one tool call, unless its step kind says what it uses instead: tokens, money. How much it
has used stands in its result. How much it will use at most stands in its input; or its kind works
that out, right before the attempt, with all that it knows of the outside (`Run.measures`), and the
event `measured` tells. All amounts are whole numbers; money is counted in billionths of a dollar,
so that sums are exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil, isfinite
from typing import TYPE_CHECKING

from flowengine.kernel.view import DOLLAR, settled, taken

if TYPE_CHECKING:
    from flowengine.kernel.graph.compiled import Plain
    from flowengine.kernel.graph.linked import Node
    from flowengine.kernel.state.records import Budget
    from flowengine.kernel.transition import Transition

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


def reserved(tx: Transition, number: int) -> dict[str, int] | None:
    """Return what an attempt that begins may use at most; None: it is one tool call.

    Args:
        number: The unit whose attempt it is, or whose attempt was cut off and is settled.
    """
    unit = tx.state["units"].get(number)
    cut = tx.state["cuts"].get(number)
    if unit is not None:
        node, given, granted = tx.node(tx.act_of(unit)), unit.get("input"), unit.get("granted")
    elif cut is not None:
        node, given, granted = tx.graph.node(cut["step"]), cut.get("input"), cut.get("granted")
    else:
        return None
    if node.meters is None:
        return None
    if node.environments and isinstance(given, dict):
        given = given.get("input")
    found = {
        meter: counted_as(meter, _at(given, spec.get("reserved"))) if meter in AMOUNTS else 1
        for meter, spec in node.meters.items()
    }
    return found if granted is None else {**found, **granted}


def measured(node: Node) -> frozenset[str]:
    """Return of which meters the kind of a step works out what an attempt will use at most."""
    meters = node.meters or {}
    return frozenset(meter for meter in AMOUNTS if meters.get(meter, {}).get("measured"))


def needs_as_counted(needs: Mapping[str, Plain]) -> dict[str, list[int]]:
    """Return what an attempt needs, as its kind says it, in amounts as they are counted.

    Args:
        needs: Meter → `[least, most, beyond]`; other meters are left out.
    """
    return {
        meter: [_rounded_up(meter, need) for need in needs[meter]]
        for meter in AMOUNTS
        if meter in needs
    }


def _rounded_up(meter: str, amount: Plain) -> int:
    if isinstance(amount, bool) or not isinstance(amount, int | float):
        return 0
    if not isfinite(amount) or amount < 0:
        return 0
    return ceil(amount * DOLLAR if meter == "cost_usd" else amount)


def lacks(budget: Budget, needs: Mapping[str, list[int]]) -> list[str]:
    """Return of what a budget has less left than an attempt needs at least.

    What others have reserved counts as left: how much of it they use is still open.
    """
    return [
        meter
        for meter, (least, _most, _beyond) in needs.items()
        if meter in budget["limits"] and budget["limits"][meter] - settled(budget, meter) < least
    ]


def is_crowded(budget: Budget, needs: Mapping[str, list[int]]) -> bool:
    """Return whether others have reserved what an attempt needs at least."""
    return any(
        meter in budget["limits"] and budget["limits"][meter] - taken(budget, meter) < least
        for meter, (least, _most, _beyond) in needs.items()
    )


def amounts_granted(
    budgets: Iterable[tuple[Budget, bool]], needs: Mapping[str, list[int]]
) -> dict[str, int]:
    """Return how much an attempt may use: no more than is left, and what it may go beyond that.

    Args:
        budgets: Those around it, and whether each bounds it.
        needs: Of the attempt.

    Returns:
        Meter → amount, of the meters that some budget has.
    """
    found: dict[str, int] = {}
    for budget, bounds in budgets:
        for meter, (_least, most, beyond) in needs.items():
            if meter in budget["limits"]:
                left = budget["limits"][meter] - taken(budget, meter) + beyond
                found[meter] = min(found.get(meter, most), left if bounds else most)
    return found


def used(node: Node, result: Plain) -> dict[str, int]:
    """Return what an attempt says that it has used, by its result or the data of its error."""
    return {
        meter: sum(counted_as(meter, _at(result, path)) for path in spec.get("used", ()))
        for meter, spec in (node.meters or {}).items()
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


def settle(budget: Budget, number: int, amounts_used: dict[str, int] | None, *, ran: bool) -> None:
    """Replace what was reserved for a call by what it has used.

    Args:
        budget: The budget.
        number: The unit whose call is over.
        amounts_used: What it has used; None: unknown, so what was reserved counts.
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
        if amounts_used is None:
            estimated = budget.setdefault("estimated", {})
            estimated[meter] = estimated.get(meter, 0) + amount
        settled = budget.setdefault("amounts", {})
        settled[meter] = settled.get(meter, 0) + (
            amount if amounts_used is None else amounts_used.get(meter, 0)
        )
