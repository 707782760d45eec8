"""Scopes: a running body, from its first tokens to its end (docs/language.md: Order).

open ─► tokens ─► none left ─► ended: the unit of the group or subflow continues with its output
             └─► an unhandled error, `end_all`: the other tokens are withdrawn
"""

from __future__ import annotations

from flowengine.kernel.ending.cleanup import begin_hidden, clean_first, end_hidden
from flowengine.kernel.ending.closing import empty_scope, remove_scope, stop_timeout
from flowengine.kernel.errors import as_error
from flowengine.kernel.events import ErrorData
from flowengine.kernel.expressions import provenance
from flowengine.kernel.expressions.names import Names, evaluate
from flowengine.kernel.flow_state import learn, writer
from flowengine.kernel.graph.compiled import EvaluationError
from flowengine.kernel.held_failures import hold_scope
from flowengine.kernel.messages import idle, messages_at_joins, take_kept
from flowengine.kernel.state import entries, moves
from flowengine.kernel.state.moves import move
from flowengine.kernel.state.records import Activation, Scope, Unit
from flowengine.kernel.tokens import routing
from flowengine.kernel.transition import Transition, has_items


def open_scope(
    tx: Transition, body: int, unit: Unit | None, frame: int = 0, *, queued: bool = False
) -> Scope:
    """Open a scope and create its first tokens.

    Args:
        body: Index of the body.
        unit: The unit of the group, or of the step that runs a subflow. None for the main flow.
        frame: Frame of a subflow. The scope takes over a reference to its lowest layer.
        queued: The first tokens wait for their turn.

    Returns:
        The scope.
    """
    act = tx.act_of(unit) if unit is not None else None
    past = frame
    if act is not None and not frame:
        past, frame = provenance.share(tx.state, act["past"]), tx.frame_of(act)
    scope: Scope = {
        "id": tx.new_id(),
        "body": body,
        "unit": unit["id"] if unit is not None else 0,
        "phase": "open",
        "path": f"{tx.address(unit)}/" if unit is not None else "",
        "past": past,
        "ended": [],
        "live": {},
        "at_joins": 0,
        "at": {},
        "joins": {},
        "counts": {},
        "hits": {},
        "mapped": _is_uncounted(tx, body, act),
        "done": [],
        "cut": [],
    }
    if frame:
        scope["frame"] = frame
    if act is not None and tx.graph.body(body).kind != "flow":
        learn(scope, writer(act, unit).get("knows"))
    tx.state["scopes"][scope["id"]] = scope
    if unit is not None:
        move(unit, "scope")
        unit["scope"] = scope["id"]
    if queued:
        moves.queue(scope)
    else:
        start(tx, scope, act["line"] if act is not None else first_line(tx))
    return scope


def start(tx: Transition, scope: Scope, line: list[int]) -> None:
    """Create the first tokens of a scope, after its initial environments have been opened.

    Args:
        line: Line of descent of the tokens.
    """
    body = tx.graph.body(scope["body"])
    if body.opens < 0:
        _put_tokens(tx, scope, line)
        return
    moves.queue(scope)
    past = provenance.share(tx.state, scope["past"])
    arrival = routing.unsent(scope["id"], body.opens, past, line)
    address = scope["path"] + tx.graph.node(body.opens).id

    begin_hidden(tx, "opens", True, arrival, address)


def _put_tokens(tx: Transition, scope: Scope, line: list[int]) -> None:
    routing.start(tx, scope, tx.graph.body(scope["body"]).start, line)
    tx.touch(scope["id"])


def opened(tx: Transition, act: Activation, error: ErrorData | None) -> None:
    """Continue a flow whose initial environments are open, or could not be opened.

    Args:
        act: The activation that has opened them.
        error: The error, if they could not be opened. The flow then fails.
    """
    scope = tx.scope_of(act)
    end_hidden(tx, act, error)
    moves.unqueue(scope)
    if error is not None:
        if tx.blame is not None:
            tx.blame.note(("scope", scope["id"]), ("act", act["id"]))
        tx.agenda.append(entries.scope_failed(scope["id"], error))
        return
    _put_tokens(tx, scope, act["line"])
    if not scope["unit"]:
        take_kept(tx)


def first_line(tx: Transition) -> list[int]:
    """Return the line of the flow's first token. Tokens of triggers come after it."""
    return [0] if "triggered" in tx.state else []


def _is_uncounted(tx: Transition, body: int, act: Activation | None) -> bool:
    """Return whether activations in a scope do not count for `limits.steps`."""
    if act is None:
        return False
    return tx.scope_of(act)["mapped"] or has_items(act) or tx.graph.body(body).kind == "finally"


def end_if_empty(tx: Transition, scope: Scope) -> bool:
    """End a scope without tokens.

    Returns:
        Whether it has ended.
    """
    if scope["live"] or scope["phase"] != "open" or "cleaning" in scope:
        return False
    if "triggered" in tx.state:
        if scope["at_joins"] > messages_at_joins(tx, scope) or idle(tx, scope):
            return False
    elif scope["at_joins"]:
        return False
    if scope["at_joins"]:
        empty_scope(tx, scope)
    succeed_scope(tx, scope)
    return True


def end_all(tx: Transition, scope: Scope, line: list[int], past: int) -> None:
    """End a scope because of one of its tokens, and withdraw the other tokens (pattern 43).

    Args:
        line: Line of descent of the token.
        past: The past of the token.
    """
    empty_scope(tx, scope)
    scope["ended"].append([line, past])
    succeed_scope(tx, scope)


def succeed_scope(tx: Transition, scope: Scope) -> None:
    """End an empty scope. Its flow has succeeded, or the group's unit continues."""
    past = routing.merged_past(tx, scope)
    body = tx.graph.body(scope["body"])
    if body.kind == "flow":
        tx.agenda.append(entries.flow_ended(scope["id"], past))
        moves.end_tokens(scope)
        return
    unit = tx.state["units"][scope["unit"]]
    act = tx.act_of(unit)
    failure: EvaluationError | None = None
    output = None
    if body.output is not None:
        try:
            output = evaluate(Names(tx, act, unit, past), body.output)
        except EvaluationError as error:
            if hold_end(tx, scope, past):
                return
            if tx.blame is not None:
                tx.blame.note(("scope", scope["id"]))
                tx.blame.note(("unit", unit["id"]), ("scope", scope["id"]))
            failure = error
    keep_for_finally(tx, scope, past)
    scope["error"] = None if failure is None else as_error(failure, tx.address(unit))
    remove_scope(tx, scope)
    stop_timeout(tx, unit)
    if failure is not None:
        tx.agenda.append(entries.attempt_failed(unit["id"], failure))
        return
    then = entries.group_ended(unit["id"], output, past)
    if "finals" in unit and clean_first(tx, "unit", unit, then, past=past):
        return
    tx.agenda.append(then)


def hold_end(tx: Transition, scope: Scope, past: int) -> bool:
    """Hold a scope whose outputs have no value, if requested. It keeps its past."""
    if not hold_scope(tx, scope, entries.end_anew(scope["id"])):
        return False
    scope["ended"].append([[], past])
    return True


def keep_for_finally(tx: Transition, scope: Scope, past: int) -> None:
    """Share the past of a scope's tokens with its `finally`. The caller keeps its own reference."""
    if tx.graph.body(scope["body"]).final >= 0:
        scope["ended"].append([[], provenance.share(tx.state, past)])
