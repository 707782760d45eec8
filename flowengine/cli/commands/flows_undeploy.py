"""`flowengine flows undeploy`: remove a deployed flow."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from flowengine.cli.session import CliSession
from flowengine.cli.terminal.output import err, out_json

HELP = "remove a deployed flow: nothing starts it any more, and open executions continue"
EXAMPLE = """\
flowengine flows undeploy report
flowengine flows undeploy report@2"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("name", metavar="NAME", help="its id, or ID@VERSION for an earlier version")


def run(arguments: Namespace) -> int:
    """Remove it.

    Returns:
        The exit code.
    """
    with CliSession(arguments) as session:
        removed = session.engine.undeploy(arguments.name)
        if arguments.json:
            out_json(removed)
        elif not arguments.quiet:
            err(f"no longer deployed: {', '.join(removed)}")
        return 0
