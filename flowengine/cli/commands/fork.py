"""`flowengine fork`: a new execution from a point of an old one."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from flowengine.cli.commands.run import add_driving, load
from flowengine.cli.driving.drive import drive
from flowengine.cli.parsing import arguments as read
from flowengine.cli.session import CliSession

HELP = "start a new execution from the point where a step of an old one started"
EXAMPLE = """\
flowengine fork 01k8xq7mf4jb --from-step review
flowengine fork 01k8xq7mf4jb --from-step review --set level=2 --file changed.yaml"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("execution", metavar="ID", help="the old execution, which is not changed")
    parser.add_argument("--from-step", metavar="ADDRESS", required=True, help="address of the step")
    read.add_assignments(parser, "--set", "write state before the step starts (may be repeated)")
    parser.add_argument("--file", metavar="FILE", help="continue with a changed flow file")
    parser.add_argument("--id", metavar="ID", help="id of the new execution")
    read.add_assignments(parser, "--label", "a label for lists (may be repeated)")
    read.add_workdir(parser)
    add_driving(parser)


def run(arguments: Namespace) -> int:
    """Fork it.

    Returns:
        The exit code.
    """
    with CliSession(arguments) as session:
        engine = session.engine
        changed = None if arguments.file is None else load(session, arguments.file)
        declared: dict[str, Any] = {}
        if not session.is_served:
            flow = changed or session.flow_of(engine.find(arguments.execution))
            declared = flow.compiled.get("state", {})
        schemas = {name: state.get("schema", {}) for name, state in declared.items()}
        values = read.assigned(schemas, arguments.set, "state")
        return drive(
            session,
            lambda: engine.fork(
                arguments.execution,
                from_step=arguments.from_step,
                set=values,
                flow=changed,
                id=arguments.id,
                labels=dict(arguments.label),
            ),
            ask=not arguments.no_interactive,
        )
