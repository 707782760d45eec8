"""`flowengine envs show`: everything that is recorded about an environment."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from flowengine.cli.session import CliSession
from flowengine.cli.terminal.output import out, out_json
from flowengine.cli.views.environments import NAME, details

HELP = "show an environment: its sandbox, start time and processes"
EXAMPLE = "flowengine envs show analysis"


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("environment", metavar="NAME", help=NAME)


def run(arguments: Namespace) -> int:
    """Show it.

    Returns:
        The exit code.
    """
    with CliSession(arguments) as session:
        environment = session.engine.open_environment(arguments.environment)
    if arguments.json:
        out_json(environment)
    else:
        for line in details(environment):
            out(line)
    return 0
