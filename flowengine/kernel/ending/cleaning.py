"""Cleaning up: the `finally` of scopes that have ended (docs/language.md: finally).

    scope over ─► its `finally` is due ─► what encloses it hands it outwards while it ends, too
                     └─► whoever goes on runs what is due first, innermost first, then goes on

A `finally` runs as an activation of its hidden step, in the scope of the main flow whatever it
belongs to, and sees what its own flow has: so nothing that ends around it withdraws it. Who waits
for it may be withdrawn meanwhile; the cleanup then goes on by itself, and whoever goes on in that
place waits for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.kernel.ending import hidden_steps
from flowengine.kernel.ending.leftovers import forget_undoing, no_longer_cleaning
from flowengine.kernel.errors import StepFailure, as_error
from flowengine.kernel.expressions import provenance
from flowengine.kernel.flow_state.causality import learn, of_frame, writer
from flowengine.kernel.machine import Machine
from flowengine.kernel.state import entries, initial
from flowengine.kernel.state.entries import Entry
from flowengine.kernel.state.moves import is_over
from flowengine.kernel.tokens import routing

if TYPE_CHECKING:
    from flowengine.kernel.events import ErrorData
    from flowengine.kernel.state.records import Activation, Cleanup, Final, PlaceKind


def first(
    m: Machine,
    kind: PlaceKind,
    owner: Any,
    then: Entry | None,
    cause: ErrorData | None = None,
    past: int = 0,
) -> bool:
    """Clean up what is due in a place before it goes on.

    Args:
        kind: What `owner` is.
        owner: Who goes on.
        then: What follows, for the agenda; None if nobody waits for it.
        cause: Why the scopes have ended that were withdrawn.
        past: A past that `then` refers to.

    Returns:
        Whether something is due; if not, `then` is still to be done.
    """
    due: list[Final] = owner.pop("finals", None)
    if not due:
        return False
    number = initial.inner_number(m.state)
    cleanup: Cleanup = {
        "kind": kind,
        "of": owner["id"],
        "todo": due,
        "then": None if then is None else list(then),
        "cause": cause,
        "past": past,
    }
    m.state.setdefault("cleanups", {})[number] = cleanup
    if kind == "scope":
        owner["cleaning"] = owner.get("cleaning", 0) + 1
    else:
        owner["cleanup"] = number
    m.agenda.append(entries.clean_on(number))
    return True


def first_of_scope(m: Machine, number: int) -> None:
    """Clean up in a scope that goes on after something in it was withdrawn."""
    scope = m.state["scopes"].get(number)
    if scope is not None and not is_over(scope):
        first(m, "scope", scope, None)


def go_on(m: Machine, number: int) -> None:
    """Run the next `finally` of a cleanup, or end it.

    Args:
        number: Which.
    """
    cleanups = m.state.get("cleanups", {})
    cleanup = cleanups.get(number)
    if cleanup is None:
        return
    while cleanup["todo"]:
        final = cleanup["todo"].pop(0)
        if "cleanup" not in final:
            _run(m, number, final)
            return
        other = cleanups[final["cleanup"]]
        if not other.get("over"):
            other["waiter"] = number
            return
        _take_over(m, number, cleanup, final["cleanup"], other)
        del cleanups[final["cleanup"]]
    _finish(m, number, cleanup)


def _run(m: Machine, number: int, final: Final) -> None:
    """Begin a `finally`, as an activation of its hidden step."""
    cleanup = m.state["cleanups"][number]
    error = final["error"] if "error" in final else cleanup["cause"]
    if error is None and "error" not in final:
        withdrawn = StepFailure("Cancelled", "cancelled because its scope ended", retryable=False)
        error = as_error(withdrawn, final["address"].rpartition("/")[0])
    arrival = routing.unsent(m.root()["id"], final["step"], final["past"], [])
    learn(arrival, final.get("knows"))
    learn(arrival, cleanup.get("knows"))
    hidden_steps.begin(m, "final", number, arrival, final["address"], final, {"error": error})


def cleaned(m: Machine, act: Activation, error: ErrorData | None) -> None:
    """Go on after a `finally` has ended, or has failed."""
    number = act["final"]
    cleanup = m.state["cleanups"][number]
    hidden_steps.end(m, act, error)
    cleanup["todo"][:0] = act.pop("finals", [])
    learn(cleanup, act.get("knows"))
    forget_undoing(m, act)
    if error is not None:
        if m.blame is not None and "failure" not in cleanup:
            m.blame.note(("cleanup", number), ("act", act["id"]))
        cleanup.setdefault("failure", error)
    m.agenda.append(entries.clean_on(number))


def _take_over(m: Machine, number: int, cleanup: Cleanup, of: int, other: Cleanup) -> None:
    """Tell a cleanup how another one ended that it was waiting for."""
    learn(cleanup, other.get("knows"))
    if "failure" in other:
        if m.blame is not None and "failure" not in cleanup:
            m.blame.note(("cleanup", number), ("cleanup", of))
        cleanup.setdefault("failure", other["failure"])


def _finish(m: Machine, number: int, cleanup: Cleanup) -> None:
    cleanups = m.state["cleanups"]
    if "waiter" in cleanup:
        del cleanups[number]
        waiter = cleanup["waiter"]
        _take_over(m, waiter, cleanups[waiter], number, cleanup)
        m.agenda.append(entries.clean_on(cleanup["waiter"]))
        return
    if "kind" not in cleanup:
        cleanup["over"] = True  # until somebody goes on who has to know
        return
    del cleanups[number]
    if not cleanups:
        del m.state["cleanups"]
    _go_on_after(m, number, cleanup)


def _tell(m: Machine, cleanup: Cleanup) -> None:
    """Pass what a cleanup has written to whatever waited for it."""
    knows, of = cleanup.get("knows"), cleanup["of"]
    if not knows:
        return
    if cleanup["kind"] == "scope":
        scope = m.state["scopes"][of]
        learn(scope, of_frame(knows, scope.get("frame", 0)))
        return
    unit = m.state["units"][of] if cleanup["kind"] == "unit" else None
    act = m.state["acts"][of] if unit is None else m.act_of(unit)
    news = of_frame(knows, m.frame_of(act))
    learn(writer(act, unit), news)
    learn(m.scope_of(act), news)


def _go_on_after(m: Machine, number: int, cleanup: Cleanup) -> None:
    """Resume whatever waited for a cleanup; it fails if the cleanup failed."""
    kind, of = cleanup["kind"], cleanup["of"]
    _tell(m, cleanup)
    if kind == "unit":
        del m.state["units"][of]["cleanup"]
    elif kind == "act":
        del m.state["acts"][of]["cleanup"]
    else:
        no_longer_cleaning(m.state["scopes"][of])
        m.touch(of)
    if "failure" not in cleanup:
        if cleanup["then"] is not None:
            m.agenda.append(Entry(cleanup["then"]))
        return
    provenance.drop(m.state, cleanup["past"])
    if m.blame is not None and cleanup["cause"] is None:
        # With a cause that is what failed; it is cleaned up after once more.
        m.blame.note((kind, of), ("cleanup", number))
    error: ErrorData = {**cleanup["failure"]}
    error["cause"] = error.get("cause") or cleanup["cause"]
    if kind == "unit":
        m.agenda.append(entries.attempt_failed(of, error))
    elif kind == "act":
        m.agenda.append(entries.act_failed(of, error))
    elif cleanup["then"] is None:
        m.agenda.append(entries.scope_failed(of, error))
    else:
        status = "cancelled" if m.state["cancelling"] else "failed"
        m.agenda.append(entries.flow_end(status, error, None, of))
