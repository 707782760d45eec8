"""`retry`: another attempt after a failed one (docs/language.md: retry).

    failed ─► tries left, and may this error be retried? ─► pause ─► attempt
                 └─ no: the unit has failed

Pauses grow by `backoff` from `delay` up to `max_delay`, and jitter shortens them. A longer pause
requested by the error itself (`retry_after`) takes precedence. Attempts that a crash cut off do not
count. `recovery.retrying` handles the retry of a failed execution, which is unrelated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from flowengine.kernel.errors import may_retry
from flowengine.kernel.expressions.names import (
    Names,
    holds,
)
from flowengine.kernel.graph.compiled import EvaluationError
from flowengine.kernel.notation.times import parse_duration
from flowengine.kernel.state.moves import move
from flowengine.kernel.transition import Transition

if TYPE_CHECKING:
    from flowengine.kernel.events import ErrorData
    from flowengine.kernel.state.records import Unit


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
    if spec is None or unit["tries"] >= spec.get("attempts", 1):
        return False
    if not may_retry(error, spec.get("only"), spec.get("exclude")):
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
        parse_duration(spec.get("delay", "1s")),
        spec.get("backoff", 2),
        parse_duration(spec.get("max_delay", "1m")),
        unit["tries"],
    )
    jitter = spec.get("jitter", "full")
    share = {"full": 1.0, "none": 0.0}.get(jitter) if isinstance(jitter, str) else float(jitter)
    seed = f"{tx.state['execution'].get('id')}/{unit['id']}/{unit['attempt']}"
    drawn = crc32(seed.encode()) / 0xFFFFFFFF
    return int(full * (1 - (share or 0.0) * drawn))


def spaced(delay: int, backoff: float, longest: int, number: int) -> int:
    """Return the `number`-th pause (ms) of a series that grows by `backoff` up to `longest`."""
    grown = delay * backoff ** min(number - 1, 64)
    return int(min(grown, longest))
