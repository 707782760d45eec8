"""`flowengine deploy`: keep flows in the store, to be started by name, signals and schedules."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from flowengine.cli.commands import upgrade
from flowengine.cli.commands.flows_list import show
from flowengine.cli.commands.run import load, tell_host_steps
from flowengine.cli.session import Session
from flowengine.cli.terminal.output import clean, err, out_json

HELP = "keep flows in the store, to be started by name, signals and schedules"
EXAMPLE = """\
flowengine deploy report.yaml
flowengine deploy report.yaml order.yaml && flowengine worker
flowengine deploy --upgrade report.yaml
flowengine deploy report@1"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "flows",
        metavar="FLOW",
        nargs="+",
        help="a flow file, which becomes the current version, or ID@VERSION to return to one",
    )
    parser.add_argument(
        "--upgrade",
        action="store_true",
        help="then move open executions of other versions, as 'flowengine upgrade' does",
    )


def run(arguments: Namespace) -> int:
    """Deploy them, once all of them have proved valid, and show what starts them.

    Returns:
        The exit code: 0 if all executions that `--upgrade` looked at can be moved.
    """
    with Session(arguments, make=arguments.flows[0]) as session:
        flows = [load(session, flow) for flow in arguments.flows]
        deployed, moved = [], []
        for flow in flows:
            tell_host_steps(session, flow)
            if flow.modules and not arguments.quiet:
                names = ", ".join(flow.modules)
                err(clean(f"{flow.id} imports from this host, not from the store: {names}"))
            deployed.append(session.engine.deploy(flow))
            if arguments.upgrade:
                moved += session.engine.upgrade(flow)
        if arguments.json:
            out_json({"deployed": deployed, "upgraded": moved} if arguments.upgrade else deployed)
        else:
            show(session, deployed)
            if arguments.upgrade:
                upgrade.show(session, moved, check=False)
        return upgrade.exit_code(moved)
