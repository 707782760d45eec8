"""`flowengine flows resume`: resume the schedules of a deployed flow."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from flowengine.cli.commands.flows_list import show_schedules
from flowengine.cli.session import CliSession

HELP = "resume the schedules of a deployed flow, from their next times on"
EXAMPLE = "flowengine flows resume report"


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("flow", metavar="FLOW", help="its id")


def run(arguments: Namespace) -> int:
    """Resume them.

    Returns:
        The exit code.
    """
    with CliSession(arguments) as session:
        return show_schedules(session, session.engine.resume_schedules(arguments.flow))
