"""Questions about attempts whose outcome is unknown (docs/language.md: Crashes).

| attempt                                        | the answer is for                     |
|------------------------------------------------|---------------------------------------|
| cut off while it ran                           | its unit, which continues with it     |
| cannot begin because its environment has ended | its unit                              |
| cut off in a scope that compensates            | the scope: is there a step to undo?   |

The choices are the same for all: run again, use the given result, or fail. No result can be given
for a step whose results have an internal form.
"""

from __future__ import annotations

from flowengine.kernel.events import ErrorData, ProcessData
from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.graph.linked import Node
from flowengine.kernel.state.records import Cut, Unit, Wait
from flowengine.kernel.transition import Transition
from flowengine.kernel.view import is_for_operator
from flowengine.kernel.waiting.waits import add_wait, new_wait, show


def ask_about_attempt(
    tx: Transition,
    unit: Unit,
    error: ErrorData | None = None,
    process: ProcessData | None = None,
) -> None:
    """Ask an operator about the outcome of a cut-off attempt.

    Args:
        error: The error of its environment. None: its process ended.
        process: The process, if it may still be at work.
    """
    wait = new_wait(tx, unit, "question", "ask")
    node = tx.node(tx.act_of(unit))
    asked = _uncertain(tx.address(unit), unit["attempt"], node, error, process)
    wait["record"].update(asked)
    show(tx, wait)


def ask_about_cut(tx: Transition, number: int, cut: Cut, error: ErrorData | None = None) -> None:
    """Ask for the outcome of an attempt, which a scope needs before it compensates."""
    node = tx.graph.node(cut["step"])
    wait = add_wait(tx, "cut", 0, "question", cut["address"], node.id)
    wait["cut"] = number
    cut["wait"] = wait["id"]
    asked = _uncertain(cut["address"], cut["attempt"], node, error, cut.get("process"))
    wait["record"].update(asked)
    show(tx, wait)


def wait_to_settle(tx: Transition, number: int, cut: Cut) -> None:
    """Wait for a process that meets the needs of a cut-off attempt's step, to settle it."""
    node = tx.graph.node(cut["step"])
    wait = add_wait(tx, "cut", 0, "worker", cut["address"], node.id)
    wait["cut"] = number
    cut["wait"] = wait["id"]
    show_needs(tx, wait, node)


def wait_for_worker(tx: Transition, unit: Unit) -> None:
    """Wait until a process that meets the needs of a step drives the execution.

    The unit keeps its place among the items of a map, so there are only as many such waits as items
    may run at once.

    Args:
        unit: The unit, in phase `ready`.
    """
    show_needs(tx, new_wait(tx, unit, "worker"), tx.node(tx.act_of(unit)))


def show_needs(tx: Transition, wait: Wait, node: Node) -> None:
    """Report a new wait for a worker, or that its step needs something else."""
    labels = " and ".join(node.needs)
    title = f"{wait['record']['address']} needs a worker that offers {labels}"
    wait["record"].update({"title": title, "needs": node.needs})
    show(tx, wait)


def ask_for_environment(tx: Transition, unit: Unit, error: ErrorData) -> None:
    """Ask an operator about an attempt whose environment is no longer available."""
    wait = new_wait(tx, unit, "question", "ask")
    when = "the process that resumed it does not meet its needs. It is tried again whenever the "
    when += "execution is resumed."
    if is_for_operator(error):
        when = "its environment would be without its files. Only an answer continues the execution."
    wait["record"].update(
        _question(
            f"{tx.address(unit)} cannot continue: {error['message']}",
            f"Attempt {unit['attempt']} has not started: {when}",
            ("Try it again now", "Continue with this result instead", "Fail with this error"),
            tx.node(tx.act_of(unit)),
        )
    )
    wait["record"].update({"ran": "no", "error": error, **_returns(tx.node(tx.act_of(unit)))})
    show(tx, wait)


def _uncertain(
    address: str,
    attempt: int,
    node: Node,
    error: ErrorData | None,
    process: ProcessData | None,
) -> dict[str, Plain]:
    """Return the question about an attempt that was cut off."""
    what, when, more = "was interrupted", "its process ended", ""
    if error is not None:
        what, when = "lost its environment", f"that ended: {error['message']}"
    elif process is not None:
        when = "its process gave no more sign of life"
        more = (
            f" Process {process['pid']} on {process['host']} may still be at work on it: make sure "
            "that it has ended before you run the attempt again."
        )
    asked = _question(
        f"{address} {what}. Did it take effect?",
        f"Attempt {attempt} was running when {when}. Whether it took effect is unknown.{more}",
        ("Run it again", "It took effect: use this result", "It failed"),
        node,
    )
    asked |= {"ran": "maybe", **_returns(node)}
    return asked if error is None else {**asked, "error": error}


def _returns(node: Node) -> dict[str, Plain]:
    """Return the schema of the results of an attempt, as part of its question.

    The result of an adapter has another form.
    """
    if node.adapter is not None or "returns" not in node.task:
        return {}
    return {"returns": node.task["returns"]}


def _question(title: str, body: str, labels: tuple[str, str, str], node: Node) -> dict[str, Plain]:
    return {
        "title": title,
        "body": body,
        "choices": [
            {"id": id, "label": label, "counts_as": "other", "comment": "optional"}
            for id, label in zip(("retry", "result", "fail"), labels, strict=True)
            if not (node.opaque and id == "result")
        ],
        "votes": [],
    }
