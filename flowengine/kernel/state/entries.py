"""The entries of the agenda: one function per kind of remaining work.

Each function returns an entry `(name, *arguments)`, which `agenda.py` maps to the function that
processes it. An entry refers to units, activations and scopes by number because they may have ended
before it is processed. In that case it has no effect.

A unit, activation, scope, compensation or cleanup that waits stores its next entry in `then`, as a
list. Snapshots of journals contain these lists, so the form of a stored entry never changes.
`moving/fields.py` lists the entries that are stored.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from flowengine.kernel.errors import StepFailure
from flowengine.kernel.events import ErrorData
from flowengine.kernel.graph.compiled import EvaluationError, Plain
from flowengine.kernel.state.records import Arrival, Calls

Entry: TypeAlias = tuple[Any, ...]
"""An entry of the agenda. Only the functions of this module create entries."""
Broken: TypeAlias = StepFailure | EvaluationError
"""The failure of an expression that has no value, or an unusable value."""


# Tokens and joins


def arrive(arrival: Arrival, /) -> Entry:
    """Let a token arrive at a step."""
    return ("arrive", arrival)


def activate(step: int, arrivals: list[Arrival], /) -> Entry:
    """Activate a step with the tokens that its join has released."""
    return ("activate", step, arrivals)


def too_few(step: int, arrivals: list[Arrival], need: int, came: list[str], /) -> Entry:
    """Fail a join that no further tokens can reach."""
    return ("too_few", step, arrivals, need, came)


def cancel_late(scope: int, join: int, /) -> Entry:
    """Withdraw the tokens that can still reach a join that has fired."""
    return ("cancel_late", scope, join)


def need_broken(join: int, scope: int, failure: Broken, /) -> Entry:
    """Fail a scope because the `need` of a join in it has no value."""
    return ("need_broken", join, scope, failure)


def needs(scope: int, /) -> Entry:
    """Evaluate the `need` of joins that had no value again (retry)."""
    return ("needs", scope)


def trigger_broken(arrival: Arrival, failure: Broken, /) -> Entry:
    """Fail a triggered step because its trigger could not be evaluated for a message."""
    return ("trigger_broken", arrival, failure)


# Attempts and rounds of a unit


def attempt(unit: int, /) -> Entry:
    return ("attempt", unit)


def again(unit: int, noted: bool, /) -> Entry:
    """Run a cut-off attempt again under the same key.

    `noted`: it was already recorded as cut off.
    """
    return ("again", unit, noted)


def uncertain(unit: int, /) -> Entry:
    """Restart an attempt that was stopped while it ran (retry), if necessary after a question."""
    return ("uncertain", unit)


def pause(unit: int, error: ErrorData, /) -> Entry:
    """Pause before another attempt."""
    return ("pause", unit, error)


def ended(unit: int, output: Plain, outcome: str, /) -> Entry:
    """End an attempt that has succeeded."""
    return ("ended", unit, output, outcome)


def group_ended(unit: int, output: Plain, past: int, /) -> Entry:
    """End an attempt because the scope of its group has succeeded."""
    return ("group_ended", unit, output, past)


def attempt_failed(unit: int, failure: Broken | ErrorData, /) -> Entry:
    """End an attempt that has failed. Another one follows, or the unit fails."""
    return ("attempt_failed", unit, failure)


def begin_round(unit: int, /) -> Entry:
    """Begin the next round of a loop."""
    return ("begin_round", unit)


def test_until(unit: int, output: Plain, outcome: str, past: int | None, /) -> Entry:
    """Test the condition `until` of a loop."""
    return ("test_until", unit, output, outcome, past)


def pause_before_round(unit: int, /) -> Entry:
    """Pause before the next round."""
    return ("pause_before_round", unit)


def limit(unit: int, /) -> Entry:
    """Restart the `timeout` of a running group or subflow (retry)."""
    return ("limit", unit)


def answered(act: int, output: Plain, error: ErrorData | None, /) -> Entry:
    """Store the answer to a call of a task."""
    return ("answered", act, output, error)


def calls_ended(unit: int, /) -> Entry:
    """End the calls of a round, which are all answered."""
    return ("calls_ended", unit)


def calls_answered(unit: int, calls: Calls, /) -> Entry:
    """Begin the next attempt of a task that has made calls."""
    return ("calls_answered", unit, calls)


def cancel(unit: int, /) -> Entry:
    """Perform a `cancel` step."""
    return ("cancel", unit)


# The end of a unit


def unit_ended(unit: int, output: Plain, outcome: str = "ok", /) -> Entry:
    """End a unit that has succeeded. Its step continues, or its map counts an item."""
    return ("unit_ended", unit, output, outcome)


def unit_failed(unit: int, error: ErrorData, /) -> Entry:
    """End a unit that has failed for good."""
    return ("unit_failed", unit, error)


def unit_broken(unit: int, failure: Broken, anew: Entry | None = None, /) -> Entry:
    """Fail a unit because of an expression.

    `anew` is the entry that a retry begins with (attempt).
    """
    return ("unit_broken", unit, failure, anew)


# Activations and maps


def begin_act(act: int, /) -> Entry:
    """Restart an activation (retry)."""
    return ("begin_act", act)


def goes_on(act: int, /) -> Entry:
    """Let an activation continue that `cancel` withdrew as failed (retry)."""
    return ("goes_on", act)


def enough(act: int, came: list[str], /) -> Entry:
    """Begin a step whose join had too few arrivals, if there are enough now (retry)."""
    return ("enough", act, came)


def deadline(act: int, /) -> Entry:
    """Restart the `deadline` of an activation (retry)."""
    return ("deadline", act)


def fill(act: int, /) -> Entry:
    """Begin items of a map while it has free places."""
    return ("fill", act)


def add_item(act: int, item: Plain, /) -> Entry:
    """Add an item from a message to a map."""
    return ("add_item", act, item)


def counted(act: int, /) -> Entry:
    """Check whether enough items of a map have succeeded."""
    return ("counted", act)


def map_broken(act: int, failure: Broken, /) -> Entry:
    """Fail a map because of its settings rather than an item."""
    return ("map_broken", act, failure)


def items_ended(act: int, /) -> Entry:
    """End a map whose items have all ended."""
    return ("items_ended", act)


def items_left(act: int, /) -> Entry:
    """End a map whose items have continued as separate tokens."""
    return ("items_left", act)


def act_ended(act: int, status: str, outcome: str, output: Plain, /) -> Entry:
    """End an activation and send its token along `next`."""
    return ("act_ended", act, status, outcome, output)


def act_failed(act: int, error: ErrorData, /) -> Entry:
    """Fail an activation and find a handler."""
    return ("act_failed", act, error)


def act_broken(act: int, failure: Broken, anew: Entry | None = None, /) -> Entry:
    """Fail an activation before it begins.

    `anew` is the entry that a retry begins with (all of it).
    """
    return ("act_broken", act, failure, anew)


def handled(act: int, handler: int, error: ErrorData, /) -> Entry:
    """Perform the handler of a step after its compensation."""
    return ("handled", act, handler, error)


# Scopes


def opened(act: int, error: ErrorData | None, /) -> Entry:
    """Continue a flow whose initial environments are open, or could not be opened."""
    return ("opened", act, error)


def end_all(scope: int, line: list[int], past: int, /) -> Entry:
    """End a scope, with all its other tokens, because of a token."""
    return ("end_all", scope, line, past)


def scope_failed(scope: int, error: ErrorData, /) -> Entry:
    """End a scope with an error that no handler in it matches."""
    return ("scope_failed", scope, error)


def end_anew(scope: int, /) -> Entry:
    """End a scope again whose outputs had no value (retry)."""
    return ("end_anew", scope)


def duration(scope: int, /) -> Entry:
    """Restart the `limits.duration` of a flow (retry)."""
    return ("duration", scope)


# Undoing and cleaning up


def undo(compensation: int, /) -> Entry:
    """Perform the next part of a compensation."""
    return ("undo", compensation)


def undo_failed(scope: int, error: ErrorData, then: list[Any], /) -> Entry:
    """Fail a scope instead of processing `then`, because a compensation was incomplete."""
    return ("undo_failed", scope, error, then)


def clean(scope: int, /) -> Entry:
    """Clean up after withdrawn work in a scope."""
    return ("clean", scope)


def clean_on(cleanup: int, /) -> Entry:
    """Run the next `finally` of a cleanup."""
    return ("clean_on", cleanup)


# Flows: `of` is the scope of a flow


def flow_ended(of: int, past: int, /) -> Entry:
    """Evaluate the outputs of a flow whose tokens have all ended."""
    return ("flow_ended", of, past)


def flow_handled(handler: int, error: ErrorData, of: int, /) -> Entry:
    """Perform a handler of a flow."""
    return ("flow_handled", handler, error, of)


def flow_end(status: str, error: ErrorData | None, outputs: Plain, of: int, /) -> Entry:
    return ("flow_end", status, error, outputs, of)


def subflow_end(outputs: Plain, of: int, outcome: str, /) -> Entry:
    """End a subflow that has succeeded, with one of its outcomes."""
    return ("flow_end", "succeeded", None, outputs, of, outcome)


def main_flow_end(status: str, error: ErrorData | None, outputs: Plain, /) -> Entry:
    return ("flow_end", status, error, outputs)


def cancelled_flow_end(error: ErrorData, /) -> Entry:
    """End the main flow as cancelled."""
    return ("flow_end", "cancelled", error)


def flow_cancelled(reason: str, /) -> Entry:
    """Withdraw the whole execution because of a `cancel` step."""
    return ("flow_cancelled", reason)


def flow_close(status: str, error: ErrorData, /) -> Entry:
    """End the execution at once, without compensation and `finally`."""
    return ("flow_close", status, error)


def arrivals_of(entry: Entry) -> list[Arrival]:
    """Return the tokens that an entry moves."""
    if entry[0] == "arrive":
        return [entry[1]]
    if entry[0] in ("activate", "too_few"):
        arrivals: list[Arrival] = entry[2]
        return arrivals
    return []
