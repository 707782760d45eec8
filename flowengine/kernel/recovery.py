"""Recovery: attempts that were interrupted, and failed work that starts again."""

from __future__ import annotations

from typing import Any

from flowengine.kernel import held_failures
from flowengine.kernel.commands import OpenWait, SetTimer
from flowengine.kernel.ending.closing import stop_timeout
from flowengine.kernel.ending.leftovers import cut_off, forget_cut
from flowengine.kernel.ending.leftovers import settle as settle_anew
from flowengine.kernel.errors import StepFailure, as_error, caused, is_named
from flowengine.kernel.events import CutOff, ErrorData, Failed, ProcessData, RetryAsked, Succeeded
from flowengine.kernel.expressions.names import Names, evaluate, of_scope
from flowengine.kernel.graph.compiled import EvaluationError
from flowengine.kernel.limits import budgets, shared_budgets
from flowengine.kernel.limits.locks import park, unpark
from flowengine.kernel.notation.times import parse_duration
from flowengine.kernel.state import entries
from flowengine.kernel.state.moves import let_go, move
from flowengine.kernel.state.records import Activation, State, Unit, Wait
from flowengine.kernel.steps import attempt_outcomes, attempts
from flowengine.kernel.steps.attempts import limit, run
from flowengine.kernel.steps.loops import tries_again
from flowengine.kernel.transition import KINDS, Transition
from flowengine.kernel.waiting import budget_questions
from flowengine.kernel.waiting.attempt_questions import (
    ask_about_attempt,
    ask_for_environment,
    show_needs,
    wait_for_worker,
)
from flowengine.kernel.waiting.waits import close_wait, duration_of

# Attempts that were interrupted: their process or their environment ended.
#
# See docs/language.md: Crashes.
#
# The outcome of such an attempt is unknown. `effect` and `on_crash` of its step define what
# happens next: it runs again with the same input and key, it fails, or an operator is asked.


def resume_cut(tx: Transition, unit: Unit, process: ProcessData | None = None) -> None:
    """Continue a unit whose process died while its attempt ran (docs/language.md: Crashes).

    Args:
        unit: The unit, in phase `run`.
        process: The process, if it may still be at work.
    """
    act = tx.act_of(unit)
    node = tx.node(act)
    budgets.charge_unit(tx, unit)
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


def is_asked(tx: Transition, unit: Unit, event: Succeeded | Failed | CutOff) -> bool:
    """Return whether a late event answers the open question whether an attempt took effect.

    It does if it has the outcome of the attempt, or if the attempt never began.
    """
    if unit["phase"] != "ask" or unit["attempt"] != event["attempt"]:
        return False
    if event["type"] not in ("succeeded", "failed") and event.get("began", True):
        return False
    return tx.state["waits"][unit["wait"]]["record"].get("ran") == "maybe"


def answer(tx: Transition, unit: Unit) -> None:
    """Close the question about an attempt that an event answers, which the caller applies."""
    close_wait(tx, tx.state["waits"][unit["wait"]], "withdrawn")
    move(unit, "ready")
    unpark(tx, unit)


def begin_put_off(tx: Transition, unit: Unit) -> None:
    """Begin an attempt that a process left to a later one, with the whole of its timeout.

    Args:
        unit: The unit, in phase `run`.
    """
    budgets.charge_unit(tx, unit, ran=False)
    stop_timeout(tx, unit)
    unit["attempt"] -= 1
    run_again(tx, unit)


def leave_to_worker(tx: Transition, unit: Unit) -> None:
    """Leave an attempt that has not begun to a process that offers what its step needs.

    Args:
        unit: The unit, in phase `run`.
    """
    stop_timeout(tx, unit)
    unit["attempt"] -= 1
    move(unit, "ready")
    wait_for_worker(tx, unit)


def offered(tx: Transition, wait: Wait) -> None:
    """Begin the attempt that has waited for a process which offers what its step needs."""
    if wait["owner"] == "cut":
        settle_anew(tx, wait, "occurred", {"choice": "retry"})
        return
    close_wait(tx, wait, "occurred")
    run_again(tx, tx.state["units"][wait["unit"]])


def need_anew(tx: Transition, wait: Wait) -> None:
    """Have a wait for a worker follow its step, which was replaced and may need something else."""
    if wait["owner"] == "cut":
        node = tx.graph.node(tx.state["cuts"][wait["cut"]]["step"])
    else:
        node = tx.node(tx.act_of(tx.state["units"][wait["unit"]]))
    if not node.needs:
        offered(tx, wait)
    elif node.needs != wait["record"]["needs"]:
        show_needs(tx, wait, node)


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
        f"{tx.address(unit)} was interrupted while it ran: it may have taken effect",
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
        then = entries.again(unit["id"], True)
        if budget_questions.waits(tx, unit, then) or shared_budgets.waits(tx, unit, then):
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


def settle(tx: Transition, wait: Wait, how: str, decision: dict[str, Any]) -> None:
    """Apply an operator's answer about an attempt that was cut off or has no environment."""
    choice = decision["choice"]
    close_wait(tx, wait, how, choice)
    unit = tx.state["units"][wait["unit"]]
    move(unit, "ready")
    unpark(tx, unit)
    error = wait["record"].get("error")
    if choice == "retry":
        run_again(tx, unit)
    elif choice == "result":
        attempt_outcomes.attempt_ended(tx, unit, decision.get("value"), "ok")
    elif error is not None and wait["record"]["ran"] == "no":
        error["retryable"] = False
        attempt_outcomes.attempt_failed(tx, unit, error)
    else:
        attempt_outcomes.attempt_failed(tx, unit, uncertain(tx, unit))


# Restart of failed work whose failure was held back (`retry`, forks). See `held_failures`.
#
# Time limits of steps are extended by the time during which the execution was failed. Attempts
# that were running when it failed were stopped and count as cut off.

PUT_OFF = frozenset(
    {"timeout", "deadline", "pause", "duration", "idle", "expire", "remind", "escalate"}
)
"""Reasons of timers that stand still while an execution is failed. A `wait` follows the clock."""

BOUNDED = frozenset({"run", "wait", "scope"})
"""Phases of a unit in which `timeout` limits its attempt. In other phases it does not apply yet."""

ANEW = {"timeout": entries.limit, "deadline": entries.deadline, "duration": entries.duration}
"""Reason of a timer that is a limit → the agenda entry that sets it again."""


def retry(tx: Transition, event: RetryAsked, stood: int) -> None:
    """Restart held work, and continue other work that was running when the execution failed.

    Args:
        tx: The transition, with the state in which the failures were held back.
        event: The request.
        stood: How long the execution was failed (ms).
    """
    state = tx.state
    state["last"] = max(state["last"], event.get("last", 0))
    _put_off(tx, stood)
    if event.get("stays"):
        return
    _bound_anew(tx, event.get("overdue", []))
    begins = _let_go(state, event.get("hold", {}))
    _forget_refusals(state)
    named = event["unit"]
    _go_on_beside(tx, event, named)
    for unit in list(state["units"].values()):
        if unit["id"] == named:
            held_failures.drop_then(state, unit)  # it may be among what failed by itself, too
            _take_places(tx, unit)
            attempts.begin_anew(tx, unit)
        elif unit["id"] in begins["unit"] and unit.keys() >= {"then"}:
            _begin_unit(tx, unit, late=unit["id"] in event.get("late", ()))
    for number, act in state["acts"].items():
        if number in begins["act"] and "then" in act:
            tx.agenda.append(tuple(act.pop("then")))
    for number, scope in state["scopes"].items():
        if number in begins["scope"] and "then" in scope:
            tx.agenda.append(let_go(scope))


def _let_go(state: State, hold: dict[str, Any]) -> dict[str, list[int]]:
    """Release held work that an event names, and return the numbers of the work that restarts."""
    held = state.get("hold")
    if held is None:
        return {kind: hold.get(kind, []) for kind in KINDS}
    left = {kind: list(held.get(kind, ())) for kind in KINDS}
    for kind in KINDS:
        for number in hold.get(kind, ()):
            if number in left[kind]:
                left[kind].remove(number)
    state["hold"] = {kind: numbers for kind, numbers in left.items() if numbers}
    if not state["hold"]:
        del state["hold"]
    if "at" not in hold:
        return {kind: hold.get(kind, []) for kind in KINDS}
    tables: list[Any] = [state["units"], state["acts"], state["scopes"]]
    return {
        kind: [number for number, record in table.items() if "then" in record]
        for kind, table in zip(KINDS, tables, strict=True)
    }


def _put_off(tx: Transition, stood: int) -> None:
    """Extend the time limits of steps."""
    for number, timer in tx.state["timers"].items() if stood > 0 else ():
        if timer["why"] not in PUT_OFF:
            continue
        timer["due"] += stood
        tx.commands.append(SetTimer(number, timer["due"], timer["why"]))
        if timer["why"] == "expire":
            wait = tx.state["waits"][timer["ref"]]
            wait["record"]["due"] = timer["due"]
            if wait["shown"]:
                tx.commands.append(OpenWait(dict(wait["record"])))


def _bound_anew(tx: Transition, timers: list[int]) -> None:
    """Restart these time limits. Extended ones would expire at once."""
    for number in timers:
        timer = tx.state["timers"].get(number)
        if timer is None:
            continue
        tx.clear_timer(number)
        owner = timer["ref"]
        if timer["why"] == "timeout":
            del tx.state["units"][owner]["timer"]
        elif timer["why"] == "deadline":
            del tx.state["acts"][owner]["deadline"]
        else:
            tx.state["scopes"][owner].pop("timer", None)
        tx.agenda.append(ANEW[timer["why"]](owner))


def _forget_refusals(state: State) -> None:
    """Remove rejections of environments, so that the retried work asks again."""
    answers = state.get("answers", {})
    for owner in list(answers):
        kept = {
            about: answer
            for about, answer in answers[owner].items()
            if not isinstance(answer, dict) or answer["approved"]
        }
        answers[owner] = kept
        if not kept:
            del answers[owner]
    if "answers" in state and not answers:
        del state["answers"]


def _go_on_beside(tx: Transition, event: RetryAsked, named: int | None) -> None:
    """Continue the attempts that were running when the execution failed."""
    fresh, late = event.get("fresh", []), event.get("late", [])
    for unit in list(tx.state["units"].values()):
        number = unit["id"]
        if unit["phase"] != "run" or number == named or number in late:
            continue  # the late result is the next event
        if number in fresh:  # it has not begun outside the kernel
            budgets.charge_unit(tx, unit, ran=False)
            attempts.run(tx, unit)
        else:
            resume_cut(tx, unit)


def _take_places(tx: Transition, unit: Unit) -> None:
    """Let a unit and the scopes around it take their places again."""
    for parked in (unit, *tx.enclosing(tx.act_of(unit))):
        unpark(tx, parked)


def _begin_unit(tx: Transition, unit: Unit, *, late: bool) -> None:
    """Restart a held unit. If its result arrived late, that is the next event."""
    then = unit.pop("then")
    _take_places(tx, unit)
    if late:
        move(unit, "run")
        act = tx.act_of(unit)
        budgets.reserve(tx, unit["id"], act)
        return
    if then[0] == "attempt":
        attempts.begin_anew(tx, unit)
        return
    if unit["phase"] == "held":
        move(unit, "ready")
    if then[0] == "begin_round":
        unit.pop("max", None)
    tx.agenda.append(tuple(then))


def ask_first(tx: Transition, unit: Unit) -> None:
    """Restart an attempt that was stopped while it ran, for effect `once` after a question."""
    node = tx.node(tx.act_of(unit))
    if node.effect == "once" and node.on_crash == "ask":
        ask_about_attempt(tx, unit)
        park(tx, unit)
    else:
        attempts.begin_anew(tx, unit)


def limit_anew(tx: Transition, unit: Unit) -> None:
    """Restart the `timeout` of running work, unless its attempt has restarted with a new one."""
    if "timer" in unit or unit["phase"] not in BOUNDED:
        return
    try:
        attempts.limit(tx, tx.node(tx.act_of(unit)), unit)
    except (StepFailure, EvaluationError) as failure:
        tx.agenda.append(entries.attempt_failed(unit["id"], failure))


def deadline_anew(tx: Transition, act: Activation) -> None:
    """Restart the `deadline` of a running activation."""
    node = tx.node(act)
    if node.deadline is None:
        return
    try:
        delay = duration_of(evaluate(Names(tx, act), node.deadline), "deadline")
    except (StepFailure, EvaluationError) as failure:
        tx.agenda.append(entries.act_broken(act["id"], failure))
    else:
        act["deadline"] = tx.set_timer(delay, "deadline", act["id"])


def duration_anew(tx: Transition, number: int) -> None:
    """Restart the `limits.duration` of a running flow."""
    scope = tx.state["scopes"].get(number)
    if scope is None:
        return
    duration = tx.flow_of(scope.get("frame", 0)).limits.get("duration")
    if duration:
        timer = tx.set_timer(parse_duration(duration), "duration", number)
        if scope["unit"]:
            scope["timer"] = timer


def end_anew(tx: Transition, number: int) -> None:
    """End a scope again whose outputs could not be evaluated."""
    if number in tx.state["scopes"]:
        tx.touch(number)


def too_few(tx: Transition, act: Activation, need: int, came: list[str]) -> StepFailure:
    """Return the failure of a join with fewer arrivals than it needs."""
    return StepFailure(
        "TooFew",
        f"{len(act['arrivals'])} of the {need} arrivals that {tx.node(act).id!r} needs came, "
        "and no more can come",
        {"from": came, "need": need},
    )


def look_if_enough(tx: Transition, act: Activation, came: list[str]) -> None:
    """Begin a step whose join had too few arrivals, if there are enough now."""
    join = tx.node(act).join
    if join is None or join["kind"] != "count":
        tx.agenda.append(entries.begin_act(act["id"]))
        return
    try:
        need = evaluate(of_scope(tx, tx.scope_of(act), act["past"]), join["need"])
        if isinstance(need, int) and len(act["arrivals"]) < need:
            raise too_few(tx, act, need, came)
    except (StepFailure, EvaluationError) as failure:
        tx.agenda.append(entries.act_broken(act["id"], failure, entries.enough(act["id"], came)))
    else:
        tx.agenda.append(entries.begin_act(act["id"]))
