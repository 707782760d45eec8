"""Which writes to state happened before a token: how parallel writes are told from later ones.

Each write that replaces a key has a number, one more than the write before. Whatever can write - a
token, an item of a map, a scope - has `knows`: key → the number of the latest write that happened
before it. A split copies it, a merge takes the greater number. A scope knows of everything that was
written in it, so that whoever continues after the scope learns it, however the scope ended.

`knows` is absent while there is nothing to know; what it holds is never changed in place. Keys are
those of `view.state_name`: a subflow has its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.kernel.transition import Transition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flowengine.kernel.state.records import Activation, Scope, Unit

Knowledge = dict[str, int]


def learn(who: Any, knows: Mapping[str, int] | None) -> None:
    """Add writes to those that a token, item, scope or cleanup knows of.

    Args:
        who: The record that has `knows`.
        knows: What somebody knows who came before it.
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
    """Add a write that has just been made, so its number is the greatest of its key.

    Args:
        who: The record that has `knows`.
        name: The key that was replaced.
        number: Of the write.
    """
    mine = who.get("knows")
    who["knows"] = {name: number} if mine is None else {**mine, name: number}


def writer(act: Activation, unit: Unit | None) -> Any:
    """Return who writes at a place: an item of a map for itself, else the token."""
    return unit if unit is not None and unit["item"] >= 0 else act


def pass_out(tx: Transition, scope: Scope, unit: Unit) -> None:
    """Pass the writes made in a scope to whatever continues after it.

    A subflow has state of its own, which nobody can write after it.

    Args:
        scope: The scope that ends.
        unit: The unit that opened it.
    """
    if tx.graph.body(scope["body"]).kind == "flow":
        return
    act = tx.act_of(unit)
    learn(writer(act, unit), scope.get("knows"))
    if "final" not in act:  # that one is at work in another scope than the one it belongs to
        learn(tx.scope_of(act), scope.get("knows"))


def of_frame(knows: Mapping[str, int], frame: int) -> Knowledge:
    """Return what is known of the state of one flow at work."""
    whose = str(frame) if frame else ""
    return {key: number for key, number in knows.items() if key.rpartition("/")[0] == whose}
