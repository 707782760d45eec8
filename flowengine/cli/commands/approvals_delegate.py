"""`flowengine approvals delegate`: let another user decide instead of you."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from flowengine.cli.approvals import ownership
from flowengine.cli.parsing import arguments as read
from flowengine.cli.session import CliSession

HELP = "delegate an approval to another user, who decides in your place"
EXAMPLE = """\
flowengine approvals delegate a7f3 --to user:ana
flowengine approvals delegate a7f3 --to ana --comment "on leave" --as ben"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    ownership.configure(parser)
    parser.add_argument(
        "--to", metavar="USER", required=True, type=read.user, help="who decides instead: user:NAME"
    )
    parser.add_argument("--comment", metavar="TEXT", help="the reason, kept with the delegation")


def run(arguments: Namespace) -> int:
    """Delegate it.

    Returns:
        The exit code.
    """
    with CliSession(arguments) as session:
        wait = session.engine.delegate(
            arguments.wait, arguments.to, comment=arguments.comment, by=arguments.by
        )
        return ownership.say(session, wait)
