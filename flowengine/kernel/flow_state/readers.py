"""Readers: attempts that are handed values of state by reference.

A step may read state that is not part of its input (`StepSpec.reads`), such as a list that grows
with every step: to put it into the input would copy it into every attempt and snapshot. The attempt
is handed the values themselves, which nothing ever changes in place.

An attempt that runs again after a crash sees what it saw before: whoever writes a key first puts
the old value aside for the units that read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.graph.linked import Node
from flowengine.kernel.machine import Machine
from flowengine.kernel.view import state_name

if TYPE_CHECKING:
    from flowengine.kernel.state.records import Unit


def begin(m: Machine, node: Node, unit: Unit) -> None:
    """Note that an attempt of a unit begins, which sees state as it is now."""
    unit.pop("saw", None)
    reading = m.state.setdefault("reading", {})
    frame = m.frame_of(m.act_of(unit))
    for key in node.reads:
        reading.setdefault(state_name(frame, key), {})[unit["id"]] = True


def values(m: Machine, node: Node, unit: Unit) -> dict[str, Plain]:
    """Return what an attempt of a unit reads: the state as it was when the attempt began."""
    return {**read(m, node, m.frame_of(m.act_of(unit))), **unit.get("saw", {})}


def read(m: Machine, node: Node, frame: int) -> dict[str, Plain]:
    """Return the values of the state keys that a step reads, as they are now."""
    cells = m.vars_of(frame)
    return {key: cells[key][0] for key in node.reads if key in cells}


def put_aside(m: Machine, frame: int, key: str) -> None:
    """Keep the value of a key that is about to be written, for the attempts that read it.

    Asked only where some attempt reads state.
    """
    readers = m.state["reading"].pop(state_name(frame, key), None)
    if readers is None:
        return
    if not m.state["reading"]:
        del m.state["reading"]
    old = m.vars_of(frame)[key][0]
    for number in readers:
        m.state["units"][number].setdefault("saw", {})[key] = old


def forget(m: Machine, unit: Unit) -> None:
    """Forget a unit that reads nothing any more."""
    reading = m.state["reading"]
    for name in [name for name, readers in reading.items() if unit["id"] in readers]:
        del reading[name][unit["id"]]
        if not reading[name]:
            del reading[name]
    if not reading:
        del m.state["reading"]
