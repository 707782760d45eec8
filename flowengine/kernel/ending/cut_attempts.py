"""Attempts that were cut off: finding out whether they acted, before they are undone.

See docs/language.md: Crashes.

    cut off ─► may it be repeated? ─► run again, under the same key ─► its result ─► settled
                 └─ no: `on_crash` ─► somebody is asked ─► the answer ─► settled
                                   └► it stays unknown, and the compensation fails

A late result of the attempt itself settles it, too. A crash or a lost environment begins that anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.kernel.commands import Run, Stop
from flowengine.kernel.expressions.names import Names, evaluate
from flowengine.kernel.flow_state import readers
from flowengine.kernel.graph.compiled import EvaluationError, Plain
from flowengine.kernel.graph.values import join_secrets
from flowengine.kernel.limits import budgets
from flowengine.kernel.state import entries
from flowengine.kernel.transition import Transition
from flowengine.kernel.waiting.attempt_questions import ask_about_cut
from flowengine.kernel.waiting.waits import close_wait

if TYPE_CHECKING:
    from flowengine.kernel.events import Decided, Lost
    from flowengine.kernel.state.records import Cut, Done, Wait


def settle_cut_attempt(tx: Transition, undo: int, number: int, cut: Cut) -> None:
    """Find out what became of an attempt that was cut off."""
    node = tx.graph.node(cut["step"])
    cut["undo"] = undo
    if node.effect != "once" or node.on_crash == "retry":
        _run_again(tx, number, cut)
    elif node.on_crash == "ask":
        ask_about_cut(tx, number, cut)
    else:
        cut["settled"] = "unknown"


def _run_again(tx: Transition, number: int, cut: Cut) -> None:
    """Run an attempt that was cut off once more, with the same input and key."""
    cut["attempt"] += 1
    cut["running"] = True
    budgets.reserve(tx, number, None, cut.get("frame", 0))
    given = join_secrets(cut["input"], cut["secrets"])
    environments = None
    node = tx.graph.node(cut["step"])
    if node.environments:
        environments, given = given["environments"], given["input"]
    tx.commands.append(
        Run(
            number,
            cut["attempt"],
            cut["step"],
            cut["address"],
            cut["args"],
            given,
            cut["key"],
            environments=environments,
            state=readers.read(tx, node, cut.get("frame", 0)) if node.reads else None,
            granted=cut.get("granted"),
        )
    )


def apply_result(tx: Transition, event: Any) -> None:
    """Apply an event about an attempt that no unit runs, if it is one that was cut off.

    What an attempt gave that was not settled yet counts whenever it comes, unless a later one runs.

    Args:
        event: As `advance` takes it.
    """
    cut = tx.state["cuts"].get(event["unit"])
    if cut is None:
        return
    runs = cut.get("running", False) and cut["attempt"] == event["attempt"]
    match event["type"]:
        case "succeeded" if runs or not cut.get("running"):
            _settled(tx, event["unit"], cut, "succeeded", event["value"])
        case "failed" | "asked" | "measured" if runs or not cut.get("running"):
            _settled(tx, event["unit"], cut, "failed", None)
        case "lost" if runs:
            _lost(tx, event["unit"], cut, event)
        case "cut" if runs:
            _crashed(tx, event["unit"], cut)


def _settled(tx: Transition, number: int, cut: Cut, status: str, value: Plain) -> None:
    if cut.pop("running", False):
        budgets.settle(tx, number, cut.get("frame", 0))
    if "settled" in cut:
        return
    if "wait" in cut:
        close_wait(tx, tx.state["waits"][cut["wait"]], "withdrawn")
    cut["settled"] = status
    cut["value"] = value
    if "undo" in cut:
        tx.agenda.append(entries.undo(cut["undo"]))


def _lost(tx: Transition, number: int, cut: Cut, event: Lost) -> None:
    """Ask what became of an attempt whose environment ended, while it ran to settle another."""
    del cut["running"]
    budgets.settle(tx, number, cut.get("frame", 0), ran=event["ran"] != "no")
    ask_about_cut(tx, number, cut, event["error"])


def _crashed(tx: Transition, number: int, cut: Cut) -> None:
    """Settle anew what was being settled when the process died."""
    del cut["running"]
    budgets.settle(tx, number, cut.get("frame", 0))
    cut.pop("undo", None)
    for undo, record in tx.state["undos"].items():
        if number in record["cut"]:
            tx.agenda.append(entries.undo(undo))


def stop_settling(tx: Transition, number: int) -> None:
    """Withdraw what is being done to find out about an attempt that was cut off."""
    cut = tx.state["cuts"][number]
    cut.pop("undo", None)
    if cut.pop("running", False):
        tx.commands.append(Stop(number, cut["attempt"]))
        budgets.settle(tx, number, cut.get("frame", 0))
    if "wait" in cut:
        close_wait(tx, tx.state["waits"][cut["wait"]], "withdrawn")


def decide_cut_attempt(tx: Transition, wait: Wait, event: Decided) -> None:
    """Do what an operator says about an attempt that was cut off.

    Args:
        wait: The open question.
        event: The answer, already found to be allowed and well-formed.
    """
    choice, number = event["choice"], wait["cut"]
    cut = tx.state["cuts"][number]
    close_wait(tx, wait, "decided", choice)
    if choice == "retry":
        _run_again(tx, number, cut)
    else:
        status = "succeeded" if choice == "result" else "failed"
        _settled(tx, number, cut, status, event.get("value"))


def done_of(tx: Transition, cut: Cut) -> Done:
    """Return what is to be undone of an attempt that turned out to have succeeded."""
    node = tx.graph.node(cut["step"])
    output = cut["value"]
    if node.output is not None:
        extra = {**cut["local"], "result": output, "approval": None}
        names = Names(tx, None, past=cut["past"], extra=extra, frame=cut.get("frame", 0))
        try:
            output = evaluate(names, node.output)
        except EvaluationError:
            # Undoing must not fail because the result cannot be reshaped: it sees the raw one.
            output = cut["value"]
    done: Done = {
        "step": cut["step"],
        "address": cut["address"],
        "output": output,
        "local": cut["local"],
        "past": cut["past"],
    }
    if "frame" in cut:
        done["frame"] = cut["frame"]
    return done
