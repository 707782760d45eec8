"""`loop` and `retry`: rounds of a step's action, and further attempts after a failed one."""

from __future__ import annotations

from zlib import crc32

from flowengine.kernel.errors import StepFailure, may_retry
from flowengine.kernel.events import ErrorData
from flowengine.kernel.expressions.names import Names, evaluate, holds
from flowengine.kernel.graph.compiled import EvaluationError, Plain
from flowengine.kernel.graph.linked import Node
from flowengine.kernel.held_failures import hold_unbegun
from flowengine.kernel.notation.times import parse_duration
from flowengine.kernel.state import entries
from flowengine.kernel.state.moves import move
from flowengine.kernel.state.records import Unit
from flowengine.kernel.steps.attempts import attempt
from flowengine.kernel.transition import Transition, require
from flowengine.kernel.waiting import call_questions, input_questions
from flowengine.kernel.waiting.waits import duration_of

# `retry`: another attempt after a failed one (docs/language.md: retry).
#
#     failed ─► tries left, and may this error be retried? ─► pause ─► attempt
#                  └─ no: the unit has failed
#
# Pauses grow by `backoff` from `delay` up to `max_delay`, and jitter shortens them. A longer pause
# requested by the error itself (`retry_after`) takes precedence. Attempts that a crash cut off do
# not count. `recovery.retrying` handles the retry of a failed execution, which is unrelated.


def tries_again(tx: Transition, unit: Unit, error: ErrorData) -> bool:
    """Return whether `retry` permits another attempt.

    Args:
        unit: The unit whose attempt failed.
        error: The error of the attempt.

    Returns:
        Whether another attempt follows.
    """
    act = tx.act_of(unit)
    spec = tx.node(act).retry
    if spec is None or unit["tries"] >= spec["attempts"]:
        return False
    if not may_retry(error, spec.get("only")):
        return False
    if "when" in spec:
        try:
            if not holds(Names(tx, act, unit, extra={"error": error}), spec["when"]):
                return False
        except EvaluationError:
            return False
    return True


def pause_before_attempt(tx: Transition, unit: Unit, error: ErrorData) -> None:
    """Set the pause before another attempt, after an `error`."""
    pause = max(_pause(tx, unit), error.get("retry_after") or 0)
    move(unit, "pause")
    unit["timer"] = tx.set_timer(pause, "pause", unit["id"])
    tx.note(tx.act_of(unit), "retrying", unit=unit, error=error)


def _pause(tx: Transition, unit: Unit) -> int:
    """Return the pause before the next attempt (ms): exponential, with jitter.

    The jitter is derived from the execution, the unit and the attempt, so that replay gets the
    same.
    """
    spec = tx.node(tx.act_of(unit)).retry
    assert spec is not None
    full = spaced(
        parse_duration(spec["delay"]),
        spec["backoff"],
        spec.get("max_delay"),
        unit["tries"],
    )
    jitter = spec["jitter"]
    share = {"full": 1.0, "none": 0.0}.get(jitter) if isinstance(jitter, str) else float(jitter)
    seed = f"{tx.state['execution']['id']}/{unit['id']}/{unit['attempt']}"
    drawn = crc32(seed.encode()) / 0xFFFFFFFF
    return int(full * (1 - (share or 0.0) * drawn))


def spaced(delay: int, backoff: float, max_delay: str | None, number: int) -> int:
    """Return the `number`-th pause (ms) of a series that grows by `backoff` up to `max_delay`."""
    longest = max(delay, 60_000) if max_delay is None else parse_duration(max_delay)
    return int(min(delay * backoff ** min(number - 1, 64), longest))


# `loop`: rounds of a step's action (docs/language.md: loop).
#
#     `while` holds? ─► fewer rounds than `max`? ─► attempts ─► `until` holds? ─► output of the loop
#        ▲                  └─ no: `LoopLimit`                       │ no
#        └──────────────────────── pause of `every` ◄────────────────┘
#
# `max` is evaluated once, before the first round. Each round has its own retries, lock and writes.
# The output of a loop is the output of its last round, or with `keep` those of all rounds.


def begin_round(tx: Transition, unit: Unit) -> None:
    """Begin the next round of a loop, or end the loop if `while` no longer holds.

    Args:
        unit: The unit of the loop.
    """
    act = tx.state["acts"][unit["act"]]
    node = tx.graph.nodes[act["step"]]
    spec = node.loop
    assert spec is not None
    try:
        if "max" not in unit:
            bound = evaluate(Names(tx, act, unit), spec["max"])
            require(
                isinstance(bound, int) and not isinstance(bound, bool) and bound >= 0,
                "ValidationError",
                f"'loop.max' of {node.id!r} is {bound!r}, not a whole number",
            )
            unit["max"] = bound
        last = unit.get("last")
        if "before" in spec:
            seen = {"output": last, "outcome": "ok" if unit["round"] else None}
            # The condition reads the round that is about to begin.
            unit["round"] += 1
            again = holds(Names(tx, act, unit, unit.get("seen"), seen), spec["before"])
            unit["round"] -= 1
            if not again:
                tx.agenda.append(entries.unit_ended(unit["id"], of_loop(node, unit, last)))
                return
        begun = tx.rounds.get(unit["id"], 0)
        if unit["round"] >= unit["max"] or begun >= tx.graph.limits["steps"]:
            raise _too_many(tx, node, unit)
    except (StepFailure, EvaluationError) as failure:
        tx.agenda.append(entries.unit_broken(unit["id"], failure, entries.begin_round(unit["id"])))
        return
    tx.rounds[unit["id"]] = begun + 1
    unit["round"] += 1
    unit["tries"] = 0
    if "shown" in unit or "answers" in tx.state:
        call_questions.forget_question(tx, unit)
        input_questions.forget(tx, unit)
    if not hold_unbegun(tx, act, unit, entries.attempt(unit["id"])):
        attempt(tx, unit)


def _too_many(tx: Transition, node: Node, unit: Unit) -> StepFailure:
    """Return the error for a round beyond `max`, or for too many rounds within one event."""
    if unit["round"] >= unit["max"]:
        return StepFailure(
            "LoopLimit",
            f"{node.id!r} was not done after {unit['max']} rounds (loop.max)",
            {"last": unit.get("last"), "rounds": unit["round"]},
        )
    return StepFailure(
        "LimitExceeded",
        f"{node.id!r} ran more than {tx.graph.limits['steps']} rounds without calling or waiting "
        "for anything (limits.steps)",
        {"limit": "steps"},
    )


def pause_before_round(tx: Transition, unit: Unit) -> None:
    """Wait for `loop.every`, then begin the next round. Without `every`, begin it now."""
    act = tx.act_of(unit)
    spec = tx.node(act).loop
    assert spec is not None
    if "every" not in spec:
        tx.agenda.append(entries.begin_round(unit["id"]))
        return
    try:
        delay = duration_of(evaluate(Names(tx, act, unit), spec["every"]), "every")
    except (StepFailure, EvaluationError) as failure:
        tx.agenda.append(
            entries.unit_broken(unit["id"], failure, entries.pause_before_round(unit["id"]))
        )
        return
    move(unit, "pause")
    pause = spaced(delay, spec["backoff"], spec.get("max_delay"), unit["round"])
    unit["timer"] = tx.set_timer(pause, "pause", unit["id"], 1)


def of_loop(node: Node, unit: Unit, last: Plain) -> Plain:
    """Return the output of a loop: that of its last round, or with `keep` those of all rounds."""
    assert node.loop is not None
    return unit.get("outputs", []) if node.loop.get("keep") else last
