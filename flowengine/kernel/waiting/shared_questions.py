"""Questions that several units wait for before their attempts begin, and the answers to them.

A question is about one thing, named by its owner and a digest: the owner is the unit of the step or
region that it belongs to, or 0 for the execution. `State.answers` has the number of the question
while it is open, then the answer, for as long as there is the owner.

Units that need the same thing wait for the same question, which is withdrawn with the last of them.
The effects of an answer are in `permissions`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine.kernel.waiting.waits import add_wait, close_wait

if TYPE_CHECKING:
    from flowengine.kernel.graph.compiled import Plain
    from flowengine.kernel.state.records import Unit, Wait
    from flowengine.kernel.transition import Transition

About = tuple[int, str]
"""Owner and digest of what is asked about."""


class Need(NamedTuple):
    """A permission that an attempt needs."""

    about: About
    ask: Callable[[], Wait]
    """Asks for it, if nobody has."""


# Questions


def new_question(tx: Transition, about: About, address: str, step: str) -> Wait:
    """Return a new question; the caller fills in the rest of its record."""
    wait = add_wait(tx, "permission", 0, "approval", address, step)
    wait["asks"], wait["units"] = list(about), {}
    keep_answer(tx, about, wait["id"])
    return wait


def leave_questions(tx: Transition, unit: Unit) -> None:
    """Remove a unit from the questions it waits for; withdraw those that nobody waits for."""
    for number in unit.pop("asks"):
        wait = tx.state["waits"][number]
        del wait["units"][unit["id"]]
        if not wait["units"]:
            close_question(tx, wait, "withdrawn")


def close_question(tx: Transition, wait: Wait, how: str, result: Plain = None) -> None:
    """Close a question; if no answer was kept, the next unit that needs one asks again."""
    about = about_of(wait)
    if answer_about(tx, about) == wait["id"]:
        take_back_answer(tx, about)
    close_wait(tx, wait, how, result)


def about_of(wait: Wait) -> About:
    """Return what a question is about."""
    owner, digest = wait["asks"]
    return owner, digest


# Answers


def answer_about(tx: Transition, about: About) -> Any:
    """Return the answer, the number of the question while it is open, or None if none was asked."""
    owner, digest = about
    return tx.state.get("answers", {}).get(owner, {}).get(digest)


def keep_answer(tx: Transition, about: About, answer: Any) -> None:
    """Keep an answer, or the number of an open question."""
    owner, digest = about
    tx.state.setdefault("answers", {}).setdefault(owner, {})[digest] = answer


def take_back_answer(tx: Transition, about: About) -> None:
    """Forget an answer, or that the question was asked."""
    owner, digest = about
    answers = tx.state["answers"]
    del answers[owner][digest]
    if not answers[owner]:
        forget_answers(tx, owner)


def forget_answers(tx: Transition, owner: int) -> None:
    """Forget all answers that belong to a step or region that has ended."""
    answers = tx.state.get("answers")
    if answers is not None and answers.pop(owner, None) is not None and not answers:
        del tx.state["answers"]
