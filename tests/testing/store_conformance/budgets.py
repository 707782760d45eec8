# Shows G12
"""Budgets that executions share."""

from __future__ import annotations

from typing import Any

from flowengine.journal.encoding import pack, unpack
from flowengine.journal.records import Append, ExecutionHead, LockOperation
from flowengine.journal.store import JournalStore
from flowengine.kernel.notation.times import parse_time
from tests.testing.store_conformance.making import append_event, checks, new_execution, same

NAME = "budget day 2026-11-28 ana"


def _claim(unit: int, *need: int | None, meter: str = "tokens", **more: Any) -> LockOperation:
    granted = pack({"type": "granted", "at": 1, "lock": NAME, "unit": unit})
    return LockOperation(NAME, unit, granted=granted, amounts={meter: [*need], **more})


def _settle(unit: int, **used: int) -> LockOperation:
    return LockOperation(NAME, unit, then="give", amounts=used)


def _answers(store: JournalStore, id: str) -> list[Any]:
    events = [unpack(message.event) for message in store.inbox(id)]
    return [[event["unit"], event.get("amounts") or event["lacks"]] for event in events]


def _standing(store: JournalStore) -> list[Any]:
    return [[budget.used, budget.reserved, budget.limits] for budget in store.budgets()]


@checks
def check_what_is_left_of_a_budget_is_granted_and_the_rest_waits(store: JournalStore) -> None:
    """A claim is granted what is left, waits for reservations, or is refused, in order."""
    for id in ("e1", "e2", "e3"):
        new_execution(store, id)
    append_event(store, "e1", 1, claims=[_claim(1, 100, 10, 70, 0), _claim(2, 100, 10, 70, 5)])
    same(_answers(store, "e1"), [[1, {"tokens": 70}], [2, {"tokens": 35}]], "two claims")
    append_event(store, "e2", 1, claims=[_claim(1, 100, 10, 20, 0), _claim(9, None, 5, 5, 0)])
    append_event(store, "e3", 1, claims=[_claim(1, 100, 90, 90, 0)])
    same((_answers(store, "e2"), _answers(store, "e3")), ([], []), "while the rest is reserved")
    same(_standing(store), [[{}, {"tokens": 110}, {"tokens": 100}]], "with one without a limit")

    append_event(store, "e1", 2, claims=[_settle(1, tokens=20), _settle(1, tokens=20)])
    same(_answers(store, "e2"), [[1, {"tokens": 20}]], "the next one")
    lacks = {"meter": "tokens", "used": 20, "limit": 100}
    same(_answers(store, "e3"), [[1, lacks]], "one that needs more than can become free")
    same(_standing(store)[0][:2], [{"tokens": 20}, {"tokens": 60}], "settled once")
    append_event(store, "e1", 3, claims=[_settle(2)])
    append_event(store, "e2", 2, claims=[_settle(1), _settle(9, tokens=7)])
    same(_standing(store)[0][:2], [{"tokens": 27}, {}], "released, and settled")


@checks
def check_the_limit_of_a_meter_that_a_call_does_not_use_is_kept(store: JournalStore) -> None:
    """It neither keeps the call waiting nor refuses it."""
    new_execution(store, "e1")
    for unit, limit in ((1, 100), (2, None)):
        claim = _claim(unit, limit, 10, 70, 0, cost_usd=[0, None, None, None])
        append_event(store, "e1", unit, claims=[claim])
    same(_answers(store, "e1"), [[1, {"tokens": 70}]], "the one with a limit")
    limits = {"tokens": 100, "cost_usd": 0}
    same(_standing(store), [[{}, {"tokens": 140}, limits]], "its limits")


@checks
def check_prune_removes_past_periods(store: JournalStore) -> None:
    """A budget stays as long as anything claims it, and one without periods for ever."""
    names = ["budget all - ana", "budget day 2026-11-27 ana", "budget day 2026-11-28 ana",
             "budget month 2026-10 ana", "budget month 2026-11 ana"]  # fmt: skip
    new_execution(store, "e1")
    claims = [_claim(1, 100, 10, 70, 0)._replace(lock=name) for name in names]
    append_event(store, "e1", 1, claims=claims)
    end_of_day = parse_time("2026-11-28T00:00:00Z")
    same(store.prune(end_of_day).budgets, 0, "while all of them are claimed")
    settled = [_settle(1, tokens=5)._replace(lock=name) for name in names]
    append_event(store, "e1", 2, claims=settled)

    same(store.prune(end_of_day - 1).budgets, 1, "the month before")
    same(store.prune(end_of_day).budgets, 1, "the day that has just ended")
    left = [budget.name for budget in store.budgets()]
    same(
        left, ["budget all - ana", "budget day 2026-11-28 ana", "budget month 2026-11 ana"], "left"
    )
    append_event(store, "e1", 3, claims=[claims[1]])
    same(store.budgets()[1].used, {}, "one that is used again")


@checks
def check_calls_that_have_begun_count_at_once(store: JournalStore) -> None:
    """No claim waits for another call to end, because that returns nothing."""
    new_execution(store, "e1")
    claims = [_claim(unit, 2, 1, 1, 0, meter="tool_calls") for unit in (1, 2, 3)]
    append_event(store, "e1", 1, claims=claims)
    lacks = {"meter": "tool_calls", "used": 2, "limit": 2}
    one = {"tool_calls": 1}
    same(_answers(store, "e1"), [[1, one], [2, one], [3, lacks]], "three calls of two")


@checks
def check_an_execution_that_ends_pays_what_it_has_reserved(store: JournalStore) -> None:
    """Those of its claims that wait are withdrawn, and others have their turn."""
    for id in ("e1", "e2"):
        new_execution(store, id)
    append_event(store, "e1", 1, claims=[_claim(1, 100, 60, 60, 0), _claim(2, 100, 60, 60, 0)])
    append_event(store, "e2", 1, claims=[_claim(1, 100, 30, 40, 0)])
    append_event(store, "e1", 2, head=ExecutionHead("cancelled", 60))
    same(_standing(store)[0][:2], [{}, {"tokens": 100}], "while its attempts are being stopped")
    same(_answers(store, "e2"), [[1, {"tokens": 40}]], "who waited behind one withdrawn")
    store.commit([Append("e1", 1, 3, release=True)])
    same(_standing(store)[0][:2], [{"tokens": 60}, {"tokens": 40}], "afterwards")
