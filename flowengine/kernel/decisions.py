"""What a decision does, and what follows when nobody decides in time: by whose the wait is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from flowengine.kernel.ending import cut_attempts
from flowengine.kernel.machine import Machine
from flowengine.kernel.recovery import interrupted
from flowengine.kernel.waiting import approvals, budget_questions, environment_questions
from flowengine.kernel.waiting.owners import Owner, owner_of

if TYPE_CHECKING:
    from flowengine.kernel.events import Decided
    from flowengine.kernel.state.records import Wait

DECIDABLE = frozenset({"approval", "ask", "question"})
"""Kinds of waits that end by a decision."""


def decide(m: Machine, event: Decided) -> None:
    """Do what somebody has decided; about a wait that is closed it does nothing."""
    wait = m.state["waits"].get(event["wait"])
    if wait is not None and wait["kind"] in DECIDABLE:
        DECIDE[owner_of(wait)](m, wait, event)


def expire(m: Machine, number: int, _arg: int) -> None:
    """Do what follows when the time to decide is over: a timer of an open wait has fired."""
    wait = m.state["waits"][number]
    EXPIRE[owner_of(wait)](m, wait)


DECIDE: dict[Owner, Callable[[Machine, Wait, Decided], None]] = {
    "step": approvals.decide,
    "environment": environment_questions.decide,
    "budget": budget_questions.decide,
    "attempt": interrupted.decide,
    "cut": cut_attempts.decide,
}
"""What a decision does."""

EXPIRE: dict[Owner, Callable[[Machine, Wait], None]] = {
    "step": approvals.expire,
    "environment": environment_questions.expire,
}
"""What follows when nobody decides in time; the other questions stay open until somebody does."""
