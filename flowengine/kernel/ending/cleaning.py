"""Cleanup: the `finally` of scopes that have ended (docs/language.md: finally).

    scope over ─► its `finally` is due ─► passed outwards while the enclosing scopes end, too
                     └─► before a place continues, it runs due cleanups, innermost first

A `finally` runs as an activation of its hidden step. It always runs in the scope of the main flow,
so that no scope that ends around it can withdraw it, but its expressions read the data of the flow
that it belongs to. The place that waits for a cleanup can be withdrawn. The cleanup then continues
independently, and the place outside waits for it instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.kernel.errors import StepFailure, as_error, caused
from flowengine.kernel.expressions import provenance
from flowengine.kernel.flow_state.causality import learn, of_frame, writer
from flowengine.kernel.state import entries, initial
from flowengine.kernel.state.entries import Entry
from flowengine.kernel.state.moves import is_over
from flowengine.kernel.tokens import routing
from flowengine.kernel.transition import Transition

if TYPE_CHECKING:
    from flowengine.kernel.events import ErrorData
    from flowengine.kernel.state.records import Activation, Cleanup, Final, PlaceKind


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
    number = initial.inner_number(tx.state)
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
    from flowengine.kernel.ending.hidden_steps import begin_hidden

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
    from flowengine.kernel.ending.hidden_steps import end_hidden
    from flowengine.kernel.ending.leftovers import forget_undoing

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
        from flowengine.kernel.ending.leftovers import no_longer_cleaning

        no_longer_cleaning(tx.state["scopes"][of])
        tx.touch(of)
    if "failure" not in cleanup:
        if cleanup["then"] is not None:
            tx.agenda.append(Entry(cleanup["then"]))
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
