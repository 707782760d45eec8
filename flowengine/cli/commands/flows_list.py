"""`flowengine flows list`: the deployed flows, and what starts them."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from flowengine.cli.session import CliSession
from flowengine.cli.terminal.output import err, out, out_json, table, when
from flowengine.sdk.visible_text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flowengine.engines.infos import DeployedInfo, StartInfo

HELP = "list the deployed flows, with the signals and schedules that start them"
EXAMPLE = "flowengine flows list"
_HASH_SHOWN = 12


def configure(parser: ArgumentParser) -> None:
    """Add no arguments."""


def run(arguments: Namespace) -> int:
    """List the current version of each.

    Returns:
        The exit code.
    """
    with CliSession(arguments) as session:
        flows = [flow for flow in session.engine.deployed() if flow["current"]]
        if arguments.json:
            starts = session.engine.starts()
            mine = ([start for start in starts if start["flow"] == flow["flow"]] for flow in flows)
            out_json([{**flow, "starts": starts} for flow, starts in zip(flows, mine, strict=True)])
            return 0
        if not flows:
            err("no flow is deployed: flowengine deploy FILE")
        return show(session, flows)


def show(session: CliSession, flows: Sequence[DeployedInfo]) -> int:
    """Print deployed versions and what starts them: a line for each signal and schedule.

    Returns:
        The exit code.
    """
    rows = []
    for flow in flows:
        starts = session.engine.starts(flow["flow"]) if flow["current"] else []
        for by in [_started_by(start) for start in starts] or ["-"]:
            row = [flow["flow"], flow["version"], flow["hash"][:_HASH_SHOWN]]
            rows.append([*map(printable, row), when(flow["deployed_at"]), by])
    if rows:
        for line in table(rows, ["FLOW", "VERSION", "HASH", "DEPLOYED", "STARTED BY"]):
            out(line)
    return 0


def show_schedules(session: CliSession, starts: Sequence[StartInfo]) -> int:
    """Print the schedules of a flow, with their next times.

    Returns:
        The exit code.
    """
    if session.arguments.json:
        out_json(starts)
    else:
        for start in starts:
            if "schedule" in start:
                out(_started_by(start))
    return 0


def _started_by(start: StartInfo) -> str:
    """Describe what starts a flow, with the next time of a schedule."""
    if "signal" in start:
        return printable(f"signal {start['signal']}")
    following = f"next {when(start['due'])}" if "due" in start else "paused"
    return f"{printable(start['schedule'])} {printable(start['timezone'])}, {following}"
