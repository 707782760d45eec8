"""`flowengine flows pause`: pause the schedules of a deployed flow."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from flowengine.cli.commands.flows_list import show_schedules
from flowengine.cli.session import CliSession

HELP = "pause the schedules of a deployed flow"
EXAMPLE = "flowengine flows pause report"


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("flow", metavar="FLOW", help="its id")


def run(arguments: Namespace) -> int:
    """Pause them.

    Returns:
        The exit code.
    """
    with CliSession(arguments) as session:
        return show_schedules(session, session.engine.pause_schedules(arguments.flow))
