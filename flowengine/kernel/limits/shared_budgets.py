"""Budgets that executions share, by key and period (docs/language/budgets.md: Shared budgets).

    call ─► claimed ─► granted ─► reserved ─► settled when its attempt has ended
               ├─ too little is left ─► it fails with `BudgetExceeded`
               └─ other calls have reserved it ─► queued until some of them have ended

The store of the journals decides, as for locks that executions share. A call claims last, after its
lock, so that it holds no reservation while it waits for anything that another call holds. Several
budgets are claimed one after the other, in the order of their names, so that two calls cannot wait
for each other.

Compensation and cleanup are counted but never refused. So is an attempt that begins again without a
new decision about it, such as that of a cut-off attempt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flowengine.kernel.commands import Claim, GiveBack
from flowengine.kernel.errors import StepFailure
from flowengine.kernel.events import Granted
from flowengine.kernel.expressions.names import Names, evaluate
from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.limits import meters
from flowengine.kernel.limits.call_counts import uncount
from flowengine.kernel.limits.locks import forget_claim, resume, suspend
from flowengine.kernel.notation.accounts import UNITS, account_at, read_account
from flowengine.kernel.state import entries
from flowengine.kernel.state.entries import Entry
from flowengine.kernel.state.moves import move
from flowengine.kernel.state.records import Activation, Reservation, Unit
from flowengine.kernel.transition import Transition, require
from flowengine.kernel.view import AMOUNTS, DOLLAR, budget_of, budgets_around, unbound


def declare(tx: Transition, names: Names, frame: int) -> None:
    """Evaluate the keys of the shared budgets of a flow that begins, or was changed.

    Args:
        tx: The transition.
        names: The names that its keys can use.
        frame: Its frame, or 0 for the main flow.

    Raises:
        StepFailure: A key is not text.
        EvaluationError: A key cannot be evaluated.
    """
    flow, budget = tx.flow_of(frame), budget_of(tx.state, frame)
    if budget is None:
        return
    shared = [*inherited(tx)] if not frame else []
    for spec in flow.shared_budgets:
        key = evaluate(names, spec["key"])
        is_text = isinstance(key, str) or (isinstance(key, int) and not isinstance(key, bool))
        message = f"the key of a shared budget of {flow.id!r} is {key!r}, which is not text"
        require(is_text, "ValidationError", message, {"field": "key"})
        limits: Mapping[str, Plain] = meters.declared_limits(spec)
        shared.append([str(key), spec.get("period"), dict(limits)])
    budget.pop("shared", None)
    if shared:
        budget["shared"] = shared


def inherited(tx: Transition) -> list[list[Plain]]:
    """Return those of the flow that has started this execution in the background."""
    background: Mapping[str, Any] | None = tx.state["execution"].get("background")
    return [] if background is None else background.get("shared", [])


def waits(tx: Transition, unit: Unit, then: Entry) -> bool:
    """Reserve what a call needs in the shared budgets around it, and return whether it waits.

    Args:
        tx: The transition.
        unit: The calling unit.
        then: The entry to process when the next claim was granted.
    """
    number = unit["id"]
    held = tx.state.get("reserved", {}).get(number)
    if held is None:
        if not (tx.graph.shares_budgets or inherited(tx)):
            return False
        act = tx.act_of(unit)
        asked = _needs(tx, number, tx.frame_of(act), act)
        if not asked or meters.has_to_measure(tx, unit, tx.node(act)):
            return False
        held = tx.state.setdefault("reserved", {})[number] = asked
    for account in sorted(held):
        if "granted" not in held[account] and not _claim(tx, number, account, held[account]):
            suspend(tx, unit, "budget", then)
            return True
    return False


def cover(tx: Transition, number: int, frame: int, act: Activation | None) -> None:
    """Count an attempt that begins without a reservation, whatever is left.

    Args:
        tx: The transition.
        number: The unit.
        frame: The frame of its flow.
        act: Its activation. None: a cut-off attempt that is being settled.
    """
    if not (tx.graph.shares_budgets or inherited(tx)) or number in tx.state.get("reserved", ()):
        return
    asked = _needs(tx, number, frame, None)
    unit = tx.state["units"].get(number)
    if not asked:
        return
    if unit and act and ("opens" in act or meters.has_to_measure(tx, unit, tx.node(act))):
        return
    tx.state.setdefault("reserved", {})[number] = asked
    for account in sorted(asked):
        _claim(tx, number, account, asked[account])


def _needs(
    tx: Transition, number: int, frame: int, act: Activation | None
) -> dict[str, Reservation]:
    """Return what a call needs, by shared budget.

    Args:
        tx: The transition.
        number: The calling unit.
        frame: The frame of its flow.
        act: Its activation. None: it has no limits.
    """
    amounts = {} if act is not None and "opens" in act else _amounts(tx, number)
    if not amounts:
        return {}  # nothing of it is counted
    found: dict[str, Reservation] = {}
    free = None if act is None else unbound(tx, act)
    for owner, budget in budgets_around(tx, frame):
        for key, period, limits in budget.get("shared", ()):
            account = account_at(key, period, tx.now).name
            bounds = limits if free is not None and owner not in free else {}
            needs = found.setdefault(account, {"needs": {**amounts}})["needs"]
            for meter, bound in bounds.items():
                limit, *needed = needs.get(meter, _UNUSED)
                needs[meter] = [bound if limit is None else min(limit, bound), *needed]
    return found


_UNUSED: list[int | None] = [None, None, None, None]
"""Of a meter that a call does not use: its limit is only kept for lists of budgets."""


def _amounts(tx: Transition, number: int) -> dict[str, list[int | None]]:
    """Return `[None, least, most, beyond]` of a call, by meter."""
    unit = tx.state["units"].get(number)
    reserved = meters.reserved(tx, number)
    amounts = {"tool_calls": 1} if reserved is None else reserved
    needs: Mapping[str, list[int]] = {} if unit is None else unit.get("needs", {})
    ranges = {meter: [amount, amount, 0] for meter, amount in amounts.items()}
    return {meter: [None, *range_] for meter, range_ in {**ranges, **needs}.items()}


def _claim(tx: Transition, number: int, account: str, held: Reservation) -> bool:
    """Claim a part of a budget, and return whether it is granted in any case."""
    needs = held["needs"]
    tx.commands.append(Claim(account, number, 1, "queue", needs))
    used = {meter: need for meter, need in needs.items() if need[1:] != _UNUSED[1:]}
    if all(limit is None for limit, *_ in used.values()):
        held["granted"] = {meter: most or 0 for meter, (_, _, most, _) in used.items()}
        return True
    tx.state.setdefault("claims", {})[number] = account
    return False


def granted(tx: Transition, unit: Unit, event: Granted) -> None:
    """Continue with the answer to a claim: the next one, the attempt, or its failure."""
    forget_claim(tx, unit["id"])
    if "lacks" not in event:
        tx.state["reserved"][unit["id"]][event["lock"]]["granted"] = event.get("amounts", {})
        resume(tx, unit)
        return
    del unit["then"]
    give_back(tx, unit["id"], None, ran=False)
    unit.pop("needs", None)
    move(unit, "ready")
    uncount(tx, unit)
    unit["attempt"] += 1
    unit["tries"] += 1
    tx.agenda.append(entries.attempt_failed(unit["id"], _refusal(event["lock"], event["lacks"])))


def _refusal(name: str, lacks: Mapping[str, Plain]) -> StepFailure:
    """Return the error of a call that exceeds a shared budget."""
    account, meter = read_account(name), str(lacks["meter"])
    unit = DOLLAR if meter == "cost_usd" else 1
    used, limit = (float(lacks[which] or 0) / unit for which in ("used", "limit"))
    resets = account.resets
    when = f" of this {account.period}" if resets else ""
    then = f"; it is free again at {resets}" if resets else ""
    message = (
        f"the budget {account.key!r} has used {used:g} of its {limit:g} {UNITS[meter]}{when}, "
        f"which leaves too little for the next call{then}"
    )
    data: Plain = {
        "limit": meter, "of": limit, "used": used, "key": account.key,
        "period": account.period, "resets": resets,
    }  # fmt: skip
    return StepFailure("BudgetExceeded", message, data, retryable=False)


def stop_waiting(tx: Transition, unit: Unit) -> None:
    """Withdraw the claims of a unit that waits for one."""
    unit.pop("then", None)  # a retry of this very unit has dropped it
    give_back(tx, unit["id"], None, ran=False)


def give_back(
    tx: Transition, number: int, amounts_used: Mapping[str, int] | None, *, ran: bool
) -> None:
    """Settle the reservations of a call, or release them.

    Args:
        tx: The transition.
        number: The calling unit. It may have no reservations.
        amounts_used: The amounts used. None: unknown, so the reservations count.
        ran: Whether it began outside the kernel.
    """
    held = tx.state.get("reserved", {}).pop(number, None)
    if held is None:
        return
    if not tx.state["reserved"]:
        del tx.state["reserved"]
    waiting = tx.state.get("claims", {}).get(number)
    for account, reservation in sorted(held.items()):
        amounts = reservation.get("granted")
        if amounts is None and account != waiting:
            continue
        used = dict(amounts) if ran and amounts is not None else {}
        if used and amounts_used is not None:
            used.update(dict.fromkeys(used.keys() & set(AMOUNTS), 0))
            used.update(amounts_used)
        tx.commands.append(GiveBack(account, number, used))
    forget_claim(tx, number)


def bounds(tx: Transition, number: int) -> Iterator[tuple[str, int]]:
    """Yield each meter with the amount that a shared budget grants to a measured attempt."""
    for held in tx.state.get("reserved", {}).get(number, {}).values():
        for meter, amount in held.get("granted", {}).items():
            if meter in AMOUNTS and held["needs"][meter][0] is not None:
                yield meter, amount
