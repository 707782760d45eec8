"""`flowengine list`: executions, newest first."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from flowengine.cli.parsing import arguments as read
from flowengine.cli.session import CliSession, NoStore
from flowengine.cli.terminal.output import (
    STATUS_COLOURS,
    err,
    out,
    out_json,
    paint,
    results,
    table,
    when,
)
from flowengine.sdk.visible_text import printable

STATUSES = [
    "recorded",
    "running",
    "interrupted",
    "waiting",
    "stalled",
    "quarantined",
    "succeeded",
    "failed",
    "cancelled",
]
MOST = 5
"""Commands that are suggested below the list."""


class List:
    """`flowengine list`: executions, newest first."""

    HELP = "list executions, newest first"
    EXAMPLE = """\
flowengine list --status waiting
flowengine list --flow expense --label team=sales --since 1d"""

    @staticmethod
    def configure(parser: ArgumentParser) -> None:
        """Add the arguments."""
        parser.add_argument("--flow", metavar="F", help="only those of the flow with this id")
        parser.add_argument(
            "--status",
            choices=STATUSES,
            metavar="S",
            help=f"only with this status: {', '.join(STATUSES)}",
        )
        read.add_assignments(parser, "--label", "only those with this label (may be repeated)")
        parser.add_argument(
            "--since",
            metavar="TIME",
            type=read.moment,
            help="only those started since: 1d, or a time",
        )
        read.add_limit(parser)

    @staticmethod
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
            page = session.engine.executions.list(
                flow=arguments.flow,
                status=arguments.status,
                labels=dict(arguments.label),
                since=arguments.since,
                limit=arguments.limit,
            )
            for item in page.items:
                session.make_pasted(item)
            if arguments.json:
                out_json(page.items)
                return 0
            if not page.items:
                err(f"no matching executions in {session.place}")
                return 0
            rows = [
                [
                    session.short(item["execution"]),
                    printable(item["flow"]),
                    item["status"],
                    when(item["started_at"]),
                    when(item.get("ended_at", "-")),
                    printable(
                        " ".join(f"{name}={value}" for name, value in item["labels"].items())
                    ),
                ]
                for item in page.items
            ]
            head, *lines = table(rows, ["ID", "FLOW", "STATUS", "STARTED", "ENDED", "LABELS"])
            out(head)
            for line, row in zip(lines, rows, strict=True):
                out(line.replace(row[2], _painted(row[2]), 1))
            left = [item for item in page.items if "command" in item]
            if left and session.is_remote and not session.is_served:
                start = session.command("worker")
                err(f"a worker begins what is recorded; if there is none, start one: {start}")
                left = []
            for info in left[:MOST]:
                what = "begin" if info["status"] == "recorded" else "resume"
                err(f"{info['status']}; to {what} it: {info['command']}")
            if len(left) > MOST:
                more = session.command("list", "--status", left[MOST]["status"])
                err(f"and {len(left) - MOST} more: {more}")
            if page.next is not None:
                err(read.more(arguments.limit))
        return 0


def _painted(status: str) -> str:
    return paint(status, STATUS_COLOURS[status], results())
