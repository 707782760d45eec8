"""Budgets: limits on the calls of a flow and on its running time.

See docs/language.md: Budgets.

    call ─► room in every budget around it? ─► reserved ─► settled when its attempt has ended
              ├─ no ─► stop: it fails with `BudgetExceeded`
              │        ask:  it waits, with all others, for the answer to one question
              └─ others have reserved it ─► queued until some of their calls have ended

A step kind can compute how many tokens and how much money an attempt will use at most. In that case
the event `measured` checks again, before the attempt begins, whether there is room. The attempt is
granted at most the remaining amount.

A budget belongs to a running flow: the main flow, or the frame of a subflow. It applies to all
calls inside, including those of nested subflows, so the strictest one limits them. Compensation and
cleanup are counted but never refused, because an exhausted budget must not leave work half done.

Time is counted while a call runs. The time between the last event before a crash and the next event
is not counted, see `skip`.
"""

from __future__ import annotations

from collections.abc import Mapping

from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.graph.linked import Node
from flowengine.kernel.graph.specs import BudgetSpec
from flowengine.kernel.limits import meters, shared_budgets
from flowengine.kernel.limits.locks import resume
from flowengine.kernel.state.records import Activation, Budget, Frame, State, Unit
from flowengine.kernel.transition import Transition
from flowengine.kernel.view import (
    AMOUNTS,
    begun,
    bounding,
    budget_of,
    budgets_around,
    charged,
    taken,
    unbound,
    used,
    worked,
)


def new_budget(spec: BudgetSpec | None, left: Mapping[str, int] | None = None) -> Budget | None:
    """Return the budget of a flow that begins, or None if it has no limits.

    Args:
        spec: The declaration of the flow.
        left: The remaining amounts of a surrounding execution, by meter.
    """
    if spec is None and left is None:
        return None
    limits = {} if spec is None else meters.declared_limits(spec)
    for meter, most in (left or {}).items():
        limits[meter] = min(most, limits.get(meter, most))
    return {"limits": limits, "used": 0, "calls": {}, "waiting": {}}


def enter(tx: Transition, number: int, frame: Frame) -> None:
    """Create the budget of a subflow that starts, in addition to those of its callers.

    Args:
        number: Number of its frame.
        frame: The frame, which is filled in.
    """
    bounds = bounding(tx.state, frame["up"])
    own = new_budget(tx.graph.flows[frame["flow"]].budget)
    if own is not None:
        frame["budget"] = own
        bounds = [number, *bounds]
    if bounds:
        frame["bounds"] = bounds


# Calls


def grant(tx: Transition, unit: Unit) -> None:
    """Record the granted amounts of a measured attempt that is about to begin."""
    act = tx.act_of(unit)
    free = unbound(tx, act)
    around = budgets_around(tx, tx.frame_of(act))
    bounds = [(budget, number not in free) for number, budget in around]
    granted = meters.amounts_granted(bounds, unit["needs"])
    for meter, amount in shared_budgets.bounds(tx, unit["id"]):
        granted[meter] = min(amount, granted.get(meter, amount))
    unit["granted"] = granted


def reserve(tx: Transition, number: int, act: Activation | None, frame: int = 0) -> None:
    """Count a call that begins, in every budget around it.

    Args:
        number: The calling unit.
        act: Its activation. None for a cut-off attempt that is being settled, which has no limit.
        frame: Without an activation: the frame of its flow.
    """
    tx.state["running"] += 1
    tx.begun.add(number)
    if "budget" in tx.state or "frames" in tx.state:
        inner = frame if act is None else tx.frame_of(act)
        count_in(tx, number, inner, act)
        shared_budgets.cover(tx, number, inner, act)


def count_in(tx: Transition, number: int, frame: int, act: Activation | None) -> None:
    """Count a running call in those budgets around it that do not count it yet.

    Args:
        number: The calling unit.
        frame: The frame of its flow.
        act: As for `reserve`.
    """
    if not bounding(tx.state, frame) or (act is not None and "opens" in act):
        return  # opening environments is not a call
    free = None if act is None else unbound(tx, act)
    amounts = meters.reserved(tx, number)
    for owner, budget in budgets_around(tx, frame):
        if number not in budget["calls"]:
            budget["calls"][number] = free is not None and owner not in free
            if amounts is not None:
                meters.hold(budget, number, amounts)
            if "wall_time" in budget["limits"]:
                budget.setdefault("since", tx.now - tx.state.get("skipped", 0))
            if budget["calls"][number]:
                watch_time(tx, owner, budget)


def charge_unit(tx: Transition, unit: Unit, *, ran: bool = True) -> None:
    """Charge the call of a unit that still exists. See `charge`."""
    bounded = "budget" in tx.state or "frames" in tx.state
    charge(tx, unit["id"], tx.frame_of(tx.act_of(unit)) if bounded else 0, ran=ran)
    unit.pop("needs", None)  # the next attempt may need other amounts


def charge_result(tx: Transition, unit: Unit, result: Plain) -> None:
    """Charge the call of a unit that has ended and reported its own usage.

    Args:
        unit: The unit.
        result: The result, or the data of the error.
    """
    if "budget" not in tx.state and "frames" not in tx.state:
        tx.state["running"] -= 1
        return
    act = tx.act_of(unit)
    charge(tx, unit["id"], tx.frame_of(act), amounts_used=used(tx.node(act), result))
    unit.pop("needs", None)  # the next attempt may need other amounts


def charge(
    tx: Transition,
    number: int,
    frame: int,
    *,
    ran: bool = True,
    amounts_used: dict[str, int] | None = None,
) -> None:
    """Charge a call whose attempt has ended in any way. A mere request for approval is not a call.

    Args:
        number: The calling unit.
        frame: The frame of its flow.
        ran: Whether it began outside the kernel.
        amounts_used: The amounts used. None: unknown.
    """
    tx.state["running"] -= 1
    if "budget" not in tx.state and "frames" not in tx.state:
        return
    for owner, budget in budgets_around(tx, frame):
        if number in budget["calls"]:
            del budget["calls"][number]
            meters.charge(budget, number, amounts_used, ran=ran and number not in tx.begun)
            if not budget["calls"]:
                _stop_clock(tx, budget)
            let_queue_try(tx, budget)
            _look_later(tx, owner, budget)
    shared_budgets.give_back(tx, number, amounts_used, ran=ran and number not in tx.begun)


def count_run(tx: Transition, unit: Unit, run: str, amounts: Mapping[str, int]) -> None:
    """Count the usage of an execution started by an attempt, in every budget around the attempt.

    Args:
        unit: The unit of the attempt.
        run: Id of the started execution.
        amounts: Meter → its total used or reserved amount. It is less than before if a call has
            used less than was reserved.
    """
    runs = unit.setdefault("runs", {})
    before, runs[run] = runs.get(run, {}), dict(amounts)
    count_inner(tx, tx.frame_of(tx.act_of(unit)), before, amounts)


def count_inner(
    tx: Transition, frame: int, before: Mapping[str, int], amounts: Mapping[str, int]
) -> None:
    """Count the usage of another execution in every budget around a flow.

    Args:
        tx: The transition.
        frame: The frame of the flow that started it.
        before: The amounts counted for it so far, by meter.
        amounts: Meter → its total used or reserved amount.
    """
    for _, budget in budgets_around(tx, frame):
        for meter, amount in amounts.items():
            more = amount - before.get(meter, 0)
            if meter == "tool_calls":
                budget["used"] += more
            elif meter in budget["limits"]:
                settled = budget.setdefault("amounts", {})
                settled[meter] = settled.get(meter, 0) + more
        let_queue_try(tx, budget)


def let_queue_try(tx: Transition, budget: Budget) -> None:
    """Let the units that are queued for room in a budget try again."""
    for number in budget.pop("queue", ()):
        unit = tx.state["units"][number]
        del unit["budget"]
        resume(tx, unit)


def stop_waiting(tx: Transition, unit: Unit) -> None:
    """Remove a withdrawn unit from the queue of a budget."""
    if "budget" not in unit:
        shared_budgets.stop_waiting(tx, unit)
        return
    number = unit.pop("budget")
    del unit["then"]
    budget = budget_of(tx.state, number)
    assert budget is not None
    if unit["id"] in budget.get("queue", ()):
        del budget["queue"][unit["id"]]
        if not budget["queue"]:
            del budget["queue"]
        return
    del budget["waiting"][unit["id"]]
    _look_later(tx, number, budget)


def _look_later(tx: Transition, number: int, budget: Budget) -> None:
    """Check, at the end of the event, whether a question still has waiting units."""
    if "wait" in budget and not budget["waiting"] and not budget["calls"]:
        tx.idle_questions[budget["wait"]] = number


def used_up(tx: Transition, budget: Budget, node: Node | None = None) -> list[str]:
    """Return the exhausted meters of a budget.

    Args:
        budget: The budget.
        node: The step of a call, to check only the meters that the call uses. None: all meters.
    """
    limits = budget["limits"]
    lacking = []
    if "tool_calls" in limits and begun(budget) >= limits["tool_calls"]:
        lacking.append("tool_calls")
    if "wall_time" in limits and worked(tx.state, budget, tx.now) >= limits["wall_time"]:
        lacking.append("wall_time")
    measured = meters.measured(node) if node is not None else ()
    for meter in AMOUNTS:
        # For a measured call, room that others have reserved can become free again.
        used_of = charged if meter in measured else taken
        if meter in limits and used_of(budget, meter) >= limits[meter]:
            lacking.append(meter)
    if node is not None:
        uses = meters.names(node)
        lacking = [what for what in lacking if what == "wall_time" or what in uses]
    return lacking


def is_low(tx: Transition, unit: Unit) -> bool:
    """Return whether a call should save resources: a budget has reached its `fallback_at`."""
    act = tx.act_of(unit)
    node = tx.node(act)
    uses = meters.names(node).intersection(AMOUNTS)
    # A reservation is far above the actual use of a call.
    used_of = charged if meters.measured(node) else taken
    for number, budget in budgets_around(tx, tx.frame_of(act)):
        spec, limits = tx.flow_of(number).budget, budget["limits"]
        at = None if spec is None else spec.get("fallback_at")
        if at is not None and any(
            100 * used_of(budget, meter) >= at * limits[meter] for meter in uses & limits.keys()
        ):
            return True
    return False


# Time


def skip(state: State, since: int) -> None:
    """Exclude downtime since the last event from every budget.

    Args:
        state: The state, at the first event after the downtime.
        since: Time of the event before it.
    """
    if state["now"] > since:
        state["skipped"] = state.get("skipped", 0) + state["now"] - since


def watch_time(tx: Transition, number: int, budget: Budget) -> None:
    """Set the timer for the end of a budget's time, while its clock runs."""
    if "since" in budget and "timer" not in budget:
        left = budget["limits"]["wall_time"] - worked(tx.state, budget, tx.now)
        budget["timer"] = tx.set_timer(max(left, 0), "wall_time", number)


def _stop_clock(tx: Transition, budget: Budget) -> None:
    if "since" in budget:
        budget["spent"] = worked(tx.state, budget, tx.now)
        del budget["since"]
    if "timer" in budget:
        tx.clear_timer(budget.pop("timer"))
