"""Readers: attempts that receive values of state by reference.

A step can read state that is not part of its input (`StepSpec.reads`), such as a list that grows
with every step. As part of the input, it would be copied into every attempt and snapshot. The
attempt receives the values themselves, which are never changed in place.

An attempt that runs again after a crash reads the same values as before. The first write to a key
stores the old value for the units that read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.graph.linked import Node
from flowengine.kernel.transition import Transition
from flowengine.kernel.view import state_name

if TYPE_CHECKING:
    from flowengine.kernel.state.records import Unit


def begin_reading(tx: Transition, node: Node, unit: Unit) -> None:
    """Record that an attempt of a unit begins and reads the current state."""
    unit.pop("replaced_reads", None)
    reading = tx.state.setdefault("reading", {})
    frame = tx.frame_of(tx.act_of(unit))
    for key in node.reads:
        reading.setdefault(state_name(frame, key), {})[unit["id"]] = True


def values(tx: Transition, node: Node, unit: Unit) -> dict[str, Plain]:
    """Return the state that an attempt of a unit reads, as of the start of the attempt."""
    return {**read(tx, node, tx.frame_of(tx.act_of(unit))), **unit.get("replaced_reads", {})}


def read(tx: Transition, node: Node, frame: int) -> dict[str, Plain]:
    """Return the current values of the state keys that a step reads."""
    cells = tx.vars_of(frame)
    return {key: cells[key][0] for key in node.reads if key in cells}


def put_aside(tx: Transition, frame: int, key: str) -> None:
    """Store the value of a key that is about to be written, for the attempts that read it.

    Called only if an attempt reads state.
    """
    readers = tx.state["reading"].pop(state_name(frame, key), None)
    if readers is None:
        return
    if not tx.state["reading"]:
        del tx.state["reading"]
    old = tx.vars_of(frame)[key][0]
    for number in readers:
        tx.state["units"][number].setdefault("replaced_reads", {})[key] = old


def stop_reading(tx: Transition, unit: Unit) -> None:
    """Remove a unit that has finished reading."""
    reading = tx.state["reading"]
    for name in [name for name, readers in reading.items() if unit["id"] in readers]:
        del reading[name][unit["id"]]
        if not reading[name]:
            del reading[name]
    if not reading:
        del tx.state["reading"]
