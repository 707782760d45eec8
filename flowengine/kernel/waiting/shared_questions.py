"""Questions that several units wait for before their attempts begin: who waits for which.

Whoever needs the thing that a question is about while it is open waits with the others, and it is
withdrawn with the last of them. What follows from an answer is in `permissions`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from flowengine.kernel.waiting import answers
from flowengine.kernel.waiting.waits import add_wait, close_wait

if TYPE_CHECKING:
    from flowengine.kernel.machine import Machine
    from flowengine.kernel.state.records import Unit, Wait


class Need(NamedTuple):
    """A permission that an attempt needs."""

    about: answers.About
    ask: Callable[[], Wait]
    """Asks for it, if nobody has."""


def new_question(m: Machine, about: answers.About, address: str, step: str) -> Wait:
    """Return a new question; the caller fills in the rest of its record."""
    wait = add_wait(m, "permission", 0, "approval", address, step)
    wait["asks"], wait["units"] = list(about), {}
    answers.put(m, about, wait["id"])
    return wait


def leave_questions(m: Machine, unit: Unit) -> None:
    """Remove a unit from the questions it waits for; withdraw those that nobody waits for."""
    for number in unit.pop("asks"):
        wait = m.state["waits"][number]
        del wait["units"][unit["id"]]
        if not wait["units"]:
            close_wait(m, wait, "withdrawn")
