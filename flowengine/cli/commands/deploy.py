"""`flowengine deploy`: keep flows in the store, to be started by name, signals and schedules."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from flowengine.cli.commands.flows_list import show
from flowengine.cli.commands.run import load, tell_host_steps
from flowengine.cli.session import Session
from flowengine.cli.terminal.output import clean, err, out_json

HELP = "keep flows in the store, to be started by name, signals and schedules"
EXAMPLE = """\
flowengine deploy report.yaml
flowengine deploy report.yaml order.yaml && flowengine worker"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "files", metavar="FILE", nargs="+", help="a flow, which becomes its current version"
    )


def run(arguments: Namespace) -> int:
    """Deploy them, once all of them have proved valid, and show what starts them.

    Returns:
        The exit code.
    """
    with Session(arguments, make=arguments.files[0]) as session:
        flows = [load(session, file) for file in arguments.files]
        deployed = []
        for flow in flows:
            tell_host_steps(session, flow)
            if flow.modules and not arguments.quiet:
                names = ", ".join(flow.modules)
                err(clean(f"{flow.id} imports from this host, not from the store: {names}"))
            deployed.append(session.engine.deploy(flow))
        if arguments.json:
            out_json(deployed)
            return 0
        return show(session, deployed)
