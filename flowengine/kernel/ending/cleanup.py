"""Undoing and cleaning up: the `finally` of scopes, and the compensation of completed steps."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

from flowengine.kernel.ending import leftovers as cut_attempts
from flowengine.kernel.ending.leftovers import forget_undoing, no_longer_cleaning
from flowengine.kernel.errors import StepFailure, as_error, caused
from flowengine.kernel.events import ErrorData
from flowengine.kernel.expressions import provenance
from flowengine.kernel.flow_state import learn, of_frame, writer
from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.state import entries, moves
from flowengine.kernel.state.entries import Entry
from flowengine.kernel.state.moves import is_over
from flowengine.kernel.state.records import (
    Activation,
    Arrival,
    Cleanup,
    Cut,
    Done,
    Final,
    Left,
    PlaceKind,
    Scope,
    Undo,
)
from flowengine.kernel.tokens import routing
from flowengine.kernel.tokens.activations import new_activation
from flowengine.kernel.tokens.map_items import begin_unit
from flowengine.kernel.transition import Transition

# Cleanup: the `finally` of scopes that have ended (docs/language.md: finally).
#
#     scope over ─► its `finally` is due ─► passed outwards while the enclosing scopes end, too
#                      └─► before a place continues, it runs due cleanups, innermost first
#
# A `finally` runs as an activation of its hidden step. It always runs in the scope of the main
# flow, so that no scope that ends around it can withdraw it, but its expressions read the data of
# the flow that it belongs to. The place that waits for a cleanup can be withdrawn. The cleanup
# then continues independently, and the place outside waits for it instead.


def clean_first(
    tx: Transition,
    kind: PlaceKind,
    owner: Any,
    then: Entry | None,
    cause: ErrorData | None = None,
    past: int = 0,
) -> bool:
    """Run the cleanups that are due in a place before it continues.

    Args:
        kind: The kind of `owner`.
        owner: The place that continues.
        then: The entry to process afterwards. None if no place waits for the cleanup.
        cause: The reason why the scopes were withdrawn.
        past: A past that `then` refers to.

    Returns:
        Whether a cleanup is due. If not, the caller must process `then`.
    """
    due: list[Final] = owner.pop("finals", None)
    if not due:
        return False
    number = moves.inner_number(tx.state)
    cleanup: Cleanup = {
        "kind": kind,
        "of": owner["id"],
        "todo": due,
        "then": None if then is None else list(then),
        "cause": cause,
        "past": past,
    }
    tx.state.setdefault("cleanups", {})[number] = cleanup
    if kind == "scope":
        owner["cleaning"] = owner.get("cleaning", 0) + 1
    else:
        owner["cleanup"] = number
    tx.agenda.append(entries.clean_on(number))
    return True


def clean_scope(tx: Transition, number: int) -> None:
    """Clean up after withdrawn work in a scope that continues."""
    scope = tx.state["scopes"].get(number)
    if scope is not None and not is_over(scope):
        clean_first(tx, "scope", scope, None)


def clean_next(tx: Transition, number: int) -> None:
    """Run the next `finally` of a cleanup, or end the cleanup.

    Args:
        number: Number of the cleanup.
    """
    cleanups = tx.state.get("cleanups", {})
    cleanup = cleanups.get(number)
    if cleanup is None:
        return
    while cleanup["todo"]:
        final = cleanup["todo"].pop(0)
        if "cleanup" not in final:
            _run(tx, number, final)
            return
        other = cleanups[final["cleanup"]]
        if not other.get("over"):
            other["waiter"] = number
            return
        _take_over(tx, number, cleanup, final["cleanup"], other)
        del cleanups[final["cleanup"]]
    _finish(tx, number, cleanup)


def _run(tx: Transition, number: int, final: Final) -> None:
    """Begin a `finally` as an activation of its hidden step."""
    cleanup = tx.state["cleanups"][number]
    error = final["error"] if "error" in final else cleanup["cause"]
    if error is None and "error" not in final:
        withdrawn = StepFailure("Cancelled", "cancelled because its scope ended", retryable=False)
        error = as_error(withdrawn, final["address"].rpartition("/")[0])
    arrival = routing.unsent(tx.root()["id"], final["step"], final["past"], [])
    learn(arrival, final.get("knows"))
    learn(arrival, cleanup.get("knows"))
    begin_hidden(tx, "final", number, arrival, final["address"], final, {"error": error})


def cleaned(tx: Transition, act: Activation, error: ErrorData | None) -> None:
    """Continue a cleanup after a `finally` has ended or failed."""
    number = act["final"]
    cleanup = tx.state["cleanups"][number]
    end_hidden(tx, act, error)
    cleanup["todo"][:0] = act.pop("finals", [])
    learn(cleanup, act.get("knows"))
    forget_undoing(tx, act)
    if error is not None:
        if tx.blame is not None and "failure" not in cleanup:
            tx.blame.note(("cleanup", number), ("act", act["id"]))
        cleanup.setdefault("failure", error)
    tx.agenda.append(entries.clean_on(number))


def _take_over(tx: Transition, number: int, cleanup: Cleanup, of: int, other: Cleanup) -> None:
    """Pass the result of a cleanup to another one that waited for it."""
    learn(cleanup, other.get("knows"))
    if "failure" in other:
        if tx.blame is not None and "failure" not in cleanup:
            tx.blame.note(("cleanup", number), ("cleanup", of))
        cleanup.setdefault("failure", other["failure"])


def _finish(tx: Transition, number: int, cleanup: Cleanup) -> None:
    cleanups = tx.state["cleanups"]
    if "waiter" in cleanup:
        del cleanups[number]
        waiter = cleanup["waiter"]
        _take_over(tx, waiter, cleanups[waiter], number, cleanup)
        tx.agenda.append(entries.clean_on(cleanup["waiter"]))
        return
    if "kind" not in cleanup:
        cleanup["over"] = True  # until a waiter takes its result
        return
    del cleanups[number]
    if not cleanups:
        del tx.state["cleanups"]
    _go_on_after(tx, number, cleanup)


def _pass_writes(tx: Transition, cleanup: Cleanup) -> None:
    """Pass the writes of a cleanup to the place that waited for it."""
    knows, of = cleanup.get("knows"), cleanup["of"]
    if not knows:
        return
    if cleanup["kind"] == "scope":
        scope = tx.state["scopes"][of]
        learn(scope, of_frame(knows, scope.get("frame", 0)))
        return
    unit = tx.state["units"][of] if cleanup["kind"] == "unit" else None
    act = tx.state["acts"][of] if unit is None else tx.act_of(unit)
    news = of_frame(knows, tx.frame_of(act))
    learn(writer(act, unit), news)
    learn(tx.scope_of(act), news)


def _go_on_after(tx: Transition, number: int, cleanup: Cleanup) -> None:
    """Resume the place that waited for a cleanup. It fails if the cleanup failed."""
    kind, of = cleanup["kind"], cleanup["of"]
    _pass_writes(tx, cleanup)
    if kind == "unit":
        del tx.state["units"][of]["cleanup"]
    elif kind == "act":
        del tx.state["acts"][of]["cleanup"]
    else:
        no_longer_cleaning(tx.state["scopes"][of])
        tx.touch(of)
    if "failure" not in cleanup:
        if cleanup["then"] is not None:
            tx.agenda.append(tuple(cleanup["then"]))
        return
    provenance.drop(tx.state, cleanup["past"])
    if tx.blame is not None and cleanup["cause"] is None:
        # With a cause, the cause is what failed, and its cleanup is repeated.
        tx.blame.note((kind, of), ("cleanup", number))
    failure = cleanup["failure"]
    error = caused(failure, failure.get("cause") or cleanup["cause"])
    if kind == "unit":
        tx.agenda.append(entries.attempt_failed(of, error))
    elif kind == "act":
        tx.agenda.append(entries.act_failed(of, error))
    elif cleanup["then"] is None:
        tx.agenda.append(entries.scope_failed(of, error))
    else:
        status = "cancelled" if tx.state["cancelling"] else "failed"
        tx.agenda.append(entries.flow_end(status, error, None, of))


# Hidden steps: steps of a flow that no token enters.
#
# | mark | the step | started by |
# |---|---|---|
# | `undo` | undoes another one (`compensate`) | `compensation` |
# | `final` | cleans up after a scope (`finally`) | `cleaning` |
# | `opens` | opens the initial environments of its flow (`start`) | `steps.scopes` |
#
# A hidden step has an activation like any other, with a mark that refers to the work that started
# it. When the step has ended, that work continues (`steps.activation_outcomes`).

Mark = Literal["undo", "final", "opens"]


def begin_hidden(
    tx: Transition,
    mark: Mark,
    of: int,
    arrival: Arrival,
    address: str,
    about: Left | None = None,
    names: dict[str, Plain] | None = None,
) -> None:
    """Begin a hidden step.

    Args:
        tx: The transition.
        mark: Its kind.
        of: Number of the compensation or cleanup that it belongs to.
        arrival: Its step and scope, and its past.
        address: Its address.
        about: The record of the work to undo or clean up, if any, with the names visible there.
        names: Additional names.
    """
    act = new_activation(tx, tx.graph.node(arrival["step"]), [arrival])
    marked: dict[str, Any] = act  # type: ignore[assignment]
    marked[mark] = of
    if about is not None and about.get("frame", 0) != tx.scope_of(act).get("frame", 0):
        act["frame"] = about.get("frame", 0)
    act["address"] = address
    if about is not None:
        act["local"] = {**about["local"], **(names or {})}
    begin_unit(tx, act, -1)


def end_hidden(tx: Transition, act: Activation, error: ErrorData | None) -> None:
    """Remove a hidden step that has ended from the state."""
    tx.note(act, "succeeded" if error is None else "failed", error=error)
    routing.forget_activation(tx, act)
    provenance.drop(tx.state, act["past"])


# Compensation: undoing completed steps, newest first (docs/language.md: compensate).
#
#     settle the attempts that were cut off ─► undo one step after the other ─► next entry
#
# `leftovers` settles attempts. If one turns out to have succeeded, it is undone like the other
# steps. A compensation that fails does not stop the others.


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
    number = moves.inner_number(tx.state)
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
        _finish_compensation(tx, number, undo)


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
        message = f"{cut['address']} was interrupted while it ran: it may have taken effect"
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
    begin_hidden(tx, "undo", number, arrival, f"{done['address']}/compensate", done, names)


def undone(tx: Transition, act: Activation, error: ErrorData | None) -> None:
    """Continue after one step has been undone, or could not be undone."""
    number = act["undo"]
    undo = tx.state["undos"][number]
    end_hidden(tx, act, error)
    if error is not None:
        undo["failures"].append(error)
    provenance.drop(tx.state, undo.pop("current")["past"])
    tx.agenda.append(entries.undo(number))


def _finish_compensation(tx: Transition, number: int, undo: Undo) -> None:
    del tx.state["undos"][number]
    if not undo["failures"]:
        tx.agenda.append(tuple(undo["then"]))
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
