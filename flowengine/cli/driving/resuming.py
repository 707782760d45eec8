"""Resuming several executions, one after the other."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from time import monotonic
from typing import Any

from flowengine.cli.driving.drive import warn_of_host_steps
from flowengine.cli.driving.progress import ProgressDisplay
from flowengine.cli.driving.watching import watch
from flowengine.cli.session import CliSession
from flowengine.cli.terminal.output import err
from flowengine.cli.views.outcome import EXIT_CODES, as_object, show_outcome
from flowengine.engines.results import Decision, ExecutionResult
from flowengine.errors import Conflict
from flowengine.worker.backlog import Backlog

Resumed = tuple[list[dict[str, Any]], list[int]]
"""The executions as JSON objects, and their exit codes."""


def resume_decided(session: CliSession, decisions: list[Decision]) -> Resumed:
    """Resume each execution that decisions were recorded for, once.

    Args:
        decisions: The recorded decisions.

    Returns:
        Their states, without those that had already moved on.
    """
    resumed: Resumed = ([], [])
    for execution in dict.fromkeys(decision.execution for decision in decisions):
        new = any(decision.first for decision in decisions if decision.execution == execution)
        if not new and session.engine.executions.result(execution).ended:
            continue
        try:
            result, progress = _resume(session, execution)
        except Conflict as error:
            err(f"recorded; {error.message}")
            continue
        if result is not None and (new or progress.moved):
            _finish(session, result, resumed)
    return resumed


def leave_recorded(session: CliSession, executions: Iterable[str]) -> None:
    """Report the commands that resume the executions for which a decision was recorded.

    Args:
        executions: Full ids.
    """
    if session.is_remote:
        return  # a worker takes them
    open_ = [
        id for id in dict.fromkeys(executions) if not session.engine.executions.result(id).ended
    ]
    if session.arguments.quiet or not open_:
        return
    if len(open_) == 1:
        err(f"not resumed, to resume it: {session.command('resume', session.short(open_[0]))}")
    else:
        err(f"not resumed, to resume them: {session.command('resume', '--due')}")


def resume_due(session: CliSession) -> Resumed:
    """Resume each execution that can continue now, also those that schedules start now.

    Returns:
        Their states, without those that another process resumed first.
    """
    resumed: Resumed = ([], [])
    backlog = Backlog(concurrency=1, window=1)
    for start in session.engine.flows.start_due():
        if start.error is not None:
            err(f"{start.flow} was not started by its schedule: {start.error!s}")
            resumed[1].append(EXIT_CODES["failed"])
    backlog.fill(session.engine.due())
    while (due := backlog.next(monotonic())) is not None:
        backlog.done(due.execution)
        try:
            result, _ = _resume(session, due.execution)
        except Conflict:  # another process was faster
            continue
        if result is not None:
            _finish(session, result, resumed)
    return resumed


def _resume(session: CliSession, execution: str) -> tuple[ExecutionResult | None, ProgressDisplay]:
    if (flow := session.flow_of(execution)).runs_on_host:
        warn_of_host_steps(session, flow)
    return watch(session, partial(session.engine.resume, execution))


def _finish(session: CliSession, result: ExecutionResult, resumed: Resumed) -> None:
    objects, codes = resumed
    objects.append(as_object(session, result))
    codes.append(
        EXIT_CODES[result.status] if session.arguments.json else show_outcome(session, result)
    )
