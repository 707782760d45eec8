"""`flowengine approvals show`: everything about one approval."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from flowengine.cli.session import CliSession
from flowengine.cli.terminal.output import out, out_json
from flowengine.cli.views.approvals import decision_lines, details, edits
from flowengine.cli.views.waits import answers

HELP = "show an approval: its subject, assignees and decision"
EXAMPLE = "flowengine approvals show a7f3"


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("wait", metavar="ID", help="its id, or any unambiguous prefix")


def run(arguments: Namespace) -> int:
    """Show it.

    Returns:
        The exit code.
    """
    with CliSession(arguments) as session:
        wait = session.engine.wait(arguments.wait)
        if arguments.json:
            out_json(wait)
            return 0
        for line in details(session, wait):
            out(line)
        if wait.get("status") == "closed":
            for line in decision_lines(wait):
                out(line)
            return 0
        short = session.short_wait(wait["id"])
        for name, words in answers(session, wait, short):
            if name != "show":
                out(f"  {name:11} {session.command(*words)}")
        for words in edits(wait, short):
            out(f"  {'edit':11} {session.command(*words)}")
    return 0
