"""`flowengine envs list`: environments that are open, were left open, or are missing."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from flowengine.cli.session import CliSession
from flowengine.cli.terminal.output import err, out, out_json
from flowengine.cli.views.environments import rows

HELP = "list environments that are open, were left open, or are missing"
EXAMPLE = """\
flowengine envs list
flowengine envs list 01k8xq3zn3m0"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "execution", metavar="ID", nargs="?", help="only those of this execution (default: all)"
    )


def run(arguments: Namespace) -> int:
    """List them.

    Returns:
        The exit code.
    """
    with CliSession(arguments) as session:
        environments = session.engine.open_environments(arguments.execution)
    if arguments.json:
        out_json(environments)
    elif not environments:
        err("no environments are open")
    else:
        for line in rows(environments):
            out(line)
    return 0
