"""`flowengine grants list`: which later calls of an execution are approved already."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from flowengine.cli.session import Session
from flowengine.cli.terminal.output import clean, err, out, out_json, table, when

HELP = "list what was granted to an execution, with how often it was used"
EXAMPLE = "flowengine grants list 01k8xq3zn3m0"


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("execution", metavar="ID", help="the execution")


def run(arguments: Namespace) -> int:
    """List them.

    Returns:
        The exit code.
    """
    with Session(arguments) as session:
        found = session.engine.grants(arguments.execution)
        if arguments.json:
            out_json(found)
            return 0
        if not found:
            err("nothing was granted")
            return 0
        rows = []
        for grant in found:
            uses = f"{grant['used']} of {grant['uses']}" if "uses" in grant else str(grant["used"])
            args = ", ".join(f"{name}={value}" for name, value in grant["args"].items())
            row = [session.short_wait(grant["id"]), grant["tool"], grant["status"], uses]
            rows.append([clean(one) for one in (*row, grant.get("until", "-"), grant["by"], args)])
        for line in table(rows, ["ID", "TOOL", "STATUS", "USED", "UNTIL", "BY", "ARGUMENTS"]):
            out(when(line))
    return 0
