"""`flowengine grants revoke`: require an approval for later calls again."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from flowengine.cli.parsing import arguments as read
from flowengine.cli.session import CliSession
from flowengine.cli.terminal.output import err, out_json

HELP = "revoke a grant: the next call needs an approval again"
EXAMPLE = "flowengine grants revoke a7f3"


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "grant", metavar="ID", help="the grant, by any unambiguous prefix of its id"
    )
    parser.add_argument(
        "--as", dest="by", metavar="USER", type=read.user, help="act on behalf of another user"
    )


def run(arguments: Namespace) -> int:
    """End it.

    Returns:
        The exit code.
    """
    with CliSession(arguments) as session:
        grant = session.engine.revoke(arguments.grant, by=arguments.by)
        if arguments.json:
            out_json(grant)
        elif not arguments.quiet:
            short = session.short_wait(grant["id"])
            err(f"{short} was revoked: calls of {grant['tool']!r} ask again")
    return 0
