"""Compensation: undoing completed steps, newest first (docs/language.md: compensate).

    settle the attempts that were cut off ─► undo one step after the other ─► next entry

`cut_attempts` settles attempts. If one turns out to have succeeded, it is undone like the other
steps. A compensation that fails does not stop the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.kernel.ending import cut_attempts, hidden_steps
from flowengine.kernel.errors import StepFailure, as_error, caused
from flowengine.kernel.expressions import provenance
from flowengine.kernel.state import entries, initial
from flowengine.kernel.state.entries import Entry
from flowengine.kernel.tokens import routing
from flowengine.kernel.transition import Transition

if TYPE_CHECKING:
    from collections.abc import Collection

    from flowengine.kernel.events import ErrorData
    from flowengine.kernel.state.records import Activation, Cut, Done, Scope, Undo


def compensate(tx: Transition, act: Activation, cause: ErrorData, then: Entry) -> None:
    """Compensate completed steps of a group or subflow, or, for other steps, of the scope around.

    Args:
        act: The activation whose handler requests it.
        cause: The error that was handled.
        then: The entry to process afterwards.
    """
    scope = tx.scope_of(act)
    owner: Any = act if tx.node(act).action in ("group", "flow") else scope
    todo, cuts = owner.get("done", []), owner.get("cut", [])
    # A step that is being retried is not over. Its later attempt determines the outcome.
    alive = [number for number in cuts if number in tx.state["units"]]
    cut = [number for number in cuts if number not in tx.state["units"]]
    owner["done"], owner["cut"] = [], alive
    compensate_in(tx, scope, todo, cut, cause, then)


def compensate_in(
    tx: Transition,
    scope: Scope,
    todo: list[Done],
    cut: list[int],
    cause: ErrorData | None,
    then: Entry,
) -> None:
    """Compensate `todo` with activations in `scope`, then process `then`."""
    number = initial.inner_number(tx.state)
    undo: Undo = {
        "scope": scope["id"],
        "todo": todo,
        "cut": cut,
        "cause": cause,
        "failures": [],
        "then": list(then),
    }
    tx.state["undos"][number] = undo
    tx.agenda.append(entries.undo(number))


def undo_next(tx: Transition, number: int) -> None:
    """Perform the next part of a compensation.

    Args:
        number: Number of the compensation.
    """
    undo = tx.state["undos"].get(number)
    if undo is None:
        return
    while undo["cut"]:
        cut = tx.state["cuts"][undo["cut"][0]]
        if cut["phase"] == "open":
            cut_attempts.settle_cut_attempt(tx, undo["cut"][0], cut)
        if cut["phase"] != "settled":
            return
        _settled(tx, undo, cut)
    if undo["todo"]:
        _undo(tx, number, undo["todo"].pop())
    else:
        _finish(tx, number, undo)


def leave_out(tx: Transition, undone: Collection[str]) -> None:
    """Remove steps whose compensations have run in another execution."""
    if not undone:
        return
    for undo in tx.state["undos"].values():
        todo = undo["todo"]
        undo["todo"] = [done for done in todo if f"{done['address']}/compensate" not in undone]
        for done in todo:
            if done not in undo["todo"]:
                provenance.drop(tx.state, done["past"])


def _settled(tx: Transition, undo: Undo, cut: Cut) -> None:
    number = undo["cut"].pop(0)
    del tx.state["cuts"][number]
    if cut["outcome"] == "succeeded":
        undo["todo"].append(cut_attempts.done_of(tx, cut))
        return
    provenance.drop(tx.state, cut["past"])
    if cut["outcome"] == "unknown":
        message = f"{cut['address']} was interrupted while it ran; it may or may not have acted"
        failure = StepFailure("Uncertain", message, retryable=False)
        undo["failures"].append(as_error(failure, cut["address"], cut["attempt"]))


def _undo(tx: Transition, number: int, done: Done) -> None:
    """Begin the compensation of one step, as an activation of its hidden step."""
    undo = tx.state["undos"][number]
    undo["current"] = done
    hidden = tx.graph.node(tx.graph.node(done["step"]).compensate)
    arrival = routing.unsent(
        undo["scope"], hidden.index, provenance.share(tx.state, done["past"]), []
    )
    names = {"output": done["output"], "error": undo["cause"]}
    hidden_steps.begin_hidden(
        tx, "undo", number, arrival, f"{done['address']}/compensate", done, names
    )


def undone(tx: Transition, act: Activation, error: ErrorData | None) -> None:
    """Continue after one step has been undone, or could not be undone."""
    number = act["undo"]
    undo = tx.state["undos"][number]
    hidden_steps.end_hidden(tx, act, error)
    if error is not None:
        undo["failures"].append(error)
    provenance.drop(tx.state, undo.pop("current")["past"])
    tx.agenda.append(entries.undo(number))


def _finish(tx: Transition, number: int, undo: Undo) -> None:
    del tx.state["undos"][number]
    if not undo["failures"]:
        tx.agenda.append(Entry(undo["then"]))
        return
    failed = ", ".join(f["step"] for f in undo["failures"])
    message = f"{_why(undo)}could not be undone: {failed}"
    failure = StepFailure("CompensationFailed", message, {"failures": undo["failures"]})
    error = caused(as_error(failure, undo["failures"][0]["step"]), undo["cause"])
    tx.agenda.append(entries.undo_failed(undo["scope"], error, undo["then"]))


def _why(undo: Undo) -> str:
    """Return the cause of a compensation as the beginning of a message."""
    cause = undo["cause"]
    if cause is None:
        return ""
    where = f" at {cause['step']}" if cause["step"] else ""
    return f"{cause['type']}{where}: {cause['message']}; "
