"""What follows when an activation has ended (docs/language.md: Steps).

Its token leaves along `next`, or its error looks for a handler. A hidden step has no token: whoever
began it goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from flowengine.kernel import held_failures
from flowengine.kernel.ending import cleaning, compensation
from flowengine.kernel.ending.closing import end_bounds
from flowengine.kernel.ending.leftovers import hand_over
from flowengine.kernel.errors import StepFailure, as_error
from flowengine.kernel.expressions import provenance
from flowengine.kernel.expressions.names import Names
from flowengine.kernel.expressions.step_records import record
from flowengine.kernel.graph.compiled import EvaluationError, Plain
from flowengine.kernel.machine import Machine
from flowengine.kernel.state import entries
from flowengine.kernel.steps import handlers
from flowengine.kernel.steps.passing import pass_on
from flowengine.kernel.tokens import routing

if TYPE_CHECKING:
    from flowengine.kernel.ending.hidden_steps import Mark
    from flowengine.kernel.events import ErrorData
    from flowengine.kernel.state.entries import Entry
    from flowengine.kernel.state.records import Activation


def activation_ended(m: Machine, act: Activation, status: str, outcome: str, output: Plain) -> None:
    """End an activation; its token goes on along `next`.

    Args:
        m: The advance at work.
        act: The activation.
        status: `succeeded` or `skipped`.
        outcome: What `next` may route by.
        output: What the step gives.
    """
    if "undo" in act or "final" in act or "opens" in act:
        _hidden_ended(m, act, None)
        return
    try:
        targets = choose(m, act, outcome, output)
    except (StepFailure, EvaluationError) as failure:
        error = as_error(failure, m.step_address(act))
        activation_failed(m, act, error, entries.act_ended(act["id"], status, outcome, output))
        return
    remember_step(m, act, status, outcome, output)
    forgets = m.graph.nodes[act["step"]].forgets
    if forgets:
        provenance.forget(m.state, act["past"], forgets)
    if m.observe is not None:
        m.note(act, status, outcome=outcome, output=output, to=targets)
    if "done" in act or "cut" in act or "finals" in act:
        hand_over(m, act)
    if not pass_on(m, act, output):
        routing.leave(m, act, targets, output)


def activation_failed(
    m: Machine, act: Activation, error: ErrorData, again: Entry | None = None
) -> None:
    """Let a failed activation be handled by its `on_error`, or fail its scope.

    Args:
        m: The advance at work.
        act: The activation; nothing of it runs any more.
        error: What it failed with.
        again: What follows if it begins again; None: all of it.
    """
    if held_failures.hold_act(m, act, again or entries.begin_act(act["id"])):
        return
    end_bounds(m, act)
    if "undo" in act or "final" in act or "opens" in act:
        _hidden_ended(m, act, error)
    else:
        handlers.handle(m, act, error)


def _hidden_ended(m: Machine, act: Activation, error: ErrorData | None) -> None:
    next(follows for mark, follows in HIDDEN.items() if mark in act)(m, act, error)


def _opened(m: Machine, act: Activation, error: ErrorData | None) -> None:
    m.agenda.append(entries.opened(act["id"], error))


HIDDEN: dict[Mark, Callable[[Machine, Activation, ErrorData | None], None]] = {
    "undo": compensation.undone,
    "final": cleaning.cleaned,
    "opens": _opened,
}
"""What follows when a hidden step has ended; it has no token, and no error handlers."""


def choose(m: Machine, act: Activation, outcome: str, output: Plain) -> list[int]:
    """Return where the token goes; the step is over, and so is what bounds it."""
    if "deadline" in act or "over" in act:
        end_bounds(m, act)
    node = m.graph.nodes[act["step"]]
    if node.targets is not None:  # most steps: no expression is asked
        return node.targets
    names = Names(m, act, extra={"output": output, "outcome": outcome})
    return routing.choose(node, names, outcome)


def remember_step(m: Machine, act: Activation, status: str, outcome: str, output: Plain) -> None:
    """Put the step into the past of its token, if some expression names it."""
    node = m.graph.nodes[act["step"]]
    if node.named:
        record(m, act, node, status, outcome, output, None)
