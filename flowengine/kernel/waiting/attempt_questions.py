"""Questions about attempts whose outcome is unknown (docs/language.md: Crashes).

| attempt                                        | the answer is for                     |
|------------------------------------------------|---------------------------------------|
| cut off while it ran                           | its unit, which continues with it     |
| cannot begin because its environment has ended | its unit                              |
| cut off in a scope that compensates            | the scope: is there a step to undo?   |

The choices are the same for all: run again, use the given result, or fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.transition import Transition
from flowengine.kernel.waiting.waits import add_wait, new_wait, show

if TYPE_CHECKING:
    from flowengine.kernel.events import ErrorData
    from flowengine.kernel.state.records import Cut, Unit


def ask_about_attempt(tx: Transition, unit: Unit, error: ErrorData | None = None) -> None:
    """Ask an operator about the outcome of a cut-off attempt.

    Args:
        error: The error of its environment. None: its process ended.
    """
    wait = new_wait(tx, unit, "question", "ask")
    wait["record"].update(_uncertain(tx.address(unit), unit["attempt"], error))
    show(tx, wait)


def ask_about_cut(tx: Transition, number: int, cut: Cut, error: ErrorData | None = None) -> None:
    """Ask about the outcome of an attempt that a scope needs before it compensates."""
    step = tx.graph.node(cut["step"]).id
    wait = add_wait(tx, "cut", 0, "question", cut["address"], step)
    wait["cut"] = number
    cut["wait"] = wait["id"]
    wait["record"].update(_uncertain(cut["address"], cut["attempt"], error))
    show(tx, wait)


def ask_for_environment(tx: Transition, unit: Unit, error: ErrorData) -> None:
    """Ask an operator about an attempt whose environment is no longer available."""
    wait = new_wait(tx, unit, "question", "ask")
    wait["record"].update(
        _question(
            f"{tx.address(unit)} cannot continue: {error['message']}",
            f"Attempt {unit['attempt']} has not started: an environment it used before is not "
            "available. It is tried again whenever the execution is resumed.",
            ("Try it again now", "Continue with this result instead", "Fail with this error"),
        )
    )
    wait["record"].update({"ran": "no", "error": error})
    show(tx, wait)


def _uncertain(address: str, attempt: int, error: ErrorData | None = None) -> dict[str, Plain]:
    """Return the question about a cut-off attempt."""
    what, when = "was interrupted", "its process ended"
    if error is not None:
        what, when = "lost its environment", f"that ended: {error['message']}"
    asked = _question(
        f"{address} {what}. Did it take effect?",
        f"Attempt {attempt} was running when {when}. Whether it took effect is unknown.",
        ("Run it again", "It took effect: use this result", "It failed"),
    )
    return {**asked, "ran": "maybe"} if error is None else {**asked, "ran": "maybe", "error": error}


def _question(title: str, body: str, labels: tuple[str, str, str]) -> dict[str, Plain]:
    return {
        "title": title,
        "body": body,
        "choices": [
            {"id": id, "label": label, "counts_as": "other", "comment": "optional"}
            for id, label in zip(("retry", "result", "fail"), labels, strict=True)
        ],
        "votes": [],
    }
