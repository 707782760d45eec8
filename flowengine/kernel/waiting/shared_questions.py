"""Questions that units wait for before their attempts begin: who waits, and what was answered.

A question is about one thing, named by its owner and a digest: the owner is the unit of the step or
region that it belongs to, or 0 for the execution. Whoever needs the thing while it is open waits
with the others; the answer stands as long as its owner. Who asks, and what follows from an answer,
is in `environment_questions`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.kernel.waiting.waits import add_wait, close_wait

if TYPE_CHECKING:
    from flowengine.kernel.machine import Machine
    from flowengine.kernel.state.records import Unit, Wait

About = tuple[int, str]
"""Owner and digest of what is asked about."""


def found(m: Machine, about: About) -> Any:
    """Return the number of the question that is open, its answer, or None if nobody has asked."""
    owner, digest = about
    return m.state.get("answers", {}).get(owner, {}).get(digest)


def new_question(m: Machine, about: About, address: str, step: str) -> Wait:
    """Return a new question; the caller fills in the rest of its record."""
    wait = add_wait(m, 0, "approval", address, step)
    wait["asks"], wait["units"] = list(about), {}
    put(m, about, wait["id"])
    return wait


def put(m: Machine, about: About, answer: Any) -> None:
    """Note what has become of a question; None: it was never asked."""
    owner, digest = about
    if answer is not None:
        m.state.setdefault("answers", {}).setdefault(owner, {})[digest] = answer
        return
    answers = m.state["answers"]
    del answers[owner][digest]
    if not answers[owner]:
        forget_answers(m, owner)


def forget_answers(m: Machine, owner: int) -> None:
    """Forget what was answered about what belongs to a step or region that has ended."""
    answers = m.state.get("answers")
    if answers is not None and answers.pop(owner, None) is not None and not answers:
        del m.state["answers"]


def leave_questions(m: Machine, unit: Unit) -> None:
    """Remove a unit from the questions it waits for; withdraw those that nobody waits for."""
    for number in unit.pop("asks"):
        wait = m.state["waits"][number]
        del wait["units"][unit["id"]]
        if not wait["units"]:
            withdraw_question(m, wait)


def withdraw_question(m: Machine, wait: Wait) -> None:
    """Withdraw a question for which nobody waits."""
    owner, digest = wait["asks"]
    put(m, (owner, digest), None)
    close_wait(m, wait, "withdrawn")
