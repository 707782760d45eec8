"""Attempts: a unit performs its step's action (language reference, §8, §9.3, §9.5, §9.6).

round ─► attempt ─► none, fail, cancel   end inside this event
   ▲         │      task                 runs outside: `Run`, then `succeeded` or `failed`
   │         │      group, flow          opens a scope
   │         │      wait, approval       opens a wait
   └─ pause ◄┘
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from flowengine.kernel.commands import Run
from flowengine.kernel.ending import cleaning
from flowengine.kernel.ending.closing import close_scope, no_longer_wait, stop_attempt
from flowengine.kernel.errors import StepFailure, may_retry
from flowengine.kernel.expressions.names import (
    Names,
    evaluate,
    holds,
    join_secrets,
    regions,
    split_secrets,
)
from flowengine.kernel.graph.compiled import EvaluationError, Plain
from flowengine.kernel.graph.linked import Node
from flowengine.kernel.limits import budgets, locks
from flowengine.kernel.limits.suspension import park, unpark
from flowengine.kernel.machine import Machine, require
from flowengine.kernel.notation.times import parse_duration
from flowengine.kernel.state import entries
from flowengine.kernel.state.moves import move
from flowengine.kernel.steps.scopes import open_scope
from flowengine.kernel.steps.subflows import enter
from flowengine.kernel.waiting import budget_questions
from flowengine.kernel.waiting.approvals import open_approval
from flowengine.kernel.waiting.environment_questions import ask_anew, granted, may_begin
from flowengine.kernel.waiting.waits import duration_of, open_wait

if TYPE_CHECKING:
    from flowengine.kernel.events import ErrorData
    from flowengine.kernel.state.records import Unit


def begin_round(m: Machine, unit: Unit) -> None:
    """Begin the next round of a loop, or end the loop if `while` no longer holds.

    Args:
        unit: The unit that loops.
    """
    act = m.act_of(unit)
    node = m.node(act)
    spec = node.loop
    assert spec is not None
    try:
        if "max" not in unit:
            bound = evaluate(Names(m, act, unit), spec["max"])
            require(
                isinstance(bound, int) and not isinstance(bound, bool) and bound >= 0,
                "ValidationError",
                f"'loop.max' of {node.id!r} is {bound!r}, not a whole number",
            )
            unit["max"] = bound
        last = unit.get("last")
        if "before" in spec:
            seen = {"output": last, "outcome": "ok" if unit["round"] else None}
            # Before the first round there is no `round` yet: the condition sees the first one.
            unit["round"] += 1
            again = holds(Names(m, act, unit, unit.get("seen"), seen), spec["before"])
            unit["round"] -= 1
            if not again:
                m.agenda.append(entries.unit_ended(unit["id"], of_loop(node, unit, last)))
                return
        _bound_rounds(m, node, unit)
    except (StepFailure, EvaluationError) as failure:
        m.agenda.append(entries.unit_broken(unit["id"], failure, entries.begin_round(unit["id"])))
        return
    unit["round"] += 1
    unit["tries"] = 0
    attempt(m, unit)


def _bound_rounds(m: Machine, node: Node, unit: Unit) -> None:
    """Count a round that is about to begin.

    Raises:
        StepFailure: There have been as many as there may be.
    """
    if unit["round"] >= unit["max"]:
        raise StepFailure(
            "LoopLimit",
            f"{node.id!r} was not done after {unit['max']} rounds (loop.max)",
            {"last": unit.get("last"), "rounds": unit["round"]},
        )
    begun = m.rounds[unit["id"]] = m.rounds.get(unit["id"], 0) + 1
    limit = m.graph.limits["steps"]
    if begun > limit:
        raise StepFailure(
            "LimitExceeded",
            f"{node.id!r} began more than {limit} rounds in which nothing was called or waited for "
            "(limits.steps)",
            {"limit": "steps"},
        )


def of_loop(node: Node, unit: Unit, last: Plain) -> Plain:
    """Return what a loop gives: the output of its last round, or with `keep` those of all."""
    assert node.loop is not None
    return unit.get("outputs", []) if node.loop.get("keep") else last


def attempt(m: Machine, unit: Unit) -> None:
    """Begin an attempt of a unit's action.

    Args:
        unit: The unit, in phase `ready` or `pause`.
    """
    act = m.state["acts"][unit["act"]]
    node = m.graph.nodes[act["step"]]
    if m.blame is not None:
        m.blame.forget(("unit", unit["id"]))
    if (node.asks or "asks" in unit) and not may_begin(m, unit):
        return
    refused: StepFailure | None = None
    # Before the lock: nobody has one while people think.
    if node.action == "task" and not budget_questions.BUDGETED.isdisjoint(m.state):
        try:
            if budget_questions.waits(m, unit, entries.attempt(unit["id"])):
                return
        except StepFailure as failure:
            refused = failure
    if refused is None and node.lock is not None and not _has_lock(m, node, unit):
        return
    unit["attempt"] += 1
    unit["tries"] += 1
    try:
        if refused is not None:
            raise refused
        if node.timeout is not None:
            limit(m, node, unit)
        _act(m, node, unit)
    except (StepFailure, EvaluationError) as failure:
        m.agenda.append(entries.attempt_failed(unit["id"], failure))


def _has_lock(m: Machine, node: Node, unit: Unit) -> bool:
    """Take the lock of a step before its action, unless it waits without one."""
    assert node.lock is not None
    if node.action in ("wait", "approval") and not node.lock.get("hold"):
        return True
    try:
        return locks.take(m, unit, entries.attempt(unit["id"]))
    except (StepFailure, EvaluationError) as failure:
        m.agenda.append(entries.attempt_failed(unit["id"], failure))
        return False


def limit(m: Machine, node: Node, unit: Unit) -> None:
    """Set the timer of `timeout`, if there is one."""
    if node.timeout is not None:
        delay = duration_of(evaluate(Names(m, m.act_of(unit), unit), node.timeout), "timeout")
        unit["timer"] = m.set_timer(delay, "timeout", unit["id"])


def _act(m: Machine, node: Node, unit: Unit) -> None:
    action = node.action
    if action == "task":
        _prepare(m, node, unit)
        run(m, unit)
    elif action == "none":
        m.agenda.append(entries.ended(unit["id"], None, "ok"))
    elif action == "group":
        m.note(m.act_of(unit), "running", unit=unit)
        open_scope(m, node.child, unit)
    elif action == "flow":
        enter(m, unit)
    elif action == "wait":
        open_wait(m, unit)
        park(m, unit)
    elif action == "approval":
        open_approval(m, unit)
        park(m, unit)
    elif action == "fail":
        _fail(m, node, unit)
    else:
        m.agenda.append(entries.cancel(unit["id"]))


def _prepare(m: Machine, node: Node, unit: Unit) -> None:
    """Evaluate what a task is given; texts that name secrets are kept as references."""
    if node.fixed and not node.asks:
        if node.input is not None:
            unit["input"] = node.input[1]
        return
    names = Names(m, m.act_of(unit), unit)
    if node.args is not None:
        unit["args"] = evaluate(names, node.args)
        names.extra = {"args": unit["args"]}
    if node.key is not None:
        unit["key"] = str(evaluate(names, node.key))
    if node.input is not None:
        make = node.make_input
        given = evaluate(names, node.input) if make is None else make(names)
        if node.asks:
            given = {**given, "environments": granted(m, unit, given["environments"])}
        if node.secret:
            unit["secrets"] = []
            given = split_secrets(given, [], unit["secrets"])
        unit["input"] = given


def run(m: Machine, unit: Unit) -> None:
    """Run the prepared attempt of a unit."""
    move(unit, "run")
    act = m.state["acts"][unit["act"]]
    budgets.reserve(m, unit["id"], act)
    if m.observe is not None:
        m.note(act, "running", unit=unit)
    given = unit.get("input")
    if "secrets" in unit:
        given = join_secrets(given, unit["secrets"])
    around: tuple[int, ...] = ()
    environments: Plain = None
    if m.graph.nodes[act["step"]].environments:
        assert given is not None
        around, environments, given = regions(m, unit), given["environments"], given["input"]
    m.commands.append(
        Run(
            unit["id"],
            unit["attempt"],
            act["step"],
            m.address(unit),
            unit.get("args"),
            given,
            unit.get("key"),
            around,
            environments,
        )
    )


def _fail(m: Machine, node: Node, unit: Unit) -> None:
    assert node.input is not None
    given = evaluate(Names(m, m.act_of(unit), unit), node.input)
    m.agenda.append(entries.attempt_failed(unit["id"], raised(given)))


def raised(given: Plain) -> StepFailure | ErrorData:
    """Return the error that a `fail` describes as `{type, message, data, retryable}`.

    With `{error}` it is one that was caught, and stays as it is.

    Args:
        given: What the `fail` gives.

    Raises:
        StepFailure: `ValidationError`: what is to be raised again is no error.
    """
    if "error" in given:
        return _caught(given["error"])
    return StepFailure(
        given.get("type") or "Failed",
        given.get("message") or "",
        given.get("data"),
        bool(given.get("retryable", False)),
    )


def _caught(value: Plain) -> ErrorData:
    named = isinstance(value, dict) and isinstance(value.get("type"), str) and value["type"]
    if not named or not isinstance(value.get("message"), str):
        kinds: dict[type, str] = {dict: "a map without 'type' and 'message'", str: "text"}
        kinds |= {list: "a list", type(None): "null"}
        what = kinds.get(type(value), repr(value))
        message = f"'fail' can raise only an error again, and this is {what}"
        raise StepFailure("ValidationError", message)
    error: ErrorData = {"type": value["type"], "message": value["message"]}
    for key, kind in (("data", object), ("step", str), ("attempt", int), ("retryable", bool),
                      ("retry_after", int), ("cause", dict | None)):  # fmt: skip
        if key in value and isinstance(value[key], kind):
            error[key] = value[key]  # type: ignore[literal-required]
    return error


def begin_anew(m: Machine, unit: Unit) -> None:
    """Begin the attempt of a unit anew, with its input evaluated again (`retry`, forks).

    Args:
        unit: The unit, whatever it does; if its attempt ran, that is over.
    """
    if unit["phase"] == "run":
        budgets.settle_unit(m, unit)
        move(unit, "ready")
    elif unit["phase"] == "scope":
        close_scope(m, m.state["scopes"][unit["scope"]])
    elif unit["phase"] == "asked":
        ask_anew(m, unit)
    stop_attempt(m, unit)
    unpark(m, unit)
    no_longer_wait(m, unit)
    locks.leave(m, unit)
    unit["tries"] = 0
    if not cleaning.first(m, "unit", unit, entries.attempt(unit["id"])):
        attempt(m, unit)


def tries_again(m: Machine, unit: Unit, error: ErrorData) -> bool:
    """Say whether `retry` allows another attempt.

    Args:
        unit: The unit whose attempt failed.
        error: What it failed with.

    Returns:
        Whether another attempt follows.
    """
    act = m.act_of(unit)
    spec = m.node(act).retry
    if spec is None or unit["tries"] >= spec.get("attempts", 1):
        return False
    if not may_retry(error, spec.get("only"), spec.get("exclude")):
        return False
    if "when" in spec:
        try:
            if not holds(Names(m, act, unit, extra={"error": error}), spec["when"]):
                return False
        except EvaluationError:
            return False
    return True


def pause_before_attempt(m: Machine, unit: Unit, error: ErrorData) -> None:
    """Set the pause before another attempt, after one that failed with `error`."""
    pause = max(_pause(m, unit), error.get("retry_after") or 0)
    move(unit, "pause")
    unit["timer"] = m.set_timer(pause, "pause", unit["id"])
    m.note(m.act_of(unit), "retrying", unit=unit, error=error)


def _pause(m: Machine, unit: Unit) -> int:
    """Return the pause before the next attempt (ms): exponential, with jitter (§9.5).

    The jitter is drawn from the execution, the unit and the attempt, so that replay draws the same.
    """
    spec = m.node(m.act_of(unit)).retry
    assert spec is not None
    full = spaced(
        parse_duration(spec.get("delay", "1s")),
        spec.get("backoff", 2),
        parse_duration(spec.get("max_delay", "1m")),
        unit["tries"],
    )
    jitter = spec.get("jitter", "full")
    share = {"full": 1.0, "none": 0.0}.get(jitter) if isinstance(jitter, str) else float(jitter)
    seed = f"{m.state['execution'].get('id')}/{unit['id']}/{unit['attempt']}"
    drawn = crc32(seed.encode()) / 0xFFFFFFFF
    return int(full * (1 - (share or 0.0) * drawn))


def spaced(delay: int, backoff: float, longest: int, number: int) -> int:
    """Return the `number`-th pause (ms) of a series that grows by `backoff` up to `longest`."""
    grown = delay * backoff ** min(number - 1, 64)
    return int(min(grown, longest))


def pause_before_round(m: Machine, unit: Unit) -> None:
    """Wait for `loop.every`, then begin the next round; begin it now if left empty."""
    act = m.act_of(unit)
    spec = m.node(act).loop
    assert spec is not None
    if "every" not in spec:
        m.agenda.append(entries.begin_round(unit["id"]))
        return
    try:
        delay = duration_of(evaluate(Names(m, act, unit), spec["every"]), "every")
    except (StepFailure, EvaluationError) as failure:
        m.agenda.append(
            entries.unit_broken(unit["id"], failure, entries.pause_before_round(unit["id"]))
        )
        return
    longest = parse_duration(spec["max_delay"]) if "max_delay" in spec else max(delay, 60_000)
    move(unit, "pause")
    pause = spaced(delay, spec.get("backoff", 1), longest, unit["round"])
    unit["timer"] = m.set_timer(pause, "pause", unit["id"], 1)
