"""`flowengine approve`: decide with the choice that counts as approval."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from flowengine.cli.approvals import deciding
from flowengine.cli.parsing import arguments as read

HELP = "approve, and resume the execution"
EXAMPLE = """\
flowengine approve a7f3
flowengine approve a7f3 --form cost_center=4711 --edit amount=1200 --comment "as agreed"
flowengine approve --all --batch documents --dry-run"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    deciding.configure(parser, fills=True)
    later = parser.add_argument_group("later calls of the same tool")
    later.add_argument(
        "--grant",
        metavar="NAME=PATTERN",
        action="append",
        type=read.assignment,
        help="also approve calls whose argument matches ('*' matches anything but '/', '**' "
        "anything). Arguments that are not named must be the same. May be repeated",
    )
    later.add_argument("--uses", metavar="N", type=int, help="only the next N")
    later.add_argument("--expires", metavar="DURATION", help="only for this long, for example 2h")
    later.add_argument(
        "--scope",
        choices=["execution", "flow"],
        help="calls of this execution (default), or of all executions of the flow",
    )
    parser.set_defaults(counts_as="approve")


def run(arguments: Namespace) -> int:
    """Approve.

    Returns:
        The exit code.
    """
    return deciding.run(arguments, None)
