"""`flowengine approvals list`: pending approvals and questions."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from flowengine.cli.approvals.deciding import add_filters, for_others
from flowengine.cli.parsing import arguments as read
from flowengine.cli.session import CliSession, NoStore
from flowengine.cli.terminal.output import err, out, out_json
from flowengine.cli.views.approvals import rows
from flowengine.engines.results import LISTED

HELP = "list approvals and questions, pending ones by default"
EXAMPLE = """\
flowengine approvals list --mine
flowengine approvals list --flow expense --status closed --limit 10"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    add_filters(parser)
    parser.add_argument(
        "--status", choices=["pending", "closed", "all"], default="pending", help="default: pending"
    )
    read.add_limit(parser)


def run(arguments: Namespace) -> int:
    """List them.

    Returns:
        The exit code.
    """
    try:
        session = CliSession(arguments)
    except NoStore as error:
        if arguments.store:  # a named store is expected to exist
            raise
        out_json([]) if arguments.json else err(error.message)
        return 0
    with session:
        engine = session.engine
        wanted: Any = {
            "flow": arguments.flow,
            "execution": arguments.execution,
            "batch": arguments.batch,
            "status": arguments.status,
            "kinds": LISTED,
            "limit": arguments.limit,
        }
        page = engine.waits(**wanted, assignee=engine.user if arguments.mine else None)
        if arguments.json:
            out_json(page.items)
            return 0
        if not page.items and arguments.mine and (others := engine.waits(**wanted).items):
            err(f"nothing is waiting for you, but {for_others(session, others)}")
            return 0
        if not page.items:
            err(
                f"no approvals or questions are waiting in {session.place}"
                if arguments.status == "pending"
                else "no matching approvals or questions"
            )
            return 0
        for line in rows(session, page.items):
            out(line)
        if page.next is not None:
            err(read.more(arguments.limit))
    return 0
