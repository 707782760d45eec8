"""Work that steps and scopes leave to be done afterwards (docs/language.md: compensate, finally).

| record   | created when                                      | handled by                        |
|----------|---------------------------------------------------|-----------------------------------|
| `done`   | a step with a declared compensation took effect   | `compensation` undoes it          |
| `cut`    | an attempt of such a step was cut off             | `compensation` settles it first   |
| `finals` | a scope with a `finally` has ended                | `cleaning` runs it                |

A record is kept in the place where it was created. When that place ends, it is passed outwards:
from a unit to its activation, to its scope, to the unit of that scope. It contains all data for the
hidden step, because the place may have ended by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.kernel.ending import cut_attempts
from flowengine.kernel.expressions import provenance
from flowengine.kernel.expressions.names import Names, local_names
from flowengine.kernel.flow_state.causality import learn
from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.state import entries
from flowengine.kernel.tokens import routing
from flowengine.kernel.transition import Transition

if TYPE_CHECKING:
    from flowengine.kernel.state.records import (
        Activation,
        Cut,
        Done,
        Final,
        Left,
        Scope,
        Unit,
    )


def note_done(tx: Transition, act: Activation, unit: Unit, output: Plain, past: int | None) -> None:
    """Record that a step took effect, if it declares how it is undone.

    The compensation of a group replaces those of its steps. In this case `past` is the past of its
    inner tokens.
    """
    if tx.node(act).compensate < 0 or "undo" in act or "responded" in unit:
        return
    forget_cut(tx, act, unit)
    behind = act["past"] if past is None else past
    done: Done = {
        "step": act["step"],
        "address": tx.address(unit),
        "output": output,
    }
    _note_seen(done, Names(tx, act, unit), behind)
    forget_undoing(tx, act)
    tx.scope_of(act)["done"].append(done)


def _note_seen(left: Left, names: Names, past: int) -> None:
    """Record the names and the past that are visible in a place. The past is shared."""
    left["local"] = local_names(names)
    left["past"] = provenance.share(names.view.state, past)
    if names.frame:
        left["frame"] = names.frame


def cut_off(tx: Transition, unit: Unit) -> None:
    """Record an attempt that was stopped while it ran, if its step declares how it is undone."""
    act = tx.act_of(unit)
    if tx.node(act).compensate < 0:
        return
    forget_cut(tx, act, unit)
    cut: Cut = {
        "step": act["step"],
        "address": tx.address(unit),
        "attempt": unit["attempt"],
        "args": unit.get("args"),
        "input": unit.get("input"),
        "secrets": unit.get("secrets", []),
        "key": unit.get("key"),
        "phase": "open",
    }
    if "granted" in unit:
        cut["granted"] = unit["granted"]
    _note_seen(cut, Names(tx, act, unit), act["past"])
    tx.state["cuts"][unit["id"]] = cut
    tx.scope_of(act)["cut"].append(unit["id"])


def forget_cut(tx: Transition, act: Activation, unit: Unit) -> None:
    """Remove a cut-off attempt of a unit because a later attempt under its key counts."""
    open_ = tx.scope_of(act)["cut"]
    if unit["id"] in open_:
        open_.remove(unit["id"])
        _drop_cut(tx, unit["id"])


def forget_undoing(tx: Transition, act: Activation) -> None:
    """Remove the records of an activation's work to undo."""
    for done in act.pop("done", []):
        provenance.drop(tx.state, done["past"])
    for number in act.pop("cut", []):
        _drop_cut(tx, number)


def _drop_cut(tx: Transition, number: int) -> None:
    provenance.drop(tx.state, tx.state["cuts"][number]["past"])
    del tx.state["cuts"][number]


def final_of(tx: Transition, scope: Scope) -> Final:
    """Return the record of the `finally` of a scope that ends, with all its data."""
    owner = tx.state["units"].get(scope["unit"])
    body = tx.graph.body(scope["body"])
    local: dict[str, Plain] = {}
    if owner is not None and body.kind != "flow":
        local = local_names(Names(tx, tx.act_of(owner), owner))
    final: Final = {
        "step": body.final,
        "address": f"{scope['path']}finally",
        "local": local,
        "past": routing.merged_past(tx, scope),
    }
    if "frame" in scope:
        final["frame"] = scope["frame"]
    learn(final, scope.get("knows"))
    if "error" in scope:
        final["error"] = scope["error"]
    return final


def pass_finals(inner: Any, outer: Any) -> None:
    """Pass due `finally` steps to an enclosing unit, activation or scope, after its own."""
    if inner.get("finals"):
        outer.setdefault("finals", []).extend(inner.pop("finals"))


def hand_over(tx: Transition, act: Activation) -> None:
    """Pass a group's work to undo and clean up to the scope around it."""
    scope = tx.scope_of(act)
    if "done" in act:
        scope["done"].extend(act["done"])
    if "cut" in act:
        scope["cut"].extend(act["cut"])
    if act.get("finals"):
        pass_finals(act, scope)
        tx.agenda.append(entries.clean(scope["id"]))


def no_longer_wait(tx: Transition, owner: Any) -> None:
    """Withdraw a place that waits for a cleanup. The cleanup continues, and its successor waits."""
    if "cleanup" in owner:
        owner.setdefault("finals", []).insert(0, _given_back(tx, owner.pop("cleanup")))


def _given_back(tx: Transition, number: int) -> Final:
    cleanup = tx.state["cleanups"][number]
    provenance.drop(tx.state, cleanup.pop("past"))
    if cleanup["kind"] == "scope":
        no_longer_cleaning(tx.state["scopes"][cleanup["of"]])
    for key in ("kind", "of", "then"):
        del cleanup[key]  # type: ignore[misc]
    return {"cleanup": number}


def no_longer_cleaning(scope: Scope) -> None:
    """Subtract a cleanup that a scope has waited for."""
    scope["cleaning"] -= 1
    if not scope["cleaning"]:
        del scope["cleaning"]


def interrupt(tx: Transition, scope: Scope) -> None:
    """Return unfinished compensations and cleanups to a scope that is withdrawn."""
    for number, cleanup in tx.state["cleanups"].items() if "cleaning" in scope else ():
        if cleanup.get("kind") == "scope" and cleanup["of"] == scope["id"]:
            scope.setdefault("finals", []).append(_given_back(tx, number))
    for number, undo in list(tx.state["undos"].items()):
        if undo["scope"] != scope["id"]:
            continue
        current = [undo["current"]] if "current" in undo else []
        scope["done"] += [*undo["todo"], *current]
        scope["cut"] += undo["cut"]
        for cut in undo["cut"]:
            cut_attempts.stop_settling(tx, cut)
        del tx.state["undos"][number]
