"""`flowengine flows backfill`: run the past times of a deployed flow's schedules."""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser, Namespace
from datetime import UTC, datetime
from time import time
from typing import TYPE_CHECKING, Any

from flowengine.cli.commands.flows_trigger import add_schedule
from flowengine.cli.parsing import arguments as read
from flowengine.cli.session import CliSession
from flowengine.cli.terminal.output import err, out, out_json, when
from flowengine.cli.views.outcome import EXIT_CODES
from flowengine.errors import InputError
from flowengine.kernel.notation.times import format_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from flowengine.engines.results import ScheduledStart

HELP = "run the past times of a deployed flow's schedules, a few at once"
EXAMPLE = """\
flowengine flows backfill report --since 7d
flowengine flows backfill report --since 30d --until 7d --at-once 4"""
_MOST = 1000


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("flow", metavar="FLOW", help="its id")
    parser.add_argument(
        "--since",
        metavar="TIME",
        type=read.moment,
        required=True,
        help="first moment of the range: 7d, or a time",
    )
    parser.add_argument(
        "--until", metavar="TIME", type=read.moment, default=None, help="last moment (default: now)"
    )
    add_schedule(parser, "default: all of them")
    parser.add_argument(
        "--at-once",
        metavar="N",
        type=read.count,
        default=1,
        help="how many executions run at once (default: 1). Executions that wait do not count",
    )
    parser.add_argument(
        "--most",
        metavar="N",
        type=read.count,
        default=_MOST,
        help=f"how many times the range may contain (default: {_MOST})",
    )


def run(arguments: Namespace) -> int:
    """Run them, and print a line for each when it has ended or waits.

    Returns:
        The exit code: the highest of those that the executions would have.
    """
    moments = arguments.since, arguments.until or int(time() * 1000)
    since, until = (datetime.fromtimestamp(moment / 1000, UTC) for moment in moments)
    arguments.linger = 0.0
    shown: list[dict[str, Any]] = []
    with CliSession(arguments) as session:

        def tell(started: ScheduledStart) -> None:
            shown.append(_entry(session, started))
            if not arguments.json:
                out("  ".join(shown[-1].values()))

        if session.is_served:
            _record_there(session, arguments, since, until, tell)
        else:
            asyncio.run(
                session.engine.backfill_async(
                    arguments.flow,
                    since,
                    until,
                    schedule=arguments.schedule,
                    at_once=arguments.at_once,
                    most=arguments.most,
                    tell=tell,
                )
            )
    if arguments.json:
        out_json(sorted(shown, key=lambda entry: str(entry["time"])))
    elif not shown:
        err("the range contains no time of a schedule")
    if session.is_served:  # the workers run them
        return InputError.exit_code if any(start["status"] == "refused" for start in shown) else 0
    return max(
        (EXIT_CODES.get(entry["status"], InputError.exit_code) for entry in shown), default=0
    )


def _record_there(
    session: CliSession,
    arguments: Namespace,
    since: datetime,
    until: datetime,
    tell: Callable[[ScheduledStart], None],
) -> None:
    """Have a server record them, for its workers."""
    client: Any = session.engine
    for started in client.record_past(arguments.flow, since, until, schedule=arguments.schedule):
        tell(started)


def _entry(session: CliSession, started: ScheduledStart) -> dict[str, Any]:
    """Return what became of a time: its execution, or the reason why there is none."""
    entry = {"time": when(format_time(started.time))}
    if started.execution is None:
        return {**entry, "status": "refused", "error": str(started.error)}
    status = session.engine.result(started.execution).status
    return {**entry, "status": status, "execution": started.execution}
