"""The effects of an upgrade: an execution continues under another form of its flow.

See docs/upgrading.md.

The state is moved, and then checked as a whole. Joins that no token can reach under the new graph
fire or fail, conditions that hold under it take effect, and its time limits apply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.kernel.commands import OpenWait
from flowengine.kernel.limits import budgets
from flowengine.kernel.moving.move import move, set_keys
from flowengine.kernel.notation.times import parse_duration, parse_time
from flowengine.kernel.transition import Transition
from flowengine.kernel.view import bounding, budget_of
from flowengine.kernel.waiting import (
    budget_questions,
    call_questions,
    listeners,
    permissions,
    waits,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flowengine.kernel.graph.linked import Graph
    from flowengine.kernel.graph.specs import BudgetSpec
    from flowengine.kernel.state.records import Budget, State


def upgrade(tx: Transition, before: Graph, mapping: Mapping[str, Any]) -> None:
    """Continue an execution under another form of its flow.

    Args:
        tx: The transition, with the new flow of the execution. `obstacles` has found no obstacle to
            it.
        before: The old flow.
        mapping: The renamed parts.
    """
    state = tx.state
    records = {number: wait["record"] for number, wait in state["waits"].items()}
    duration = before.flows[0].limits.get("duration")
    bounds = _declared_budgets(before, state)
    moved: Any = move(before, tx.graph, state, mapping)
    whole: Any = state
    whole.clear()
    whole.update(moved)
    if tx.graph.timed:
        budgets.skip(state, tx.now - tx.stood)  # no process was driving the execution
    _set_duration(tx, duration)
    _declare_budgets_anew(tx, bounds)
    set_keys(tx)
    for number, wait in state["waits"].items():
        if wait["shown"] and wait["record"] != records[number]:
            tx.commands.append(OpenWait(dict(wait["record"])))
        if wait["unit"] in state["units"]:
            waits.watch_again(tx, wait)
    for number, act in state["acts"].items():
        spec = tx.node(act).map
        if spec is not None and "need" in act:
            listeners.watch(tx, number, tx.watched(act, spec.get("watches", ())))
    for unit in list(state["units"].values()):
        if unit["phase"] == "asked":
            permissions.look_again(tx, unit)
        elif "shown" in unit:
            call_questions.forget_question(tx, unit)  # its input may differ from now on
    listeners.wake_all(tx)
    for number in state["scopes"]:
        tx.touch(number)


def _set_duration(tx: Transition, before: str | None) -> None:
    """Set the time limit of the whole execution to that of the new flow."""
    limit = tx.graph.flows[0].limits.get("duration")
    if limit == before:
        return
    root = tx.root()["id"]
    for number, timer in list(tx.state["timers"].items()):
        if timer["why"] == "duration" and timer["ref"] == root:
            tx.clear_timer(number)
    if limit is not None:
        due = parse_time(tx.state["execution"]["started_at"]) + parse_duration(limit)
        tx.set_timer_at(due, "duration", root)


# Budgets


def _declared_budgets(graph: Graph, state: State) -> dict[int, BudgetSpec | None]:
    """Return the declared budgets of all running flows, by frame, with 0 for the main flow."""
    frames = state.get("frames", {}).items()
    flows = {0: graph.flows[0], **{n: graph.flows[frame["flow"]] for n, frame in frames}}
    return {number: flow.budget for number, flow in flows.items()}


def _declare_budgets_anew(tx: Transition, before: dict[int, BudgetSpec | None]) -> None:
    """Set the budgets to those that the flow now declares.

    A changed limit applies at once, and past usage still counts. An unchanged limit keeps its
    current value, which approvals may have raised. A new budget counts from now on.

    Args:
        tx: Of an execution whose state was moved.
        before: The declared budgets of the old flow.
    """
    after = _declared_budgets(tx.graph, tx.state)
    for number, spec in after.items():
        if spec != before[number]:
            _change_budget(tx, number, before[number], spec)
    for number, frame in tx.state.get("frames", {}).items():
        held = [bound for bound in frame.get("bounds", ()) if bound not in (0, number)]
        above = bounding(tx.state, frame["up"]) if frame["up"] in after else [*held, 0]
        bounds = [bound for bound in dict.fromkeys((number, *above)) if budget_of(tx.state, bound)]
        frame.pop("bounds", None)
        if bounds:
            frame["bounds"] = bounds
    for number, unit in tx.state["units"].items():
        if unit["phase"] == "run":
            budgets.count_in(tx, number, tx.frame_of(tx.act_of(unit)), tx.act_of(unit))
    for number, cut in tx.state["cuts"].items():
        if cut["phase"] == "run":
            budgets.count_in(tx, number, cut.get("frame", 0), None)


def _change_budget(
    tx: Transition, number: int, before: BudgetSpec | None, after: BudgetSpec | None
) -> None:
    owner: Any = tx.state["frames"][number] if number else tx.state
    budget: Budget | None = owner.get("budget")
    if budget is None:
        owner["budget"] = budgets.new_budget(after)
        return
    old, new = (
        budgets.declared_limits(before) if before else {},
        budgets.declared_limits(after) if after else {},
    )
    kept = {what: budget["limits"][what] for what in new if new[what] == old.get(what)}
    budget["limits"] = {**new, **kept}
    budget.pop("refused", None)
    if "timer" in budget:
        tx.clear_timer(budget.pop("timer"))
    if "wall_time" not in new:
        budget.pop("since", None)
        budget.pop("spent", None)
    elif budget["calls"]:
        budget.setdefault("since", tx.now - tx.state.get("skipped", 0))
    budget_questions.release_waiting(tx, number, budget, "withdrawn")
    if after is None:
        del owner["budget"]
