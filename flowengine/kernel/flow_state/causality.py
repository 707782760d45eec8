"""Causality of state writes, which distinguishes parallel writes from later ones.

Each write that replaces a key has a number, one more than the previous write. Everything that can
write (a token, an item of a map, a scope) has `knows`: key → the number of the latest write that
happened before it. A split copies `knows`, and a merge takes the maximum. A scope knows all writes
made in it, and passes them to its successor regardless of how it ended.

`knows` is absent while it would be empty, and its value is never changed in place. The keys are
those of `view.state_name`, because each subflow has separate state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.kernel.transition import Transition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flowengine.kernel.state.records import Activation, Scope, Unit

Knowledge = dict[str, int]


def learn(who: Any, knows: Mapping[str, int] | None) -> None:
    """Add writes to those that a token, item, scope or cleanup knows.

    Args:
        who: The record with `knows`.
        knows: The `knows` of a predecessor.
    """
    if not knows:
        return
    mine = who.get("knows")
    if mine is None:
        who["knows"] = {**knows}
        return
    for key, number in knows.items():
        if number > mine.get(key, 0):
            mine = who["knows"] = {**mine, key: number}


def learn_own(who: Any, name: str, number: int) -> None:
    """Add a write that was just made, so its number is the highest of its key.

    Args:
        who: The record with `knows`.
        name: The key that was replaced.
        number: Number of the write.
    """
    mine = who.get("knows")
    who["knows"] = {name: number} if mine is None else {**mine, name: number}


def writer(act: Activation, unit: Unit | None) -> Any:
    """Return the record that writes in a place: the unit of a map item, else the activation."""
    return unit if unit is not None and unit["item"] >= 0 else act


def pass_out(tx: Transition, scope: Scope, unit: Unit) -> None:
    """Pass the writes made in a scope to its successor.

    A subflow has separate state, which cannot be written after it has ended.

    Args:
        scope: The scope that ends.
        unit: The unit that opened it.
    """
    if tx.graph.body(scope["body"]).kind == "flow":
        return
    act = tx.act_of(unit)
    learn(writer(act, unit), scope.get("knows"))
    if "final" not in act:  # a `finally` runs outside the scope that it belongs to
        learn(tx.scope_of(act), scope.get("knows"))


def of_frame(knows: Mapping[str, int], frame: int) -> Knowledge:
    """Return the part of `knows` about the state of one running flow."""
    whose = str(frame) if frame else ""
    return {key: number for key, number in knows.items() if key.rpartition("/")[0] == whose}
