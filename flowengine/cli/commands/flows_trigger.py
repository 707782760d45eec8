"""`flowengine flows trigger`: run a scheduled flow out of turn."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from flowengine.cli.driving.drive import drive
from flowengine.cli.driving.resuming import leave_recorded
from flowengine.cli.parsing import arguments as read
from flowengine.cli.session import CliSession

HELP = "run a deployed flow out of turn, with the inputs of its schedule"
EXAMPLE = """\
flowengine flows trigger report
flowengine flows trigger report --schedule '0 9 * * 1-5' --no-resume"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("flow", metavar="FLOW", help="its id")
    add_schedule(parser, "required if it has several")
    parser.add_argument(
        "--no-resume", action="store_true", help="record the execution without running it"
    )
    read.add_linger(parser)


def add_schedule(parser: ArgumentParser, note: str) -> None:
    """Add the option that names a schedule of the flow."""
    parser.add_argument("--schedule", metavar="EXPR", help=f"the expression of a schedule ({note})")


def run(arguments: Namespace) -> int:
    """Run it.

    Returns:
        The exit code.
    """
    with CliSession(arguments) as session:
        execution = session.engine.trigger(arguments.flow, schedule=arguments.schedule)
        if arguments.no_resume or session.is_served:
            leave_recorded(session, [execution])
            return 0
        return drive(session, lambda: session.engine.resume(execution))
