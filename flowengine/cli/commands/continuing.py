"""Commands that continue, repeat or end executions."""

from __future__ import annotations

import time
from argparse import Namespace
from functools import partial
from shlex import quote
from typing import Any

from flowengine.cli.commands.run import load
from flowengine.cli.driving.drive import drive, warn_of_host_steps
from flowengine.cli.driving.resuming import resume_due
from flowengine.cli.driving.watching import watch
from flowengine.cli.parsing import arguments as read
from flowengine.cli.parsing.declared import arg, command, flag, many
from flowengine.cli.session import CliSession, session_command
from flowengine.cli.terminal.output import err, out_json, show_error
from flowengine.cli.views.outcome import EXIT_CODES, as_object
from flowengine.engines.results import ExecutionResult
from flowengine.errors import Conflict, FlowEngineError, NoWorker, UsageError

_FAULTS = {EXIT_CODES["failed"], EXIT_CODES["stalled"]}
"""Exit codes of executions that need attention."""


@command(
    "resume a waiting, stalled or interrupted execution, or all that are due",
    """\
flowengine resume 01k8xq7mf4jb
flowengine resume 01k8xq7mf4jb --on-crash retry
flowengine resume --due --linger 0s""",
    arg("execution ID", "its id, or any unambiguous prefix", nargs="?"),
    flag(
        "--due",
        "instead of an id: every execution with a due timer or schedule, an unprocessed "
        "decision or message, or a process that died (for cron and systemd timers)",
    ),
    arg(
        "--on-crash",
        "how to answer questions about steps that a crash left uncertain (default: ask at "
        "the terminal)",
        choices=["ask", "retry", "fail"],
        default="ask",
    ),
    read.DRIVING,
)
def resume_command(arguments: Namespace) -> int:
    """Resume.

    Returns:
        The exit code. With `--due`, that of the first execution that failed or stalled.

    Raises:
        UsageError: Either both an execution and `--due` are given, or none of them.
    """
    if (arguments.execution is None) != arguments.due:
        raise UsageError("give the id of an execution, or --due", hint="see: flowengine list")
    with CliSession(arguments) as session:
        if arguments.due:
            objects, codes = resume_due(session)
            if session.arguments.json:
                out_json(objects)
            return next((code for code in codes if code in _FAULTS), 0)
        engine = session.engine
        execution = engine.executions.find(arguments.execution)
        if not session.is_served:
            warn_of_host_steps(session, session.flow_of(execution))
        on_crash = None if arguments.on_crash == "ask" else arguments.on_crash
        return drive(session, lambda: engine.resume(execution, on_crash=on_crash))


@session_command(
    "retry a failed execution from the steps that failed, keeping successful results",
    """\
flowengine retry 01k8xq7mf4jb
flowengine retry 01k8xq7mf4jb --step 'each[invoice.pdf]'
flowengine retry 01k8xq7mf4jb --file fixed.yaml""",
    read.EXECUTION,
    many(
        "--step ADDRESS",
        "only the failures in this step. If there are none, the step itself runs again",
        default=None,
    ),
    arg("--file FILE", "continue with a fixed flow file"),
    flag(
        "--repeat-once",
        "repeat calls with effect 'once' that have succeeded in an agent or a flow that begins "
        "anew",
    ),
    read.DRIVING,
)
def retry_command(session: CliSession, arguments: Namespace) -> int:
    flow = load(session, arguments.file) if arguments.file else None
    try:
        return drive(
            session,
            lambda: session.engine.executions.retry(
                arguments.execution,
                step=arguments.step,
                flow=flow,
                repeat_once=arguments.repeat_once,
            ),
        )
    except Conflict as error:
        if arguments.file and (hint := error.hint_for("cli")):
            error.hint = hint.replace("--file FILE", f"--file {quote(arguments.file)}")
        raise


@session_command(
    "start a new execution from the point where a step of an old one started",
    """\
flowengine fork 01k8xq7mf4jb --from-step review
flowengine fork 01k8xq7mf4jb --from-step review --set level=2 --file changed.yaml""",
    arg("execution ID", "the old execution, which is not changed"),
    arg("--from-step ADDRESS", "address of the step", required=True),
    many("--set K=V", "write state before the step starts", type=read.assignment),
    arg("--file FILE", "continue with a changed flow file"),
    arg("--id ID", "id of the new execution"),
    many("--label K=V", "a label for lists", type=read.assignment),
    read.WORKDIR,
    read.DRIVING,
)
def fork_command(session: CliSession, arguments: Namespace) -> int:
    engine = session.engine
    changed = None if arguments.file is None else load(session, arguments.file)
    declared: dict[str, Any] = {}
    if not session.is_served:
        flow = changed or session.flow_of(engine.executions.find(arguments.execution))
        declared = flow.compiled.get("state", {})
    schemas = {name: state.get("schema", {}) for name, state in declared.items()}
    values = read.assigned(schemas, arguments.set, "state")
    return drive(
        session,
        lambda: engine.executions.fork(
            arguments.execution,
            from_step=arguments.from_step,
            set=values,
            flow=changed,
            id=arguments.id,
            labels=dict(arguments.label),
        ),
    )


PATIENCE = 2
"""Seconds for which a request waits for the process that holds an execution."""


@command(
    "cancel executions: running steps are stopped, then 'finally' runs",
    """\
flowengine cancel 01k8xq7mf4jb --reason "ordered twice"
flowengine cancel 01k8xq7mf4jb 01k8xq9pgmew --now
flowengine cancel 01k8xq7mf4jb --step 'ask/clerk@1/search' --reason "too broad\"""",
    arg("executions ID", "an id, or any unambiguous prefix of one", nargs="+"),
    arg("--reason TEXT", "the reason, kept in the history", default=""),
    flag(
        "--now",
        "skip 'finally', and the compensation that the flow's on_error requests on Cancelled",
    ),
    arg(
        "--step ADDRESS",
        "stop only this call, group or subflow, which fails with 'Stopped'. The execution "
        "continues",
    ),
)
def cancel_command(arguments: Namespace) -> int:
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
                        session.engine.executions.cancel,
                        execution,
                        reason=arguments.reason,
                        now=arguments.now,
                        step=arguments.step,
                    ),
                )
            except FlowEngineError as error:
                if len(arguments.executions) == 1:
                    raise
                show_error(error)
                code = code or error.exit_code
                continue
            assert result is not None
            if arguments.step is None:
                end = time.monotonic() + PATIENCE
                try:
                    while not result.ended and time.monotonic() < end:
                        time.sleep(0.05)
                        result = session.engine.executions.result(result.execution)
                except NoWorker as error:
                    err(f"recorded; {error.with_hint}")
            objects.append(as_object(session, result))
            if not arguments.quiet:
                told = _told(session, result) if arguments.step is None else "stops the step"
                err(f"{session.short(result.execution)} {told}")
            if arguments.step is None and result.ended and result.status != "cancelled":
                code = code or Conflict.exit_code
        if arguments.json:
            out_json(objects[0] if len(arguments.executions) == 1 else objects)
    return code


def _told(session: CliSession, result: ExecutionResult) -> str:
    """Return the result of the request in words."""
    if not result.ended:
        by = "a worker" if session.is_remote else "the process that holds it"
        return f"cancellation requested: {by} will cancel it"
    if result.status != "cancelled":
        return f"{result.status} before it could be cancelled"
    return result.status
