"""`flowengine approvals decide`: decide with any choice."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from flowengine.cli.approvals import deciding

HELP = "decide with any choice, including questions about uncertain steps"
EXAMPLE = """\
flowengine approvals decide a7f3 --choice later
flowengine approvals decide 09be --choice result --value '{"id": 7}'
flowengine approvals decide 4c1d --choice respond --value '"done by hand"'"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("--choice", metavar="CHOICE", required=True, help="id of the choice")
    deciding.configure(parser, fills=True)
    parser.add_argument(
        "--value",
        metavar="JSON|@FILE",
        help="with the choice 'result' of a question, or 'respond' of a call: the output to record "
        "for the step",
    )


def run(arguments: Namespace) -> int:
    """Decide.

    Returns:
        The exit code.
    """
    return deciding.run(arguments, arguments.choice)
