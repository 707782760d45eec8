"""`flowengine resume`: resume an execution, or all that are due."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from flowengine.cli.commands.run import add_driving, tell_host_steps
from flowengine.cli.driving.drive import drive
from flowengine.cli.session import CliSession
from flowengine.cli.terminal.output import out_json
from flowengine.cli.views.outcome import EXIT_CODES
from flowengine.errors import UsageError

_FAULTS = {EXIT_CODES["failed"], EXIT_CODES["stalled"]}
"""Exit codes of executions that need attention."""

HELP = "resume a waiting, stalled or interrupted execution, or all that are due"
EXAMPLE = """\
flowengine resume 01k8xq7mf4jb
flowengine resume 01k8xq7mf4jb --on-crash retry
flowengine resume --due --linger 0s"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "execution", metavar="ID", nargs="?", help="its id, or any unambiguous prefix"
    )
    parser.add_argument(
        "--due",
        action="store_true",
        help="instead of an id: every execution with a due timer or schedule, an unprocessed "
        "decision or message, or a process that died (for cron and systemd timers)",
    )
    parser.add_argument(
        "--on-crash",
        choices=["ask", "retry", "fail"],
        default="ask",
        help="how to answer questions about steps that a crash left uncertain (default: ask at the "
        "terminal)",
    )
    add_driving(parser)


def run(arguments: Namespace) -> int:
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
            return _resume_due(session)
        engine = session.engine
        execution = engine.find(arguments.execution)
        if not session.is_served:
            tell_host_steps(session, session.flow_of(execution))
        on_crash = None if arguments.on_crash == "ask" else arguments.on_crash
        return drive(
            session,
            lambda: engine.resume(execution, on_crash=on_crash),
            ask=not arguments.no_interactive,
        )


def _resume_due(session: CliSession) -> int:
    from flowengine.cli.driving.resuming import resume_due

    objects, codes = resume_due(session)
    if session.arguments.json:
        out_json(objects)
    return next((code for code in codes if code in _FAULTS), 0)
