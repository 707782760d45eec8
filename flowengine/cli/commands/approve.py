"""`flowengine approve`: decide with the choice that counts as approval."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from flowengine.cli.approvals import deciding

HELP = "approve, and resume the execution"
EXAMPLE = """\
flowengine approve a7f3
flowengine approve a7f3 --form cost_center=4711 --edit amount=1200 --comment "as agreed"
flowengine approve --all --batch documents --dry-run"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    deciding.configure(parser, fills=True)
    parser.set_defaults(counts_as="approve")


def run(arguments: Namespace) -> int:
    """Approve.

    Returns:
        The exit code.
    """
    return deciding.run(arguments, None)
