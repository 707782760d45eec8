"""Cut-off attempts: determining whether they took effect, before they are undone.

See docs/language.md: Crashes.

    cut off ─► may it be repeated? ─► run again, under the same key ─► its result ─► settled
                 └─ no: `on_crash` ─► an operator is asked ─► the answer ─► settled
                                   └► it stays unknown, and the compensation fails

A late result of the attempt itself settles it, too. If a crash interrupts the second run, this
starts again. If that run loses its environment, an operator is asked.
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
from flowengine.kernel.state.moves import move_cut
from flowengine.kernel.transition import Transition
from flowengine.kernel.waiting.attempt_questions import ask_about_cut
from flowengine.kernel.waiting.waits import close_wait

if TYPE_CHECKING:
    from flowengine.kernel.events import Decided, ErrorData
    from flowengine.kernel.state.records import Cut, Done, Wait


def settle_cut_attempt(tx: Transition, number: int, cut: Cut) -> None:
    """Determine the outcome of a cut-off attempt."""
    node = tx.graph.node(cut["step"])
    if node.effect != "once" or node.on_crash == "retry":
        _run_again(tx, number, cut)
    elif node.on_crash == "ask":
        _ask(tx, number, cut)
    else:
        move_cut(cut, "settled")
        cut["outcome"] = "unknown"


def _run_again(tx: Transition, number: int, cut: Cut) -> None:
    """Run a cut-off attempt again, with the same input and key."""
    cut["attempt"] += 1
    move_cut(cut, "run")
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
            at=tx.now,
        )
    )


def apply_result(tx: Transition, event: Any) -> None:
    """Apply an event about an attempt that no unit runs, if the attempt was cut off.

    A late result counts until the attempt is settled, unless a later attempt runs.

    Args:
        event: As for `advance`.
    """
    cut = tx.state["cuts"].get(event["unit"])
    if cut is None:
        return
    number, runs = event["unit"], cut["phase"] == "run"
    if runs and cut["attempt"] != event["attempt"]:
        return
    match event["type"]:
        case "succeeded":
            _settled(tx, number, cut, "succeeded", event["value"])
        case "failed" | "asked" | "measured":
            _settled(tx, number, cut, "failed", None)
        case "lost" if runs:
            _end_run(tx, number, cut, ran=event["ran"] != "no")
            _ask(tx, number, cut, event["error"])
        case "cut" if runs:
            _end_run(tx, number, cut)
            if "process" in event:
                cut["process"] = event["process"]
            move_cut(cut, "open")
            _go_on(tx, number)


def _settled(tx: Transition, number: int, cut: Cut, outcome: str, value: Plain) -> None:
    phase = cut["phase"]
    if phase == "settled":
        return
    _stop(tx, number, cut)
    move_cut(cut, "settled")
    cut["outcome"], cut["value"] = outcome, value
    if phase != "open":
        _go_on(tx, number)


def _stop(tx: Transition, number: int, cut: Cut) -> None:
    """End the attempt or the question that was to settle a cut-off attempt."""
    if cut["phase"] == "run":
        _end_run(tx, number, cut)
    elif "wait" in cut:
        close_wait(tx, tx.state["waits"][cut["wait"]], "withdrawn")


def _end_run(tx: Transition, number: int, cut: Cut, *, ran: bool = True) -> None:
    budgets.settle(tx, number, cut.get("frame", 0), ran=ran)


def _ask(tx: Transition, number: int, cut: Cut, error: ErrorData | None = None) -> None:
    move_cut(cut, "ask")
    ask_about_cut(tx, number, cut, error)


def _go_on(tx: Transition, number: int) -> None:
    """Continue the compensation that waits for the outcome of an attempt."""
    for undo, record in tx.state["undos"].items():
        if number in record["cut"]:
            tx.agenda.append(entries.undo(undo))


def stop_settling(tx: Transition, number: int) -> None:
    """Withdraw the attempt or question that was to settle a cut-off attempt."""
    cut = tx.state["cuts"][number]
    if cut["phase"] == "run":
        tx.commands.append(Stop(number, cut["attempt"]))
    if cut["phase"] in ("run", "ask"):
        _stop(tx, number, cut)
        move_cut(cut, "open")


def decide_cut_attempt(tx: Transition, wait: Wait, event: Decided) -> None:
    """Apply an operator's answer about a cut-off attempt.

    Args:
        wait: The open question.
        event: The answer, which has been validated.
    """
    choice, number = event["choice"], wait["cut"]
    cut = tx.state["cuts"][number]
    close_wait(tx, wait, "decided", choice)
    if choice == "retry":
        _run_again(tx, number, cut)
    else:
        outcome = "succeeded" if choice == "result" else "failed"
        _settled(tx, number, cut, outcome, event.get("value"))


def done_of(tx: Transition, cut: Cut) -> Done:
    """Return the record for undoing an attempt that turned out to have succeeded."""
    node = tx.graph.node(cut["step"])
    output = cut["value"]
    if node.output is not None:
        extra = {**cut["local"], "result": output, "approval": None}
        names = Names(tx, None, past=cut["past"], extra=extra, frame=cut.get("frame", 0))
        try:
            output = evaluate(names, node.output)
        except EvaluationError:
            # Undoing must not fail because the result cannot be reshaped, so it receives the raw
            # one.
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
