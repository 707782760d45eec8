"""`flowengine migrate`: move waiting executions to another store."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from flowengine.cli.session import CliSession
from flowengine.cli.terminal.errors import show_error
from flowengine.cli.terminal.output import err, out_json
from flowengine.errors import FlowEngineError, UsageError

HELP = "move waiting executions to another store, such as one in Temporal"
EXAMPLE = """\
flowengine migrate --to temporal://127.0.0.1:7233/default 01k8xq7mf4jb
flowengine --store temporal://127.0.0.1:7233/default migrate --to other-store --all"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "executions", metavar="ID", nargs="*", help="an id, or any unambiguous prefix of one"
    )
    parser.add_argument(
        "--to",
        metavar="STORE",
        required=True,
        help="the other store: a directory, or temporal://HOST:PORT/NAMESPACE",
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="move all executions that wait or are stalled, and finish interrupted moves",
    )


def run(arguments: Namespace) -> int:
    """Move them.

    Returns:
        The exit code: that of the first execution that could not be moved.

    Raises:
        FlowEngineError: There was only one, and it could not be moved.
        UsageError: No execution was named.
    """
    if bool(arguments.executions) == arguments.all:
        raise UsageError("name the executions to move, or all of them with --all")
    code, moved = 0, []
    with CliSession(arguments) as session:
        executions = arguments.executions
        if arguments.all:
            executions = [*session.engine.interrupted_moves(to=arguments.to), *_resting(session)]
        for execution in dict.fromkeys(executions):
            try:
                id = session.engine.migrate(execution, to=arguments.to)
            except FlowEngineError as error:
                if len(executions) == 1:
                    raise
                show_error(error)
                code = code or error.exit_code
                continue
            moved.append(id)
            if not arguments.quiet:
                err(f"{id} is in {arguments.to} now")
    if arguments.json:
        out_json(moved)
    return code


def _resting(session: CliSession) -> list[str]:
    """Return the ids of all executions that wait or are stalled."""
    ids: list[str] = []
    for status in ("waiting", "stalled"):
        after: str | None = None
        while True:
            page = session.engine.executions(status=status, after=after, limit=200)
            ids += [item["execution"] for item in page.items]
            after = page.next
            if after is None:
                break
    return ids
