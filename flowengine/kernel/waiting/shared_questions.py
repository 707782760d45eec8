"""Questions that several units can wait for before their attempts begin, and their answers.

A question has one topic, identified by its owner and a digest. The owner is the unit of the step or
region that the topic belongs to, or 0 for the execution. `State.answers` has the number of the
question while it is open, then the answer, as long as the owner exists.

Units with the same need wait for the same question, which is withdrawn when the last of them
leaves. `permissions` has the effects of an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flowengine.kernel.waiting.waits import add_wait, close_wait
from flowengine.named_tuples import NamedTuple

if TYPE_CHECKING:
    from flowengine.kernel.graph.compiled import Plain
    from flowengine.kernel.state.records import Unit, Wait
    from flowengine.kernel.transition import Transition

About = tuple[int, str]
"""Owner and digest of a topic."""


class NeededPermission(NamedTuple):
    """A permission that an attempt needs."""

    about: About
    ask: Callable[[], Wait]
    """Opens the question, if it was not asked before."""


# Questions


def new_question(tx: Transition, about: About, address: str, step: str) -> Wait:
    """Add a new question and return it. The caller fills in the rest of its record."""
    wait = add_wait(tx, "permission", 0, "approval", address, step)
    wait["asks"], wait["units"] = list(about), {}
    keep_answer(tx, about, wait["id"])
    return wait


def leave_questions(tx: Transition, unit: Unit) -> None:
    """Remove a unit from its questions, and withdraw those without other units."""
    for number in unit.pop("asks"):
        wait = tx.state["waits"][number]
        del wait["units"][unit["id"]]
        if not wait["units"]:
            close_question(tx, wait, "withdrawn")


def close_question(tx: Transition, wait: Wait, how: str, result: Plain = None) -> None:
    """Close a question. If no answer was stored, the next unit with the same need asks again."""
    about = about_of(wait)
    if answer_about(tx, about) == wait["id"]:
        take_back_answer(tx, about)
    close_wait(tx, wait, how, result)


def about_of(wait: Wait) -> About:
    """Return the topic of a question."""
    owner, digest = wait["asks"]
    return owner, digest


# Answers


def answer_about(tx: Transition, about: About) -> Any:
    """Return the answer, the number of the question while it is open, or None if there was none."""
    owner, digest = about
    return tx.state.get("answers", {}).get(owner, {}).get(digest)


def keep_answer(tx: Transition, about: About, answer: Any) -> None:
    """Store an answer, or the number of an open question."""
    owner, digest = about
    tx.state.setdefault("answers", {}).setdefault(owner, {})[digest] = answer


def take_back_answer(tx: Transition, about: About) -> None:
    """Remove an answer, or the number of a question."""
    owner, digest = about
    answers = tx.state["answers"]
    del answers[owner][digest]
    if not answers[owner]:
        forget_answers(tx, owner)


def forget_answers(tx: Transition, owner: int) -> None:
    """Remove all answers of a step or region that has ended."""
    answers = tx.state.get("answers")
    if answers is not None and answers.pop(owner, None) is not None and not answers:
        del tx.state["answers"]
