"""`flowengine envs release`: end one environment that was left open."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from flowengine.cli.session import CliSession
from flowengine.cli.terminal.output import err, out, out_json
from flowengine.cli.views.environments import NAME

HELP = "end an environment that was left open"
EXAMPLE = """\
flowengine envs release analysis
flowengine envs release analysis --force"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("environment", metavar="NAME", help=NAME)
    parser.add_argument(
        "--force", action="store_true", help="end it even if the process that opened it is alive"
    )


def run(arguments: Namespace) -> int:
    """End it.

    Returns:
        The exit code.
    """
    with CliSession(arguments) as session:
        released = session.engine.release_environment(arguments.environment, force=arguments.force)
    if arguments.json:
        out_json(released)
    elif "error" in released:
        err(f"{released['id']} could not be ended: {released['error']}")
        err("  see: flowengine doctor")
    else:
        out(f"ended {released['resource_key']} ({released['id']})")
    return 1 if "error" in released else 0
