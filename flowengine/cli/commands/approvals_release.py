"""`flowengine approvals release`: give back what was claimed."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from flowengine.cli import handing
from flowengine.cli.session import Session

HELP = "release an approval that you have claimed"
EXAMPLE = "flowengine approvals release a7f3"


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    handing.configure(parser)


def run(arguments: Namespace) -> int:
    """Give it back.

    Returns:
        The exit code.
    """
    with Session(arguments) as session:
        wait = session.engine.release(arguments.wait, by=arguments.by)
        return handing.say(session, wait)
