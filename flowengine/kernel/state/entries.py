"""The entries of the agenda: what can be left to do, one function per kind.

Each function returns an entry `(name, *arguments)`. `agenda.py` says what an entry does when its
turn comes. Units, activations and scopes go by their numbers: by then they may be gone, and then
nothing is done.

A unit, activation, scope, compensation or cleanup that waits keeps the entry that follows in its
`then`, as a list. Those lists are in journals' snapshots, so an entry that is kept there never
changes its form; `moving/fields.py` lists which those are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from flowengine.kernel.errors import StepFailure
    from flowengine.kernel.events import ErrorData
    from flowengine.kernel.graph.compiled import EvaluationError, Plain
    from flowengine.kernel.state.records import Arrival

    class Entry(tuple[Any, ...]):
        """An entry of the agenda; only the functions of this module make one."""
else:
    Entry = tuple

Broken: TypeAlias = "StepFailure | EvaluationError"
"""An expression that has no value, or one that cannot be used."""


# Tokens and joins


def arrive(arrival: Arrival, /) -> Entry:
    """A token arrives at a step."""
    return Entry(("arrive", arrival))


def activate(step: int, arrivals: list[Arrival], /) -> Entry:
    """A step is activated with the tokens that its join has let through."""
    return Entry(("activate", step, arrivals))


def too_few(step: int, arrivals: list[Arrival], need: int, came: list[str], /) -> Entry:
    """A join fails, because no more tokens can come than these."""
    return Entry(("too_few", step, arrivals, need, came))


def cancel_late(scope: int, join: int, /) -> Entry:
    """The tokens that can still reach a join that has fired are withdrawn."""
    return Entry(("cancel_late", scope, join))


def need_broken(join: int, scope: int, failure: Broken, /) -> Entry:
    """The `need` of a join has no value: its scope fails."""
    return Entry(("need_broken", join, scope, failure))


def needs(scope: int, /) -> Entry:
    """Joins whose `need` had no value evaluate it again (retry)."""
    return Entry(("needs", scope))


def trigger_broken(arrival: Arrival, failure: Broken, /) -> Entry:
    """A triggered step fails: whether a message is for it has no answer."""
    return Entry(("trigger_broken", arrival, failure))


# Attempts and rounds of a unit


def attempt(unit: int, /) -> Entry:
    """An attempt begins."""
    return Entry(("attempt", unit))


def again(unit: int, noted: bool, /) -> Entry:
    """An attempt that was cut off, and perhaps noted as such, runs again under the same key."""
    return Entry(("again", unit, noted))


def uncertain(unit: int, /) -> Entry:
    """An attempt that was stopped while it ran begins anew (retry), or somebody is asked first."""
    return Entry(("uncertain", unit))


def pause(unit: int, error: ErrorData, /) -> Entry:
    """The pause before another attempt begins."""
    return Entry(("pause", unit, error))


def ended(unit: int, output: Plain, outcome: str, /) -> Entry:
    """An attempt has ended well."""
    return Entry(("ended", unit, output, outcome))


def group_ended(unit: int, output: Plain, past: int, /) -> Entry:
    """The scope of a group has ended well, and with it the attempt."""
    return Entry(("group_ended", unit, output, past))


def attempt_failed(unit: int, failure: Broken | ErrorData, /) -> Entry:
    """An attempt has failed: another one follows, or the unit has failed."""
    return Entry(("attempt_failed", unit, failure))


def begin_round(unit: int, /) -> Entry:
    """The next round of a loop begins."""
    return Entry(("begin_round", unit))


def test_until(unit: int, output: Plain, outcome: str, past: int | None, /) -> Entry:
    """The condition `until` of a loop is tested."""
    return Entry(("test_until", unit, output, outcome, past))


def pause_before_round(unit: int, /) -> Entry:
    """The pause before the next round begins."""
    return Entry(("pause_before_round", unit))


def limit(unit: int, /) -> Entry:
    """The `timeout` of a group or subflow at work starts anew (retry)."""
    return Entry(("limit", unit))


def cancel(unit: int, /) -> Entry:
    """A `cancel` step does what it says."""
    return Entry(("cancel", unit))


# The end of a unit


def unit_ended(unit: int, output: Plain, outcome: str = "ok", /) -> Entry:
    """A unit has succeeded: its step goes on, or its map counts an item."""
    return Entry(("unit_ended", unit, output, outcome))


def unit_failed(unit: int, error: ErrorData, /) -> Entry:
    """A unit has failed for good."""
    return Entry(("unit_failed", unit, error))


def unit_broken(unit: int, failure: Broken, anew: Entry | None = None, /) -> Entry:
    """A unit fails because of an expression; `anew` is what a retry begins with (an attempt)."""
    return Entry(("unit_broken", unit, failure, anew))


# Activations and maps


def begin_act(act: int, /) -> Entry:
    """An activation begins anew (retry)."""
    return Entry(("begin_act", act))


def goes_on(act: int, /) -> Entry:
    """An activation that `cancel` withdrew as failed goes on as it was (retry)."""
    return Entry(("goes_on", act))


def enough(act: int, came: list[str], /) -> Entry:
    """A step begins whose join was short of arrivals, if they are enough by now (retry)."""
    return Entry(("enough", act, came))


def deadline(act: int, /) -> Entry:
    """The `deadline` of an activation starts anew (retry)."""
    return Entry(("deadline", act))


def fill(act: int, /) -> Entry:
    """A map begins items while it has free places."""
    return Entry(("fill", act))


def add_item(act: int, item: Plain, /) -> Entry:
    """A message adds an item to a map."""
    return Entry(("add_item", act, item))


def counted(act: int, /) -> Entry:
    """A map looks whether enough of its items have succeeded."""
    return Entry(("counted", act))


def map_broken(act: int, failure: Broken, /) -> Entry:
    """A map fails because of what it says of itself, not because of an item."""
    return Entry(("map_broken", act, failure))


def items_ended(act: int, /) -> Entry:
    """All items of a map have ended."""
    return Entry(("items_ended", act))


def items_left(act: int, /) -> Entry:
    """A map ends whose items have gone on as tokens of their own."""
    return Entry(("items_left", act))


def act_ended(act: int, status: str, outcome: str, output: Plain, /) -> Entry:
    """An activation has ended, and its token goes on along `next`."""
    return Entry(("act_ended", act, status, outcome, output))


def act_failed(act: int, error: ErrorData, /) -> Entry:
    """An activation has failed: a handler is looked for."""
    return Entry(("act_failed", act, error))


def act_broken(act: int, failure: Broken, anew: Entry | None = None, /) -> Entry:
    """An activation fails before it has begun; `anew` is what a retry begins with (all of it)."""
    return Entry(("act_broken", act, failure, anew))


def handled(act: int, handler: int, error: ErrorData, /) -> Entry:
    """The handler of a step has compensated, and does what it says."""
    return Entry(("handled", act, handler, error))


# Scopes


def opened(act: int, error: ErrorData | None, /) -> Entry:
    """What is to be open from the start of a flow is open, or cannot be had."""
    return Entry(("opened", act, error))


def end_all(scope: int, line: list[int], past: int, /) -> Entry:
    """A token ends its scope with all other tokens in it."""
    return Entry(("end_all", scope, line, past))


def scope_failed(scope: int, error: ErrorData, /) -> Entry:
    """A scope ends with an error that nobody in it handles."""
    return Entry(("scope_failed", scope, error))


def end_anew(scope: int, /) -> Entry:
    """A scope ends again whose outputs had no value (retry)."""
    return Entry(("end_anew", scope))


def duration(scope: int, /) -> Entry:
    """The `limits.duration` of a flow starts anew (retry)."""
    return Entry(("duration", scope))


# Undoing and cleaning up


def undo(compensation: int, /) -> Entry:
    """The next piece of a compensation is done."""
    return Entry(("undo", compensation))


def undo_failed(scope: int, error: ErrorData, then: list[Any], /) -> Entry:
    """A compensation is over that could not undo everything: instead of `then`, the scope fails."""
    return Entry(("undo_failed", scope, error, then))


def clean(scope: int, /) -> Entry:
    """A scope cleans up after what was withdrawn in it."""
    return Entry(("clean", scope))


def clean_on(cleanup: int, /) -> Entry:
    """The next `finally` of a cleanup runs."""
    return Entry(("clean_on", cleanup))


# Flows; `of` is the scope of a flow


def flow_ended(of: int, past: int, /) -> Entry:
    """All tokens of a flow have ended: its outputs are evaluated."""
    return Entry(("flow_ended", of, past))


def flow_handled(handler: int, error: ErrorData, of: int, /) -> Entry:
    """A handler of a flow does what it says."""
    return Entry(("flow_handled", handler, error, of))


def flow_end(status: str, error: ErrorData | None, outputs: Plain, of: int, /) -> Entry:
    """A flow ends."""
    return Entry(("flow_end", status, error, outputs, of))


def subflow_end(outputs: Plain, of: int, outcome: str, /) -> Entry:
    """A subflow ends well, in one of its outcomes."""
    return Entry(("flow_end", "succeeded", None, outputs, of, outcome))


def main_flow_end(status: str, error: ErrorData | None, outputs: Plain, /) -> Entry:
    """The main flow ends."""
    return Entry(("flow_end", status, error, outputs))


def cancelled_flow_end(error: ErrorData, /) -> Entry:
    """The main flow ends, cancelled."""
    return Entry(("flow_end", "cancelled", error))


def flow_cancelled(reason: str, /) -> Entry:
    """A `cancel` step withdraws the whole execution."""
    return Entry(("flow_cancelled", reason))


def flow_close(status: str, error: ErrorData, /) -> Entry:
    """The execution ends at once, without compensation and `finally`."""
    return Entry(("flow_close", status, error))


def arrivals_of(entry: Entry) -> list[Arrival]:
    """Return the tokens that an entry moves."""
    if entry[0] == "arrive":
        return [entry[1]]
    if entry[0] in ("activate", "too_few"):
        arrivals: list[Arrival] = entry[2]
        return arrivals
    return []
