"""What steps and scopes leave to be done after them (docs/language.md: compensate, finally).

| left     | when                                        | what is done about it                   |
|----------|---------------------------------------------|-----------------------------------------|
| `done`   | a step that says how it is undone has acted | `compensation` undoes it                |
| `cut`    | its attempt was cut off: it may have acted  | `compensation` finds out, and undoes it |
| `finals` | a scope with a `finally` has ended          | `cleaning` runs it                      |

What is left is kept in the place where it was left, and passed outwards as that place ends: from a
unit to its activation, on to its scope, to the unit of that. A record of it has all that the hidden
step will see, for by then the place may be gone.
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
    """Note that a step has acted, if it says how it is undone.

    A group that says it itself is undone by that, not by what its steps say; `past` is then what
    lies behind its inner tokens.
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
    """Write into a record what its place sees now; its past is shared."""
    left["local"] = local_names(names)
    left["past"] = provenance.share(names.view.state, past)
    if names.frame:
        left["frame"] = names.frame


def cut_off(tx: Transition, unit: Unit) -> None:
    """Note an attempt that was stopped while it ran, if its step says how it is undone."""
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
    """Forget that an earlier attempt of a unit was cut off: a later one, under its key, counts."""
    open_ = tx.scope_of(act)["cut"]
    if unit["id"] in open_:
        open_.remove(unit["id"])
        _drop_cut(tx, unit["id"])


def forget_undoing(tx: Transition, act: Activation) -> None:
    """Forget what an activation leaves to be undone."""
    for done in act.pop("done", []):
        provenance.drop(tx.state, done["past"])
    for number in act.pop("cut", []):
        _drop_cut(tx, number)


def _drop_cut(tx: Transition, number: int) -> None:
    provenance.drop(tx.state, tx.state["cuts"][number]["past"])
    del tx.state["cuts"][number]


def final_of(tx: Transition, scope: Scope) -> Final:
    """Return the `finally` of a scope that ends, with all that it will see."""
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
    """Make whatever encloses a unit, activation or scope run what is due in it, after its own."""
    if inner.get("finals"):
        outer.setdefault("finals", []).extend(inner.pop("finals"))


def hand_over(tx: Transition, act: Activation) -> None:
    """Keep what a group leaves to be undone and cleaned up in the scope around it."""
    scope = tx.scope_of(act)
    if "done" in act:
        scope["done"].extend(act["done"])
    if "cut" in act:
        scope["cut"].extend(act["cut"])
    if act.get("finals"):
        pass_finals(act, scope)
        tx.agenda.append(entries.clean(scope["id"]))


def no_longer_wait(tx: Transition, owner: Any) -> None:
    """Withdraw somebody who waits for a cleanup; that goes on, and who goes on here waits."""
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
    """Count out a cleanup for which a scope has waited."""
    scope["cleaning"] -= 1
    if not scope["cleaning"]:
        del scope["cleaning"]


def interrupt(tx: Transition, scope: Scope) -> None:
    """Give back to a scope that is withdrawn what it has not undone, and what it cleans up."""
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
