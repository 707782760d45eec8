"""What was answered about a thing that several units need before their attempts begin.

A question is about one thing, named by its owner and a digest: the owner is the unit of the step or
region that it belongs to, or 0 for the execution. While the question is open its number stands
here, then the answer, for as long as there is the owner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flowengine.kernel.machine import Machine

About = tuple[int, str]
"""Owner and digest of what is asked about."""


def found(m: Machine, about: About) -> Any:
    """Return the number of the question that is open, its answer, or None if nobody has asked."""
    owner, digest = about
    return m.state.get("answers", {}).get(owner, {}).get(digest)


def put(m: Machine, about: About, answer: Any) -> None:
    """Note the number of a question, or its answer."""
    owner, digest = about
    m.state.setdefault("answers", {}).setdefault(owner, {})[digest] = answer


def take_back(m: Machine, about: About) -> None:
    """Forget that a question was asked."""
    owner, digest = about
    answers = m.state["answers"]
    del answers[owner][digest]
    if not answers[owner]:
        forget(m, owner)


def forget(m: Machine, owner: int) -> None:
    """Forget what was answered about what belongs to a step or region that has ended."""
    answers = m.state.get("answers")
    if answers is not None and answers.pop(owner, None) is not None and not answers:
        del m.state["answers"]
