"""`flowengine prune`: delete old executions."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from flowengine.cli.parsing import arguments as read
from flowengine.cli.session import CliSession
from flowengine.cli.terminal.output import out, out_json

HELP = "delete executions that have ended and idle sessions of agents, with their files"
EXAMPLE = """\
flowengine prune
flowengine prune --older-than 7d --status succeeded"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "--older-than",
        metavar="DURATION",
        type=read.duration,
        default=30 * 86_400.0,
        help="only those that ended, or sessions idle, at least this long (default: 30d)",
    )
    parser.add_argument(
        "--status",
        choices=["succeeded", "failed", "cancelled"],
        metavar="S",
        action="append",
        default=[],
        help="only succeeded, failed or cancelled ones, no sessions (may be repeated)",
    )


def run(arguments: Namespace) -> int:
    """Delete them.

    Returns:
        The exit code.
    """
    with CliSession(arguments) as session:
        pruned = session.engine.prune(older_than=arguments.older_than, status=arguments.status)
    if arguments.json:
        out_json(pruned._asdict())
    else:
        mib = pruned.bytes / (1024 * 1024)
        out(f"deleted {pruned.executions} executions and {pruned.artifacts} files ({mib:.1f} MiB)")
    return 0
