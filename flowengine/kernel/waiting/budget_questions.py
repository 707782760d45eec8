"""Exhausted budgets: the flow stops, or approvers are asked to raise the budget.

See docs/language.md: Budgets.

All calls that hit the limit wait for the answer to one question. Calls for which the rest is only
reserved wait for the calls that reserved it. An approval raises the limit permanently. A rejection
fails all waiting calls, and no further question is asked. A question without waiting calls is
withdrawn at the end of the event.
"""

from __future__ import annotations

from typing import Any

from flowengine.kernel.errors import StepFailure
from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.graph.specs import BudgetSpec
from flowengine.kernel.limits import locks, shared_budgets
from flowengine.kernel.limits.budgets import (
    let_queue_try,
    used_up,
    watch_time,
)
from flowengine.kernel.limits.locks import resume, suspend
from flowengine.kernel.limits.meters import declared_limits, is_crowded, lacks
from flowengine.kernel.notation.times import format_duration, parse_duration
from flowengine.kernel.state import entries
from flowengine.kernel.state.entries import Entry
from flowengine.kernel.state.records import Budget, Unit, Wait
from flowengine.kernel.transition import Transition
from flowengine.kernel.view import (
    DOLLAR,
    bounding,
    budget_of,
    budgets_around,
    charged,
    counted_as,
    counting,
    unbound,
)
from flowengine.kernel.waiting.approvals import answer
from flowengine.kernel.waiting.waits import add_wait, close_wait, show

DURATION = r"^(\d{1,3}w)?(\d{1,4}d)?(\d{1,5}h)?(\d{1,7}m)?(\d{1,8}s)?(\d{1,11}ms)?$"
"""Durations whose parts add up to far less than the maximum duration."""
CHOICES = [
    {"id": "approve", "label": "Raise the limit", "counts_as": "approve", "comment": "optional"},
    {"id": "reject", "label": "Stop here", "counts_as": "reject", "comment": "optional"},
]


MOST_CALLS = 2**53
"""The maximum limit of calls. Every JSON reader can represent it, and no execution reaches it."""
MOST_DOLLARS = 1_000_000


def waits(tx: Transition, unit: Unit, then: Entry) -> bool:
    """Return whether a call must wait for a budget.

    Args:
        unit: The calling unit.
        then: The entry to process when the wait is over.

    Returns:
        True if the call waits, False if the budgets have room for it now.

    Raises:
        StepFailure: `BudgetExceeded`: a budget is used up, and no question may be asked.
    """
    act = tx.act_of(unit)
    if "opens" in act or not bounding(tx.state, tx.frame_of(act)):
        return False
    free = unbound(tx, act)
    bounds = [bound for bound in budgets_around(tx, tx.frame_of(act)) if bound[0] not in free]
    needs = unit.get("needs", {})
    full = [(number, budget) for number, budget in bounds if _short(tx, budget, unit)]
    for number, budget in full:
        if not _may_ask(tx, number, budget):
            what = _short(tx, budget, unit)[0]
            least = needs[what][0] if what in needs else None
            description = _describe(tx, number, budget, what, least)
            raise StepFailure("BudgetExceeded", *description, retryable=False)
    full = full or [bound for bound in bounds if is_crowded(bound[1], needs)]
    if not full:
        return False
    number, budget = full[0]
    if needs:
        locks.leave_lock(tx, unit)  # do not block others during a long wait
    shared_budgets.give_back(tx, unit["id"], None, ran=False)  # not held during the wait
    unit["budget"] = number
    suspend(tx, unit, "budget", then)
    if _short(tx, budget, unit):
        budget["waiting"][unit["id"]] = True
        _ask(tx, number, budget, unit)
    else:
        budget.setdefault("queue", {})[unit["id"]] = True
    return True


def _short(tx: Transition, budget: Budget, unit: Unit) -> list[str]:
    """Return the meters with nothing left, or with less than the call of a unit needs."""
    spent = used_up(tx, budget, tx.node(tx.act_of(unit)))
    lacking = lacks(budget, unit.get("needs", {}))
    return [*spent, *(what for what in lacking if what not in spent)]


def _describe(
    tx: Transition, number: int, budget: Budget, what: str, least: int | None = None
) -> tuple[str, dict[str, Plain]]:
    """Return the message and data of the error of a call that exceeds a budget.

    Args:
        number: The frame of the budget.
        budget: The budget.
        what: The meter that has too little left.
        least: The minimum that the call needs. None: nothing is left.
    """
    flow, limit = tx.flow_of(number).budgeted, budget["limits"][what]
    left = limit - charged(budget, what)
    if least is None or left <= 0:
        message = f"'{flow}' has used up its {_amount(what, limit)} (budget.{what})"
    else:
        message = (
            f"'{flow}' has {_number(what, left)} of its {_amount(what, limit)} left, and the next "
            f"call needs about {_number(what, least)} (budget.{what})"
        )
    refused = budget.get("refused")
    if refused is not None:
        comment = f": {refused['comment']}" if refused.get("comment") else ""
        message += f", and {refused['by']} did not raise it{comment}"
    of: Plain = format_duration(limit) if what == "wall_time" else limit
    of = limit / DOLLAR if what == "cost_usd" else of
    return message, {"limit": what, "of": of, "flow": flow, "refused": refused}


def _amount(what: str, limit: int) -> str:
    """Return a limit as text for messages."""
    if what == "wall_time":
        return f"{format_duration(limit)} of wall time"
    if what == "tokens":
        return f"{limit} tokens"
    if what == "cost_usd":
        return f"{_number(what, limit)} USD"
    return f"{limit} tool call{'s' * (limit != 1)}"


def _number(what: str, amount: int) -> str:
    return f"{amount / DOLLAR:g}" if what == "cost_usd" else str(amount)


def time_used_up(tx: Transition, number: int, _arg: int) -> None:
    """Stop calls whose time is over, or ask for more. After downtime, set the timer again."""
    budget = budget_of(tx.state, number)
    assert budget is not None
    del budget["timer"]
    if "wall_time" not in used_up(tx, budget):
        watch_time(tx, number, budget)
    elif not _may_ask(tx, number, budget):
        _stop_calls(tx, number, budget)
    elif bound := _bound(budget):
        _ask(tx, number, budget, tx.state["units"][bound[0]])


def _bound(budget: Budget) -> list[int]:
    """Return the units whose calls run and can be stopped."""
    return [unit for unit, bound in budget["calls"].items() if bound]


def _stop_calls(tx: Transition, number: int, budget: Budget) -> None:
    description = _describe(tx, number, budget, "wall_time")
    for unit in _bound(budget):
        failure = StepFailure("BudgetExceeded", *description, retryable=False)
        tx.agenda.append(entries.attempt_failed(unit, failure))


def _may_ask(tx: Transition, number: int, budget: Budget) -> bool:
    spec = tx.flow_of(number).budget
    return spec is not None and spec["then"] == "ask" and "refused" not in budget


def _ask(tx: Transition, number: int, budget: Budget, unit: Unit) -> None:
    """Open the question whether a budget is raised, or add newly exhausted meters to it.

    Args:
        number: The frame of the budget.
        budget: The budget.
        unit: A unit that it stops.
    """
    used = used_up(tx, budget)
    needs = [tx.state["units"][waiting].get("needs", {}) for waiting in budget["waiting"]]
    missing = dict.fromkeys(what for need in needs for what in lacks(budget, need))
    lacking = [what for what in missing if what not in used]
    if "wait" in budget:
        wait = tx.state["waits"][budget["wait"]]
        if list(wait["record"]["form"]["properties"]) == [*used, *lacking]:
            return
    else:
        wait = add_wait(tx, "budget", 0, "approval", _address(tx, number, unit), "budget")
        wait["budget"] = number
        budget["wait"] = wait["id"]
    spec = tx.flow_of(number).budget
    assert spec is not None
    parts = []
    for verb, those in (("has used up", used), ("has too little left of", lacking)):
        limits = [_amount(what, budget["limits"][what]) for what in those]
        parts += [f"{verb} its {' and '.join(limits)}"] if limits else []
    used = [*used, *lacking]
    wait["record"].update(
        {
            "title": f"'{tx.flow_of(number).budgeted}' {', and '.join(parts)}. Continue?",
            "body": "Approving raises the budget. The value given is the new limit, including "
            "the used part. Rejecting fails the waiting calls and all further ones.",
            "form": {
                "type": "object",
                "properties": {what: _field(spec, budget, what) for what in used},
                "required": used,
                "additionalProperties": False,
            },
            "choices": CHOICES,
            "votes": [],
            "batch": "budget",
        }
    )
    if "assignees" in spec:
        wait["record"].setdefault("assignees", list(spec["assignees"]))
    show(tx, wait)


def _address(tx: Transition, number: int, unit: Unit) -> str:
    """Return the address of the question, next to the steps of the flow that has the budget."""
    around = map(tx.scope_of, tx.acts_around(tx.act_of(unit)))
    flow = next(
        scope
        for scope in around
        if scope.get("frame", 0) == number and tx.graph.body(scope["body"]).kind == "flow"
    )
    return f"{flow['path']}budget"


def _field(spec: BudgetSpec, budget: Budget, what: str) -> dict[str, Plain]:
    """Return the form field for a new limit.

    By default the limit is raised by its declared amount.
    """
    more = budget["limits"][what] + declared_limits(spec)[what]
    if what == "wall_time":
        again = format_duration(more)
        title = f"Total wall time ({again} if left empty)"
        return {"type": "string", "pattern": DURATION, "minLength": 2, "title": title,
                "default": again}  # fmt: skip
    if what == "cost_usd":
        dollars = min(more / DOLLAR, MOST_DOLLARS)
        return {"type": "number", "exclusiveMinimum": budget["limits"][what] / DOLLAR,
                "maximum": MOST_DOLLARS, "title": f"Total cost in USD ({dollars:g} if left empty)",
                "default": dollars}  # fmt: skip
    more = min(more, MOST_CALLS)
    noun = "tokens" if what == "tokens" else "tool calls"
    title = f"Total {noun} ({more} if left empty)"
    least = budget["limits"][what] + 1
    return {"type": "integer", "minimum": least, "maximum": MOST_CALLS, "title": title,
            "default": more}  # fmt: skip


def settle(tx: Transition, wait: Wait, how: str, decision: dict[str, Any]) -> None:
    """Raise a budget, or fail everything that it stops, according to a decision."""
    number = wait["budget"]
    budget = budget_of(tx.state, number)
    assert budget is not None
    if counting(wait["record"], decision["choice"]) == "approve":
        form = decision.get("form") or {}
        for what, limit in budget["limits"].items():
            budget["limits"][what] = max(limit, _limit(what, form.get(what)))
    else:
        budget["refused"] = {"by": decision.get("by"), "comment": decision.get("comment")}
        if "wall_time" in used_up(tx, budget):
            _stop_calls(tx, number, budget)
    result = answer(tx.state["execution"]["id"], wait["record"], decision, tx.now)
    release_waiting(tx, number, budget, how, result)


def _limit(what: str, given: Plain) -> int:
    """Return a limit from the form.

    An invalid one is 0, so nothing is raised and a new question opens.
    """
    try:
        if what == "wall_time":
            return parse_duration(given)
        if what == "cost_usd":
            return counted_as(what, given) if given <= MOST_DOLLARS else 0
        limit = int(given)
    except (TypeError, ValueError, OverflowError):
        return 0
    return limit if limit <= MOST_CALLS else 0


def release_waiting(
    tx: Transition, number: int, budget: Budget, how: str, result: Plain = None
) -> None:
    """Close the question and let the waiting units try again."""
    if "wait" in budget:
        close_wait(tx, tx.state["waits"][budget["wait"]], how, result)
    for waiting in budget["waiting"]:
        unit = tx.state["units"][waiting]
        del unit["budget"]
        resume(tx, unit)
    budget["waiting"] = {}
    let_queue_try(tx, budget)
    if _bound(budget):
        watch_time(tx, number, budget)


def withdraw_idle(tx: Transition) -> None:
    """Withdraw questions that no unit waits for, if no call of their flow runs."""
    for number, owner in tx.idle_questions.items():
        wait = tx.state["waits"].get(number)
        budget = budget_of(tx.state, owner)
        if budget is not None and (budget["waiting"] or budget["calls"]):
            continue
        if wait is not None:
            close_wait(tx, wait, "withdrawn")
    tx.idle_questions.clear()
