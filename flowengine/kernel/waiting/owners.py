"""Whose a wait is: who goes on when it ends.

| owner         | its record has                                                          |
|---------------|-------------------------------------------------------------------------|
| `step`        | `unit`: who waits                                                       |
| `permission`  | `units`: who wait, before their attempts begin; `asks`: about what      |
| `budget`      | `budget`: whose it is; who waits stands in the budget                   |
| `attempt`     | `unit`: whose attempt may have acted, or has lost its environment       |
| `cut`         | `cut`: the attempt of which a scope that compensates has to know        |

`decisions` has a table by owner: what a decision does, and what follows if nobody decides in time.
A wait that is withdrawn, with a group that is cancelled for instance, is closed together with its
timers: a decision or expiry that comes later does nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from flowengine.kernel.view import budget_of
from flowengine.kernel.waiting import answers

if TYPE_CHECKING:
    from flowengine.kernel.machine import Machine
    from flowengine.kernel.state.phases import Owner
    from flowengine.kernel.state.records import Wait


def let_go(m: Machine, wait: Wait) -> None:
    """Have the owner of a wait that closes refer to it no more."""
    LET_GO[wait["owner"]](m, wait)


def _unit(m: Machine, wait: Wait) -> None:
    del m.state["units"][wait["unit"]]["wait"]


def _question(m: Machine, wait: Wait) -> None:
    """Forget a question without an answer; who needs one asks again."""
    owner, digest = wait["asks"]
    if answers.found(m, (owner, digest)) == wait["id"]:
        answers.take_back(m, (owner, digest))


def _budget(m: Machine, wait: Wait) -> None:
    budget = budget_of(m.state, wait["budget"])
    if budget is not None:
        del budget["wait"]


def _cut(m: Machine, wait: Wait) -> None:
    del m.state["cuts"][wait["cut"]]["wait"]


LET_GO: dict[Owner, Callable[[Machine, Wait], None]] = {
    "step": _unit,
    "permission": _question,
    "budget": _budget,
    "attempt": _unit,
    "cut": _cut,
}
"""What is done to the owner of a wait that is closed, however it ended."""
