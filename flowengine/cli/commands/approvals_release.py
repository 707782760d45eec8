"""`flowengine approvals release`: release a claimed approval."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from flowengine.cli.approvals import ownership
from flowengine.cli.session import CliSession

HELP = "release an approval that you have claimed"
EXAMPLE = "flowengine approvals release a7f3"


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    ownership.configure(parser)


def run(arguments: Namespace) -> int:
    """Release it.

    Returns:
        The exit code.
    """
    with CliSession(arguments) as session:
        wait = session.engine.release(arguments.wait, by=arguments.by)
        return ownership.say(session, wait)
