"""Budgets as shown to users: limits, used amounts, and deadlines of running calls."""

from __future__ import annotations

from collections.abc import Iterator

from flowengine.engines.host import Host
from flowengine.engines.infos import BudgetInfo, Reason
from flowengine.kernel import Graph
from flowengine.kernel.notation.accounts import read_account
from flowengine.kernel.notation.addresses import wait_id
from flowengine.kernel.notation.times import format_duration, format_time
from flowengine.kernel.state.records import Budget, State, Unit
from flowengine.kernel.view import DOLLAR, View, begun, budget_of, taken, worked


def _in_force(view: View) -> Iterator[tuple[str, int, Budget]]:
    """Yield address, frame and budget of each active flow that has one, the main one first."""
    if "budget" in view.state:
        yield "", 0, view.state["budget"]
    for scope in view.subflows():
        budget = budget_of(view.state, scope["frame"])
        if budget is not None:
            yield scope["path"].rstrip("/"), scope["frame"], budget


def budget_views(graph: Graph, state: State, now: int) -> list[BudgetInfo]:
    """Return the budgets of an execution: that of its flow, and those of active subflows.

    Args:
        graph: The flow that it runs.
        state: Its state.
        now: The time up to which running calls are counted (ms).
    """
    view = View(graph, state)
    views = []
    for address, frame, budget in _in_force(view):
        if not budget["limits"]:
            continue  # it only has shared ones
        flow = view.flow_of(frame)
        then = "stop" if flow.budget is None else flow.budget["then"]
        info: BudgetInfo = {"address": address, "flow": flow.id, "then": then}
        limits = budget["limits"]
        if "tool_calls" in limits:
            info["tool_calls"] = {
                "used": begun(budget),
                "running": begun(budget) - budget["used"],
                "limit": limits["tool_calls"],
            }
        if "wall_time" in limits:
            info["wall_time"] = {
                "used": format_duration(worked(state, budget, now)),
                "limit": format_duration(limits["wall_time"]),
            }
        if "tokens" in limits:
            info["tokens"] = _amounts(budget, "tokens")
        if "cost_usd" in limits:
            dollars = _amounts(budget, "cost_usd").items()
            info["cost_usd"] = {name: amount / DOLLAR for name, amount in dollars}
        views.append(info)
    return views


def _amounts(budget: Budget, meter: str) -> dict[str, int]:
    settled = budget.get("amounts", {}).get(meter, 0)
    return {
        "used": taken(budget, meter),
        "running": taken(budget, meter) - settled,
        "estimated": budget.get("estimated", {}).get(meter, 0),
        "limit": budget["limits"][meter],
    }


def waiting(host: Host, execution: str, view: View, unit: Unit) -> Reason:
    """Return the reason of a call that waits because the remaining budget is too small."""
    if "budget" not in unit:
        key = read_account(view.state["claims"][unit["id"]]).key
        return {
            "address": view.address(unit),
            "what": "its call is waiting: running calls of other executions have reserved the "
            f"rest of the shared budget '{key}'",
            "wakes": "the end of one of these calls, if it has used less",
        }
    budget = budget_of(view.state, unit["budget"])
    assert budget is not None
    if unit["id"] in budget.get("queue", ()):
        flow = view.flow_of(unit["budget"]).budgeted
        return {
            "address": view.address(unit),
            "what": "its call is waiting: running calls have reserved the rest of the budget "
            f"of '{flow}'",
            "wakes": "the end of one of these calls, if it has used less",
        }
    full = wait_id(execution, budget["wait"])
    flow = view.flow_of(unit["budget"]).budgeted
    return {
        "address": view.address(unit),
        "what": f"its call is waiting, because the budget of '{flow}' is used up",
        "wakes": f"a decision on {host.store.short_wait(full)}, which may raise it",
    }


def ending(view: View) -> Iterator[Reason]:
    """Yield the time until which running calls may run."""
    for address, frame, budget in _in_force(view):
        if "timer" in budget:
            at = format_time(view.state["timers"][budget["timer"]]["due"])
            flow = view.flow_of(frame).budgeted
            yield {
                "address": address,
                "what": f"calls in '{flow}' may run until {at} (budget.wall_time)",
                "wakes": f"the time {at}",
                "due": at,
            }
