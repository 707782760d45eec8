"""`flowengine deploy`: keep flows in the store, to be started by name, signals and schedules."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from flowengine.cli.commands import upgrade
from flowengine.cli.commands.flows_list import show
from flowengine.cli.commands.run import load, tell_host_steps
from flowengine.cli.session import CliSession
from flowengine.cli.terminal.output import err, out_json

if TYPE_CHECKING:
    from flowengine.engines.infos import DeployedInfo, UpgradeInfo

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
    with CliSession(arguments, make=arguments.flows[0]) as session:
        if session.is_served:
            return _deploy_there(session, arguments)
        flows = [load(session, flow) for flow in arguments.flows]
        deployed, moved = [], []
        for flow in flows:
            tell_host_steps(session, flow)
            if flow.modules and not arguments.quiet:
                names = ", ".join(flow.modules)
                err(f"{flow.id} imports from this host, not from the store: {names}")
            deployed.append(session.engine.deploy(flow))
            if arguments.upgrade:
                moved += session.engine.upgrade(flow)
        return _report(session, deployed, moved)


def _deploy_there(session: CliSession, arguments: Namespace) -> int:
    """Deploy them through a server, as far as its host allows that."""
    deployed, moved = [], []
    for flow in arguments.flows:
        deployed.append(session.engine.deploy(flow))
        if arguments.upgrade:
            moved += session.engine.upgrade(deployed[-1]["hash"])
    return _report(session, deployed, moved)


def _report(session: CliSession, deployed: list[DeployedInfo], moved: list[UpgradeInfo]) -> int:
    """Print what was deployed, and what was moved.

    Returns:
        The exit code.
    """
    arguments = session.arguments
    if arguments.json:
        out_json({"deployed": deployed, "upgraded": moved} if arguments.upgrade else deployed)
    else:
        show(session, deployed)
        if arguments.upgrade:
            upgrade.show(session, moved, check=False)
    return upgrade.exit_code(moved)
