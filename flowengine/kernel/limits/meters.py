"""Meters: the amounts of a budget that a call uses, except time.

See docs/language.md: Budgets.

A call is one tool call, unless its step kind declares other meters: tokens, money. The used amount
is in its result. The maximum amount is in its input, or its kind computes it right before the
attempt from information outside the kernel (`Run.measures`) and reports it in the event `measured`.
All amounts are integers. Money is counted in billionths of a dollar, so that sums are exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil
from typing import Any

from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.graph.linked import Node
from flowengine.kernel.graph.specs import BudgetSpec, SharedBudgetSpec
from flowengine.kernel.notation.times import parse_duration
from flowengine.kernel.state.records import Budget, Unit
from flowengine.kernel.transition import Transition
from flowengine.kernel.view import (
    AMOUNTS,
    amount_at,
    budgets_around,
    charged,
    counted_as,
    in_units,
    taken,
)


def declared_limits(spec: BudgetSpec | SharedBudgetSpec) -> dict[str, int]:
    """Return the declared limits of a flow, in counted units."""
    declared: Mapping[str, Any] = spec
    limits = {}
    if "tool_calls" in declared:
        limits["tool_calls"] = declared["tool_calls"]
    if "wall_time" in declared:
        limits["wall_time"] = parse_duration(declared["wall_time"])
    for meter in AMOUNTS:
        if meter in declared:
            limits[meter] = counted_as(meter, declared[meter])
    return limits


def names(node: Node) -> frozenset[str]:
    """Return the meters that the calls of a step use, except time, which all of them use."""
    return _CALL if node.meters is None else frozenset(node.meters)


_CALL = frozenset({"tool_calls"})


def reserved(tx: Transition, number: int) -> dict[str, int] | None:
    """Return the maximum amounts of an attempt that begins. None: it is one tool call.

    Args:
        number: The unit of the attempt, or of a cut-off attempt that is being settled.
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
    values = {
        meter: counted_as(meter, amount_at(given, spec.get("reserved"))) if meter in AMOUNTS else 1
        for meter, spec in node.meters.items()
    }
    return values if granted is None else {**values, **granted}


def measured(node: Node) -> frozenset[str]:
    """Return the meters for which the kind of a step computes the maximum amount of an attempt."""
    meters = node.meters or {}
    return frozenset(meter for meter in AMOUNTS if meters.get(meter, {}).get("measured"))


def has_to_measure(tx: Transition, unit: Unit, node: Node) -> bool:
    """Return whether the needs of an attempt must be computed before it begins."""
    if "needs" in unit:
        return False
    uses = measured(node)
    around = budgets_around(tx, tx.frame_of(tx.act_of(unit))) if uses else ()
    return any("shared" in budget or not uses.isdisjoint(budget["limits"]) for _, budget in around)


def needs_as_counted(needs: Mapping[str, Plain]) -> dict[str, list[int]]:
    """Return the needs of an attempt, as reported by its kind, in counted units.

    Args:
        needs: Meter → `[least, most, beyond]`. Other meters are omitted.
    """
    return {
        meter: [ceil(in_units(meter, need)) for need in needs[meter]]
        for meter in AMOUNTS
        if meter in needs
    }


def lacks(budget: Budget, needs: Mapping[str, list[int]]) -> list[str]:
    """Return the meters with less left in a budget than an attempt needs at least.

    Amounts reserved by others count as left, because their actual use is still unknown.
    """
    return [
        meter
        for meter, (least, _most, _beyond) in needs.items()
        if meter in budget["limits"] and budget["limits"][meter] - charged(budget, meter) < least
    ]


def is_crowded(budget: Budget, needs: Mapping[str, list[int]]) -> bool:
    """Return whether others have reserved the minimum that an attempt needs."""
    return any(
        meter in budget["limits"] and budget["limits"][meter] - taken(budget, meter) < least
        for meter, (least, _most, _beyond) in needs.items()
    )


def amounts_granted(
    budgets: Iterable[tuple[Budget, bool]], needs: Mapping[str, list[int]]
) -> dict[str, int]:
    """Return the amounts that an attempt may use: at most the rest, plus `beyond`.

    Args:
        budgets: The budgets around it, and whether each limits it.
        needs: The needs of the attempt.

    Returns:
        Meter → amount, for the meters that some budget has.
    """
    sums: dict[str, int] = {}
    for budget, bounds in budgets:
        for meter, (_least, most, beyond) in needs.items():
            if meter in budget["limits"]:
                left = budget["limits"][meter] - taken(budget, meter) + beyond
                sums[meter] = min(sums.get(meter, most), left if bounds else most)
    return sums


def hold(budget: Budget, number: int, amounts: Mapping[str, int]) -> None:
    """Reserve the maximum amounts of a call."""
    kept = {*budget["limits"], "tool_calls"}  # calls are counted with or without a limit
    bounded = {meter: amount for meter, amount in amounts.items() if meter in kept}
    budget.setdefault("reserved", {})[number] = bounded


def charge(budget: Budget, number: int, amounts_used: dict[str, int] | None, *, ran: bool) -> None:
    """Replace the reservation of a call by its actual usage.

    Args:
        budget: The budget.
        number: The unit whose call has ended.
        amounts_used: The amounts used. None: unknown, so the reservation counts.
        ran: Whether it began outside the kernel.
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
