"""Budgets under another form of a flow: what its new numbers mean for what was used already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.kernel.limits.budgets import begin, count_in, declared_limits
from flowengine.kernel.view import bounding, budget_of
from flowengine.kernel.waiting.budget_questions import go_on

if TYPE_CHECKING:
    from flowengine.kernel.graph.linked import Graph
    from flowengine.kernel.graph.specs import BudgetSpec
    from flowengine.kernel.machine import Machine
    from flowengine.kernel.state.records import Budget, State


def declared(graph: Graph, state: State) -> dict[int, BudgetSpec | None]:
    """Return what each flow at work says of its budget: by frame, 0 for the main one."""
    frames = state.get("frames", {}).items()
    flows = {0: graph.flows[0], **{n: graph.flows[frame["flow"]] for n, frame in frames}}
    return {number: flow.budget for number, flow in flows.items()}


def declare_anew(m: Machine, before: dict[int, BudgetSpec | None]) -> None:
    """Set the budgets to those that the flow now declares.

    A number that it changes holds at once; what was used stays used, and a limit that it leaves
    alone stays as somebody may have raised it. A budget that comes counts from here on.

    Args:
        m: Of an execution whose state was moved.
        before: What was `declared` until now.
    """
    after = declared(m.graph, m.state)
    for number, spec in after.items():
        if spec != before[number]:
            _change(m, number, before[number], spec)
    for number, frame in m.state.get("frames", {}).items():
        held = [one for one in frame.get("bounds", ()) if one not in (0, number)]
        above = bounding(m.state, frame["up"]) if frame["up"] in after else [*held, 0]
        bounds = [one for one in dict.fromkeys((number, *above)) if budget_of(m.state, one)]
        frame.pop("bounds", None)
        if bounds:
            frame["bounds"] = bounds
    for number, unit in m.state["units"].items():
        if unit["phase"] == "run":
            count_in(m, number, m.frame_of(m.act_of(unit)), m.act_of(unit))
    for number, cut in m.state["cuts"].items():
        if cut.get("running"):
            count_in(m, number, cut.get("frame", 0), None)


def _change(m: Machine, number: int, before: BudgetSpec | None, after: BudgetSpec | None) -> None:
    owner: Any = m.state["frames"][number] if number else m.state
    budget: Budget | None = owner.get("budget")
    if budget is None:
        owner["budget"] = begin(after)
        return
    old, new = declared_limits(before) if before else {}, declared_limits(after) if after else {}
    kept = {what: budget["limits"][what] for what in new if new[what] == old.get(what)}
    budget["limits"] = {**new, **kept}
    budget.pop("refused", None)
    if "timer" in budget:
        m.clear_timer(budget.pop("timer"))
    if "wall_time" not in new:
        budget.pop("since", None)
        budget.pop("spent", None)
    elif budget["calls"]:
        budget.setdefault("since", m.now - m.state.get("skipped", 0))
    go_on(m, number, budget, "withdrawn")
    if after is None:
        del owner["budget"]
