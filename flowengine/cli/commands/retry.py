"""`flowengine retry`: continue a failed execution from the steps that failed."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from shlex import quote

from flowengine.cli.commands.run import add_driving, load
from flowengine.cli.driving.drive import drive
from flowengine.cli.session import CliSession
from flowengine.errors import Conflict

HELP = "retry a failed execution from the steps that failed, keeping successful results"
EXAMPLE = """\
flowengine retry 01k8xq7mf4jb
flowengine retry 01k8xq7mf4jb --step 'each[invoice.pdf]'
flowengine retry 01k8xq7mf4jb --file fixed.yaml"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("execution", metavar="ID", help="its id, or any unambiguous prefix")
    parser.add_argument(
        "--step",
        metavar="ADDRESS",
        help="only the failures in this step. If there are none, the step itself runs again",
    )
    parser.add_argument("--file", metavar="FILE", help="continue with a fixed flow file")
    add_driving(parser)


def run(arguments: Namespace) -> int:
    """Try again.

    Returns:
        The exit code.
    """
    with CliSession(arguments) as session:
        flow = load(session, arguments.file) if arguments.file else None
        try:
            return drive(
                session,
                lambda: session.engine.retry(arguments.execution, step=arguments.step, flow=flow),
                ask=not arguments.no_interactive,
            )
        except Conflict as error:
            if arguments.file and (hint := error.hint_for("cli")):
                error.hint = hint.replace("--file FILE", f"--file {quote(arguments.file)}")
            raise
