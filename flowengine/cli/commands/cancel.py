"""`flowengine cancel`: cancel executions."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from functools import partial
from typing import TYPE_CHECKING

from flowengine.cli.driving.watching import watch
from flowengine.cli.session import CliSession
from flowengine.cli.terminal.errors import show_error
from flowengine.cli.terminal.output import err, out_json
from flowengine.cli.views.outcome import as_object
from flowengine.errors import Conflict, FlowEngineError, NoWorker

HELP = "cancel executions: running steps are stopped, then 'finally' runs"
if TYPE_CHECKING:
    from flowengine.engines.results import ExecutionResult

PATIENCE = 2
"""Seconds for which a request waits for the process that holds an execution."""
EXAMPLE = """\
flowengine cancel 01k8xq7mf4jb --reason "ordered twice"
flowengine cancel 01k8xq7mf4jb 01k8xq9pgmew --now"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "executions", metavar="ID", nargs="+", help="an id, or any unambiguous prefix of one"
    )
    parser.add_argument(
        "--reason", metavar="TEXT", default="", help="the reason, kept in the history"
    )
    parser.add_argument(
        "--now",
        action="store_true",
        help="skip 'finally', and the compensation that the flow's on_error requests on Cancelled",
    )


def _settled(session: CliSession, result: ExecutionResult) -> ExecutionResult:
    """Return the state of an execution after giving the process that holds it time to cancel it."""
    end = time.monotonic() + PATIENCE
    try:
        while not result.ended and time.monotonic() < end:
            time.sleep(0.05)
            result = session.engine.result(result.execution)
    except NoWorker as error:
        err(f"recorded; {error.with_hint}")
    return result


def _told(session: CliSession, result: ExecutionResult) -> str:
    """Return the result of the request in words."""
    if not result.ended:
        by = "a worker" if session.is_remote else "the process that holds it"
        return f"cancellation requested: {by} will cancel it"
    if result.status != "cancelled":
        return f"{result.status} before it could be cancelled"
    return result.status


def run(arguments: Namespace) -> int:
    """Cancel them.

    Returns:
        The exit code: that of the first execution that could not be cancelled.

    Raises:
        FlowEngineError: There was only one, and it could not be cancelled.
    """
    code = 0
    objects = []
    with CliSession(arguments) as session:
        for execution in dict.fromkeys(arguments.executions):
            try:
                result, _ = watch(
                    session,
                    partial(
                        session.engine.cancel,
                        execution,
                        reason=arguments.reason,
                        now=arguments.now,
                    ),
                )
            except FlowEngineError as error:
                if len(arguments.executions) == 1:
                    raise
                show_error(error)
                code = code or error.exit_code
                continue
            assert result is not None
            result = _settled(session, result)
            objects.append(as_object(session, result))
            if not arguments.quiet:
                err(f"{session.short(result.execution)} {_told(session, result)}")
            if result.ended and result.status != "cancelled":
                code = code or Conflict.exit_code
        if arguments.json:
            out_json(objects[0] if len(arguments.executions) == 1 else objects)
    return code
