"""Drives an execution for `run`, `resume`, `retry`, `fork` and `signal`."""

from __future__ import annotations

import sys
from collections.abc import Callable

from flowengine.cli.driving.watching import watch
from flowengine.cli.session import CliSession
from flowengine.cli.terminal.output import err, is_terminal, out_json
from flowengine.cli.views.outcome import EXIT_CODES, as_object, show_outcome
from flowengine.engines.flows import LoadedFlow
from flowengine.engines.results import ExecutionResult
from flowengine.errors import Conflict, NoWorker


def drive(session: CliSession, call: Callable[[], ExecutionResult | None]) -> int:
    """Drive an execution and show its progress.

    At a terminal, a command that may ask prompts for pending decisions.

    Args:
        call: Drives it, and returns its state. None: it is not driven here.

    Raises:
        NoWorker: No worker answers, and nothing is recorded.
    """
    try:
        result = _driven(session, call)
    except NoWorker as error:
        if error.recorded is None:
            raise
        show_recorded(session, error.recorded, error)
        return EXIT_CODES["recorded"]
    return 0 if result is None else show_outcome(session, result)


def drive_recorded(
    session: CliSession, execution: str, call: Callable[[], ExecutionResult | None]
) -> int:
    """Drive an execution for which something was recorded, unless another process is faster.

    Args:
        execution: Its full id.
        call: As for `drive`.
    """
    try:
        return drive(session, call)
    except Conflict as error:
        err(f"recorded; {error.message}")
    if session.arguments.json:
        out_json(as_object(session, session.engine.executions.result(execution)))
    return 0


def show_recorded(session: CliSession, execution: str, error: NoWorker) -> None:
    """Report that the request to an execution is recorded, for the next worker.

    Args:
        execution: Its full id.
        error: Why it is not driven now.
    """
    if not session.arguments.quiet:
        err(error.with_hint if error.recorded else f"recorded; {error.with_hint}")
    if session.arguments.json:
        record = session.engine.store.execution(execution)
        result = ExecutionResult(record.id, record.flow, "recorded", None, [], None)
        out_json(as_object(session, result))


def _driven(
    session: CliSession, call: Callable[[], ExecutionResult | None]
) -> ExecutionResult | None:
    ask = not getattr(session.arguments, "no_interactive", True)
    at_terminal = is_terminal(sys.stdin) and is_terminal(sys.stderr)
    if ask and not session.arguments.json and not session.is_served and at_terminal:
        from flowengine.cli.driving.dialogue import drive_and_ask

        return drive_and_ask(session, call)
    return watch(session, call)[0]


def warn_of_host_steps(session: CliSession, flow: LoadedFlow) -> None:
    """Report steps and model-written code that run on this machine as the user."""
    if session.is_remote or session.arguments.quiet:
        return
    if steps := flow.on_host:
        if steps not in session.named_on_host:
            err(f"unsandboxed on this host: {steps}")
            session.named_on_host.add(steps)
        if not any(
            step.get("kind") == "flow" and "task" in step for step in flow.compiled["steps"]
        ):
            session.on_host_told()  # detached executions, which this line does not name, may start
