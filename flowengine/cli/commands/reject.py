"""`flowengine reject`: decide with the choice that counts as rejection."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from flowengine.cli.approvals import deciding

HELP = "reject, and resume the execution"
EXAMPLE = """\
flowengine reject a7f3 --comment "not this year"
flowengine reject a7f3 --attach scan.pdf --as ben"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    deciding.configure(parser, fills=False)
    parser.set_defaults(counts_as="reject")


def run(arguments: Namespace) -> int:
    """Reject.

    Returns:
        The exit code.
    """
    return deciding.run(arguments, None)
