"""Attempts that were interrupted: their process or their environment ended.

See docs/language.md: Crashes.

The outcome of such an attempt is unknown. `effect` and `on_crash` of its step define what happens
next: it runs again with the same input and key, it fails, or an operator is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.kernel.ending.closing import stop_timeout
from flowengine.kernel.ending.leftovers import cut_off, forget_cut
from flowengine.kernel.errors import StepFailure, as_error, caused, is_named
from flowengine.kernel.graph.compiled import EvaluationError
from flowengine.kernel.limits import budgets
from flowengine.kernel.limits.suspension import park, unpark
from flowengine.kernel.state import entries
from flowengine.kernel.state.moves import move
from flowengine.kernel.steps import attempt_outcomes
from flowengine.kernel.steps.attempts import limit, run
from flowengine.kernel.steps.retries import tries_again
from flowengine.kernel.transition import Transition
from flowengine.kernel.waiting import budget_questions
from flowengine.kernel.waiting.attempt_questions import ask_about_attempt, ask_for_environment
from flowengine.kernel.waiting.waits import close_wait

if TYPE_CHECKING:
    from flowengine.kernel.events import Decided, ErrorData, Failed, ProcessData, Succeeded
    from flowengine.kernel.state.records import Unit, Wait


def resume_cut(tx: Transition, unit: Unit, process: ProcessData | None = None) -> None:
    """Continue a unit whose process died while its attempt ran (docs/language.md: Crashes).

    Args:
        unit: The unit, in phase `run`.
        process: The process, if it may still be at work.
    """
    act = tx.act_of(unit)
    node = tx.node(act)
    budgets.settle_unit(tx, unit)
    stop_timeout(tx, unit)
    if node.effect != "once" or node.on_crash == "retry":
        run_again(tx, unit)
    elif node.on_crash == "ask":
        ask_about_attempt(tx, unit, process=process)
        park(tx, unit)
    else:
        cut_off(tx, unit)
        move(unit, "ready")
        tx.agenda.append(entries.attempt_failed(unit["id"], uncertain(tx, unit)))


def is_asked(tx: Transition, unit: Unit, event: Succeeded | Failed) -> bool:
    """Return whether the outcome of an attempt, which has arrived now, is an open question."""
    if unit["phase"] != "ask" or unit["attempt"] != event["attempt"]:
        return False
    return tx.state["waits"][unit["wait"]]["record"].get("ran") == "maybe"


def answer(tx: Transition, unit: Unit) -> None:
    """Close the question about an attempt whose outcome has arrived, which the caller applies."""
    close_wait(tx, tx.state["waits"][unit["wait"]], "withdrawn")
    move(unit, "ready")
    unpark(tx, unit)


def begin_put_off(tx: Transition, unit: Unit) -> None:
    """Begin an attempt that a process left to a later one, with the whole of its timeout.

    Args:
        unit: The unit, in phase `run`.
    """
    budgets.settle_unit(tx, unit, ran=False)
    stop_timeout(tx, unit)
    unit["attempt"] -= 1
    run_again(tx, unit)


def lose(tx: Transition, unit: Unit, ran: str, error: ErrorData) -> None:
    """Continue a unit whose environment has ended (docs/language.md: Crashes).

    An attempt that has not begun waits until its environment is available again, unless the step
    has a retry or a handler that names the error. An attempt with an unknown outcome fails if the
    step may be repeated. Otherwise such a handler or `on_crash` applies.

    Args:
        unit: The unit, whose attempt has ended.
        ran: Whether the attempt took effect: `no` or `maybe`.
        error: The error of the environment.
    """
    node = tx.node(tx.act_of(unit))
    stop_timeout(tx, unit)
    move(unit, "ready")
    where: ErrorData = {"step": tx.address(unit), "attempt": unit["tries"], "cause": None}
    error = {**where, **error}
    handled = node.map is None and is_named(node.on_error, error["type"])
    if ran == "no":
        if handled or tries_again(tx, unit, error):
            tx.agenda.append(entries.attempt_failed(unit["id"], error))
        else:
            ask_for_environment(tx, unit, error)
            park(tx, unit)
        return
    cut_off(tx, unit)
    if node.effect != "once" or node.on_crash == "retry":
        tx.agenda.append(entries.attempt_failed(unit["id"], error))
    elif handled:
        tx.agenda.append(entries.unit_failed(unit["id"], error))
    elif node.on_crash == "ask":
        ask_about_attempt(tx, unit, error)
        park(tx, unit)
    else:
        unknown = as_error(uncertain(tx, unit), tx.address(unit), unit["tries"])
        tx.agenda.append(entries.unit_failed(unit["id"], caused(unknown, error)))


def uncertain(tx: Transition, unit: Unit) -> StepFailure:
    """Return the failure of an attempt whose outcome is unknown."""
    return StepFailure(
        "Uncertain",
        f"{tx.address(unit)} was interrupted while it ran; it may or may not have acted",
        retryable=False,
    )


def run_again(tx: Transition, unit: Unit, noted: bool = False) -> None:
    """Run a cut-off attempt again, with the same input and key.

    Args:
        noted: It was recorded as cut off while it waited for a budget.
    """
    act = tx.act_of(unit)
    move(unit, "ready")
    if noted:
        forget_cut(tx, act, unit)
    try:
        if budget_questions.waits(tx, unit, entries.again(unit["id"], True)):
            cut_off(tx, unit)
            return
    except StepFailure as failure:
        cut_off(tx, unit)
        tx.agenda.append(entries.attempt_failed(unit["id"], failure))
        return
    unit["attempt"] += 1
    try:
        limit(tx, tx.node(act), unit)
    except (StepFailure, EvaluationError) as failure:
        cut_off(tx, unit)
        tx.agenda.append(entries.attempt_failed(unit["id"], failure))
    else:
        run(tx, unit)


def decide_attempt(tx: Transition, wait: Wait, event: Decided) -> None:
    """Apply an operator's answer about an attempt that was cut off or has no environment.

    Args:
        wait: The open question.
        event: The answer, which has been validated.
    """
    choice = event["choice"]
    close_wait(tx, wait, "decided", choice)
    unit = tx.state["units"][wait["unit"]]
    move(unit, "ready")
    unpark(tx, unit)
    error = wait["record"].get("error")
    if choice == "retry":
        run_again(tx, unit)
    elif choice == "result":
        attempt_outcomes.attempt_ended(tx, unit, event.get("value"), "ok")
    elif error is not None and wait["record"]["ran"] == "no":
        error["retryable"] = False
        attempt_outcomes.attempt_failed(tx, unit, error)
    else:
        attempt_outcomes.attempt_failed(tx, unit, uncertain(tx, unit))
