"""`flowengine approvals claim`: claim an approval, so that no other assignee can decide it."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from flowengine.cli.approvals import ownership
from flowengine.cli.session import CliSession

HELP = "claim an approval so that no other assignee decides it"
EXAMPLE = "flowengine approvals claim a7f3"


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    ownership.configure(parser)


def run(arguments: Namespace) -> int:
    """Claim it.

    Returns:
        The exit code.
    """
    with CliSession(arguments) as session:
        wait = session.engine.claim(arguments.wait, by=arguments.by)
        return ownership.say(session, wait)
