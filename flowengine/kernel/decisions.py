"""The effects of a decision or an expiry, by the wait's owner."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from flowengine.kernel.ending import cut_attempts
from flowengine.kernel.recovery import interrupted
from flowengine.kernel.transition import Transition
from flowengine.kernel.view import DECIDABLE
from flowengine.kernel.waiting import approvals, budget_questions, permissions
from flowengine.named_tuples import NamedTuple

if TYPE_CHECKING:
    from flowengine.kernel.events import Decided
    from flowengine.kernel.state.phases import Owner
    from flowengine.kernel.state.records import Wait

_Decide: TypeAlias = "Callable[[Transition, Wait, Decided], None]"
_Expire: TypeAlias = "Callable[[Transition, Wait], None]"


class Row(NamedTuple):
    """How the waits of an owner are decided, with text for the documentation."""

    who: str
    """The waiting party."""
    decided: str
    decide: _Decide
    expired: str
    expire: _Expire | None
    """None: its waits have no such timer and stay open until they are decided."""


def decide(tx: Transition, event: Decided) -> None:
    """Apply a decision. A decision about a closed wait has no effect."""
    wait = tx.state["waits"].get(event["wait"])
    if wait is not None and wait["kind"] in DECIDABLE:
        DECISIONS[wait["owner"]].decide(tx, wait, event)


def expire(tx: Transition, number: int, _arg: int) -> None:
    """Apply the expiry of an open wait, when its timer has fired."""
    wait = tx.state["waits"][number]
    do = DECISIONS[wait["owner"]].expire
    assert do is not None
    do(tx, wait)


DECISIONS: dict[Owner, Row] = {
    "step": Row(
        "the unit of an `approval`, a question (`std.ask`) or a `wait`",
        "it is a vote; with enough of them the step continues with the outcome",
        approvals.decide_approval,
        "the step continues with `expired`, or with the choice that `on_expire` names",
        approvals.expire,
    ),
    "permission": Row(
        "all units that need it before their attempts begin: to call a tool, or to open an "
        "environment",
        "it is a vote; with enough of them the attempts begin, or fail with `Rejected`; or the "
        "call has the result that was given",
        permissions.decide_permission,
        "the attempts fail with `Expired`, or continue as `on_expire` says; who needs it next asks "
        "again",
        permissions.expire,
    ),
    "budget": Row(
        "all units for whose calls a budget has nothing left",
        "the budget is raised, and the calls begin; or they and all further ones fail",
        budget_questions.decide_budget,
        "it stays open",
        None,
    ),
    "attempt": Row(
        "a unit whose attempt was cut off, or that has lost its environment",
        "the attempt runs again, has the result given, or has failed",
        interrupted.decide_attempt,
        "it stays open",
        None,
    ),
    "cut": Row(
        "a compensation, for an attempt that was cut off",
        "that runs again, has acted and is undone, or has not acted",
        cut_attempts.decide_cut_attempt,
        "it stays open",
        None,
    ),
}
"""Owner → the effects of a decision about its waits, and of their expiry."""
