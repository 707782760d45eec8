"""`flowengine resume`: go on with an execution."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from flowengine.cli.commands.run import add_driving, tell_host_steps
from flowengine.cli.session import Session

HELP = "go on with a waiting, stalled or interrupted execution"
EXAMPLE = """\
flowengine resume 01k8xq7m
flowengine resume 01k8xq7m --on-crash retry"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("execution", metavar="ID", help="its id, or any unambiguous beginning")
    parser.add_argument(
        "--on-crash",
        choices=["ask", "retry", "fail"],
        default="ask",
        help="answer all questions about steps that a crash left uncertain; ask: on the terminal",
    )
    add_driving(parser)


def run(arguments: Namespace) -> int:
    """Go on.

    Args:
        arguments: Of the command line.

    Returns:
        The exit code.
    """
    with Session(arguments) as session:
        engine = session.engine
        execution = engine.find(arguments.execution)
        tell_host_steps(session, session.flow_of(execution))
        on_crash = None if arguments.on_crash == "ask" else arguments.on_crash
        return session.drive(
            lambda: engine.resume(execution, on_crash=on_crash), ask=not arguments.no_interactive
        )
