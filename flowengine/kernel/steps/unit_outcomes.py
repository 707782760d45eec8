"""What follows when a unit has ended (docs/language.md: Steps).

A plain step has one unit, and ends with it. Under `map` each item has one, and the map counts it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.kernel import held_failures
from flowengine.kernel.ending import cleaning
from flowengine.kernel.ending.closing import release_region, stop_attempt
from flowengine.kernel.ending.leftovers import pass_finals
from flowengine.kernel.errors import StepFailure, as_error
from flowengine.kernel.expressions import provenance
from flowengine.kernel.expressions.names import Names
from flowengine.kernel.flow_state import readers
from flowengine.kernel.flow_state.causality import learn
from flowengine.kernel.graph.compiled import EvaluationError, Plain
from flowengine.kernel.limits import locks
from flowengine.kernel.machine import Machine
from flowengine.kernel.state import entries
from flowengine.kernel.steps.activation_outcomes import activation_ended, activation_failed
from flowengine.kernel.steps.maps import counted, item_failed, item_leaves
from flowengine.kernel.tokens import routing

if TYPE_CHECKING:
    from flowengine.kernel.events import ErrorData
    from flowengine.kernel.state.entries import Entry
    from flowengine.kernel.state.records import Activation, Unit


def unit_ended(m: Machine, unit: Unit, output: Plain, outcome: str = "ok") -> None:
    """End a unit that has succeeded: its step goes on, or its map counts an item."""
    act = m.state["acts"][unit["act"]]
    if unit["item"] >= 0 and m.node(act).each:
        _leave_map(m, act, unit, output, outcome)
        return
    _remove_unit(m, act, unit)
    if unit["item"] < 0:
        activation_ended(m, act, "succeeded", outcome, output)
        return
    if m.observe is not None:
        m.note(act, "succeeded", unit=unit, outcome=outcome, output=output)
    act["results"][unit["item"]] = ["succeeded", output, None]
    act["succeeded"] += 1
    counted(m, act)


def unit_failed(m: Machine, unit: Unit, error: ErrorData, again: Entry | None = None) -> None:
    """End a unit that has failed for good.

    Args:
        m: The advance at work.
        unit: The unit.
        error: What it failed with.
        again: What follows if it begins again; None: its attempt.
    """
    act = m.act_of(unit)
    stop_attempt(m, unit)
    if held_failures.hold_unit(m, unit, again or entries.attempt(unit["id"])):
        return
    is_item = unit["item"] >= 0
    holds_on = is_item or "held" in unit
    if holds_on and cleaning.first(m, "unit", unit, entries.unit_failed(unit["id"], error), error):
        return
    if unit["round"] and unit["tries"] and not is_item:
        m.note(act, "failed", unit=unit, error=error)
    _remove_unit(m, act, unit)
    if not is_item:
        if m.blame is not None:
            m.blame.note(("act", act["id"]), ("unit", unit["id"]))
        activation_failed(m, act, error)
    else:
        item_failed(m, act, unit, error)


def _leave_map(m: Machine, act: Activation, unit: Unit, output: Plain, outcome: str) -> None:
    """Let an item go on alone; if `next` leads nowhere, the item has failed."""
    node = m.node(act)
    try:
        targets = routing.choose(
            node, Names(m, act, extra={"output": output, "outcome": outcome}), outcome
        )
    except (StepFailure, EvaluationError) as failure:
        again = entries.unit_ended(unit["id"], output, outcome)
        unit_failed(m, unit, as_error(failure, m.address(unit)), again)
        return
    _remove_unit(m, act, unit)
    item_leaves(m, act, unit, targets, output, outcome)


def _remove_unit(m: Machine, act: Activation, unit: Unit) -> None:
    if act["units"].pop(unit["id"]):
        act["busy"] -= 1
        if act["units"] and not act["busy"]:
            m.touch(act["scope"])  # the items that are left wait: the scope may rest
    if m.graph.regions or "answers" in m.state:
        release_region(m, unit)
    if "reading" in m.state:
        readers.forget(m, unit)
    del m.state["units"][unit["id"]]
    if "knows" in unit:
        learn(act, unit["knows"])
    if "finals" in unit:
        pass_finals(unit, act)
    if "lock" in unit:
        locks.leave(m, unit)
    if "seen" in unit:
        provenance.drop(m.state, unit["seen"])
    act["rounds"] = unit["round"]
    act["attempts"] = unit["attempt"]
    if "facts" in unit:
        act["facts"] = unit["facts"]
