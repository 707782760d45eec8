"""Error handlers of a step (docs/language.md: on_error): route, substitute, raise, compensate."""

from __future__ import annotations

from flowengine.kernel import flow_state, held_failures, messages
from flowengine.kernel.ending import cleanup
from flowengine.kernel.ending.leftovers import hand_over
from flowengine.kernel.errors import StepFailure, as_error, caused, fits
from flowengine.kernel.events import ErrorData
from flowengine.kernel.expressions.names import Names, evaluate, holds
from flowengine.kernel.expressions.provenance import record
from flowengine.kernel.graph.compiled import EvaluationError, Plain
from flowengine.kernel.graph.specs import HandlerSpec
from flowengine.kernel.state import entries
from flowengine.kernel.state.records import Activation
from flowengine.kernel.steps.attempts import raised
from flowengine.kernel.tokens import routing
from flowengine.kernel.transition import Transition


def find(
    tx: Transition, names: Names, specs: list[HandlerSpec], error: ErrorData
) -> HandlerSpec | None:
    """Return the first handler that matches an error, or None.

    Args:
        names: The names that the conditions can read, including `error`.
        specs: The handlers, in the order of the file.
        error: The error.

    Returns:
        The handler.

    Raises:
        EvaluationError: A condition has no value.
    """
    for spec in specs:
        if fits(spec, error) and ("when" not in spec or holds(names, spec["when"])):
            return spec
    return None


def handle(tx: Transition, act: Activation, error: ErrorData) -> None:
    """Pass an error to the first matching handler of a step. Without one, fail the scope."""
    if held_failures.hold_act(tx, act, entries.begin_act(act["id"])):
        return
    specs = tx.node(act).on_error
    names = Names(tx, act, extra={"error": error})
    try:
        spec = find(tx, names, specs, error)
    except EvaluationError as failure:
        fail(tx, act, caused(as_error(failure, tx.step_address(act)), error))
        return
    if spec is not None and spec.get("compensate"):
        cleanup.compensate(tx, act, error, entries.handled(act["id"], specs.index(spec), error))
    elif cleanup.clean_first(tx, "act", act, entries.act_failed(act["id"], error), error):
        return
    elif spec is None:
        fail(tx, act, error)
    else:
        perform(tx, act, spec, error)


def compensated(tx: Transition, act: Activation, index: int, error: ErrorData) -> None:
    """Run due cleanups, then perform a handler that has compensated."""
    if not cleanup.clean_first(tx, "act", act, entries.handled(act["id"], index, error), error):
        perform(tx, act, tx.node(act).on_error[index], error)


def fail(tx: Transition, act: Activation, error: ErrorData, handler: int = -1) -> None:
    """Fail the scope of a step with its error, with or without a handler."""
    tx.note(act, "failed", error=error, handler=handler)
    scope = tx.scope_of(act)
    if tx.blame is not None:
        tx.blame.note(("scope", scope["id"]), ("act", act["id"]))
    hand_over(tx, act)
    routing.forget_activation(tx, act)
    routing.end_token(tx, scope, act["line"], act["past"])
    # At once: earlier entries must not begin work in a scope that has failed.
    tx.agenda.appendleft(entries.scope_failed(scope["id"], error))


def perform(tx: Transition, act: Activation, spec: HandlerSpec, error: ErrorData) -> None:
    """Perform a handler.

    Args:
        act: The activation that failed.
        spec: The handler. If it compensates, that has been done.
        error: The error of the activation.
    """
    names = Names(tx, act, extra={"error": error})
    do = spec.get("do", "raise")
    handler = tx.node(act).on_error.index(spec)
    try:
        if spec.get("set"):
            flow_state.write(tx, names, spec["set"], act)
        if spec.get("emit"):
            messages.emit(tx, names, spec["emit"], str(act["id"]))
        if do == "fail":
            failure = instead(evaluate(names, spec["fail"]), tx.step_address(act), error)
            fail(tx, act, failure, handler)
        elif do == "raise":
            fail(tx, act, error, handler)
        elif do == "output":
            output = evaluate(names, spec["output"])
            targets = _targets(tx, act, output, "ok")
            _go_on(tx, act, targets, handler, output=output, handled=error)
        elif do == "next":
            _go_on(tx, act, [spec["to"]], handler, error=error)
        else:
            _go_on(tx, act, _targets(tx, act, None, "failed", error), handler, error=error)
    except (StepFailure, EvaluationError) as failed:
        fail(tx, act, caused(as_error(failed, tx.step_address(act)), error))


def instead(given: Plain, address: str, error: ErrorData) -> ErrorData:
    """Return the error that a handler raises instead: a new one, or a caught one unchanged.

    Args:
        given: The value of its `fail`.
        address: The address of a new error.
        error: The caught error, which is the cause of a new one.
    """
    failure = raised(given)
    if isinstance(failure, StepFailure):
        return caused(as_error(failure, address), error)
    whose: ErrorData = {"step": address, "attempt": 1, "data": None}
    return caused({**whose, **failure}, failure.get("cause"))


def _targets(
    tx: Transition, act: Activation, output: Plain, outcome: str, error: ErrorData | None = None
) -> list[int]:
    """Return the targets of the step's own `next`. Its failure is not passed to a handler again."""
    extra = {"output": output, "outcome": outcome, "error": error}
    return routing.choose(tx.node(act), Names(tx, act, extra=extra), outcome)


def _go_on(
    tx: Transition,
    act: Activation,
    targets: list[int],
    handler: int,
    *,
    output: Plain = None,
    error: ErrorData | None = None,
    handled: ErrorData | None = None,
) -> None:
    """Continue after a failed step. Without an error, it counts as succeeded.

    Args:
        error: The error, if the step counts as failed.
        handled: The error that was handled, if the step counts as succeeded.
    """
    node = tx.node(act)
    status, outcome = ("failed", "failed") if error is not None else ("succeeded", "ok")
    if node.named:
        record(tx, act, node, status, outcome, output, error)
    tx.note(
        act,
        status,
        outcome=None if error is not None else outcome,
        output=output,
        error=error or handled,
        to=targets,
        handler=handler,
    )
    hand_over(tx, act)
    routing.leave_step(tx, act, targets, output)
