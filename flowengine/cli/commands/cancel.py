"""`flowengine cancel`: withdraw executions."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from functools import partial

from flowengine.cli.output import err, out_json
from flowengine.cli.program import show_error
from flowengine.cli.session import Session, as_object
from flowengine.errors import FlowEngineError

HELP = "cancel executions: what runs is stopped, then finally and compensation run"
EXAMPLE = """\
flowengine cancel 01k8xq7m --reason "ordered twice"
flowengine cancel 01k8xq7m 01k8xq9p --now"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "executions", metavar="ID", nargs="+", help="an id, or any unambiguous beginning of one"
    )
    parser.add_argument("--reason", metavar="TEXT", default="", help="why; kept in the history")
    parser.add_argument("--now", action="store_true", help="skip finally and compensation")


def run(arguments: Namespace) -> int:
    """Cancel them.

    Args:
        arguments: Of the command line.

    Returns:
        The exit code: that of the first that could not be cancelled.

    Raises:
        FlowEngineError: The only one could not be.
    """
    code = 0
    objects = []
    with Session(arguments) as session:
        for execution in dict.fromkeys(arguments.executions):
            try:
                result, _ = session.follow(
                    partial(
                        session.engine.cancel,
                        execution,
                        reason=arguments.reason,
                        now=arguments.now,
                    )
                )
            except FlowEngineError as error:
                if len(arguments.executions) == 1:
                    raise
                show_error(error)
                code = code or error.exit_code
                continue
            assert result is not None
            objects.append(as_object(result))
            if not arguments.quiet:
                short = session.short(result.execution)
                held = "asked to be cancelled; the process that holds it does it"
                err(f"{short} {result.status if result.ended else held}")
        if arguments.json:
            out_json(objects[0] if len(arguments.executions) == 1 else objects)
    return code
