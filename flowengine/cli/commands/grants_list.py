"""`flowengine grants list`: approvals of later calls."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from flowengine.cli.session import CliSession
from flowengine.cli.terminal.output import err, out, out_json, table, when
from flowengine.sdk.visible_text import printable

HELP = "list grants: approvals of later calls, and how often they were used"
EXAMPLE = "flowengine grants list 01k8xq3zn3m0"


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "execution",
        metavar="ID",
        nargs="?",
        help="the execution (default: grants for all executions of a flow)",
    )


def run(arguments: Namespace) -> int:
    """List them.

    Returns:
        The exit code.
    """
    with CliSession(arguments) as session:
        grants = session.engine.grants(arguments.execution)
        if arguments.json:
            out_json(grants)
            return 0
        if not grants:
            err("nothing was granted")
            return 0
        rows = []
        for grant in grants:
            uses = f"{grant['used']} of {grant['uses']}" if "uses" in grant else str(grant["used"])
            args = ", ".join(f"{name}={value}" for name, value in grant["args"].items())
            holds = f"flow {grant['flow']}" if "flow" in grant else "execution"
            row = [session.short_wait(grant["id"]), grant["tool"], holds, grant["status"], uses]
            rows.append(
                [printable(cell) for cell in (*row, grant.get("until", "-"), grant["by"], args)]
            )
        heads = ["ID", "TOOL", "HOLDS FOR", "STATUS", "USED", "UNTIL", "BY", "ARGUMENTS"]
        for line in table(rows, heads):
            out(when(line))
    return 0
