"""The end of an activation and its effects (docs/language.md: Steps).

The token leaves along `next`, or a handler is found for the error. A hidden step has no token. When
it ends, the work that started it continues.

Most events end a step and begin the next one, and do nothing else. Normally each part of that is an
entry of the agenda: the token leaves, arrives and activates a step, which begins its unit and its
attempt. If the agenda is empty, no other entry can come between these parts, so they are performed
directly. The records, numbers, commands and their order are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flowengine.kernel.ending.cleanup import Mark, cleaned, undone
from flowengine.kernel.ending.closing import end_bounds
from flowengine.kernel.ending.leftovers import hand_over
from flowengine.kernel.errors import StepFailure, as_error
from flowengine.kernel.events import ErrorData
from flowengine.kernel.expressions import provenance
from flowengine.kernel.expressions.names import Names
from flowengine.kernel.expressions.provenance import record
from flowengine.kernel.graph.compiled import EvaluationError, Plain
from flowengine.kernel.held_failures import hold_act
from flowengine.kernel.state import entries
from flowengine.kernel.state.entries import Entry
from flowengine.kernel.state.records import Activation
from flowengine.kernel.steps.attempts import attempt
from flowengine.kernel.steps.handlers import handle
from flowengine.kernel.tokens import routing
from flowengine.kernel.tokens.activations import count, put_activation
from flowengine.kernel.tokens.map_items import new_unit
from flowengine.kernel.transition import Transition

_ABSENT: Any = object()


def activation_ended(
    tx: Transition, act: Activation, status: str, outcome: str, output: Plain
) -> None:
    """End an activation and send its token along `next`.

    Args:
        tx: The transition.
        act: The activation.
        status: `succeeded` or `skipped`.
        outcome: The outcome that `next` can route by.
        output: The output of the step.
    """
    if "undo" in act or "final" in act or "opens" in act:
        _hidden_ended(tx, act, None)
        return
    if "call" in act:
        tx.note(act, status, outcome=outcome, output=output)
        tx.agenda.append(entries.answered(act["id"], output, None))
        return
    node = tx.graph.nodes[act["step"]]
    is_bound = "deadline" in act or "over" in act
    try:
        # Most steps have a fixed target.
        fixed = None if is_bound else node.targets
        targets = choose(tx, act, outcome, output) if fixed is None else fixed
    except (StepFailure, EvaluationError) as failure:
        error = as_error(failure, tx.step_address(act))
        activation_failed(tx, act, error, entries.act_ended(act["id"], status, outcome, output))
        return
    if node.named:
        record(tx, act, node, status, outcome, output, None)
    if node.forgets:
        provenance.forget_steps(tx.state, act["past"], node.forgets)
    if tx.observe is not None:
        is_usual = tx.brief and node.bare and node.loop is None and node.meters is None
        if (
            is_usual
            and status == "succeeded"
            and outcome == "ok"
            and output is tx.event.get("value", _ABSENT)
        ):
            tx.observe.append(tx.step_address(act))
        else:
            tx.note(act, status, outcome=outcome, output=output, to=targets)
    if "done" in act or "cut" in act or "finals" in act:
        hand_over(tx, act)
    if not _pass_on(tx, act, output):
        routing.leave_step(tx, act, targets, output)


def _pass_on(tx: Transition, act: Activation, output: Plain) -> bool:
    """Pass the token of an activation directly to the next step, if no other work can come between.

    Args:
        tx: The transition. The caller does nothing after this.
        act: The activation, which has ended.
        output: The output of its step.

    Returns:
        True if it was passed. Otherwise nothing has changed.
    """
    state, graph, source = tx.state, tx.graph, act["step"]
    node = graph.followers[source]
    if node is None or tx.agenda or "hold" in state:
        return False
    scope = state["scopes"][act["scope"]]
    del state["acts"][act["id"]], scope["live"][act["id"]]
    carried = output if graph.nodes[source].carries else None
    following = put_activation(tx, scope, node.index, [[source, carried]], act)
    try:
        count(tx, scope, following)
    except StepFailure as failure:
        tx.agenda.append(entries.act_broken(following["id"], failure))
        return True
    attempt(tx, new_unit(tx, scope, following, -1))
    return True


def activation_failed(
    tx: Transition, act: Activation, error: ErrorData, again: Entry | None = None
) -> None:
    """Pass the error of an activation to its `on_error`, or fail its scope.

    Args:
        tx: The transition.
        act: The activation, which has no running work.
        error: The error.
        again: The entry to process if it begins again. None: all of it.
    """
    if hold_act(tx, act, again or entries.begin_act(act["id"])):
        return
    end_bounds(tx, act)
    if "undo" in act or "final" in act or "opens" in act:
        _hidden_ended(tx, act, error)
    elif "call" in act:
        tx.note(act, "failed", error=error)
        tx.agenda.append(entries.answered(act["id"], None, error))
    else:
        handle(tx, act, error)


def _hidden_ended(tx: Transition, act: Activation, error: ErrorData | None) -> None:
    next(follows for mark, follows in HIDDEN.items() if mark in act)(tx, act, error)


def _opened(tx: Transition, act: Activation, error: ErrorData | None) -> None:
    tx.agenda.append(entries.opened(act["id"], error))


HIDDEN: dict[Mark, Callable[[Transition, Activation, ErrorData | None], None]] = {
    "undo": undone,
    "final": cleaned,
    "opens": _opened,
}
"""Mark of a hidden step → the effects of its end. Hidden steps have no tokens and no handlers."""


def choose(tx: Transition, act: Activation, outcome: str, output: Plain) -> list[int]:
    """Clear the limits of an activation that has ended, and return the targets of its token."""
    if "deadline" in act or "over" in act:
        end_bounds(tx, act)
    node = tx.graph.nodes[act["step"]]
    if node.targets is not None:
        return node.targets
    names = Names(tx, act, extra={"output": output, "outcome": outcome})
    return routing.choose(node, names, outcome)


def remember_step(
    tx: Transition, act: Activation, status: str, outcome: str, output: Plain
) -> None:
    """Add the step to the past of its token, if an expression names it."""
    node = tx.graph.nodes[act["step"]]
    if node.named:
        record(tx, act, node, status, outcome, output, None)
