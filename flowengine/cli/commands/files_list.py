"""`flowengine files list`: the files that an execution keeps."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from flowengine.cli.session import NEWEST, CliSession
from flowengine.cli.terminal.output import err, out, out_json, table
from flowengine.cli.views.kept_files import SHORTEST, kept_files
from flowengine.sdk.visible_text import printable

HELP = "list the files (artifacts) that an execution keeps, and the steps that they are from"
EXAMPLE = "flowengine files list 01k8xq7mf4jb"


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("execution", metavar="ID", nargs="?", help=NEWEST)


def run(arguments: Namespace) -> int:
    """List them.

    Returns:
        The exit code.
    """
    with CliSession(arguments) as session:
        execution = session.execution(arguments.execution)
        files = kept_files(session, execution)
        if arguments.json:
            out_json([file._asdict() for file in files])
            return 0
        if not files:
            err(f"execution {session.short(execution)} keeps no files")
            return 0
        rows = [[file.name, str(file.size), file.sha256[:SHORTEST], file.where] for file in files]
        cells = [[printable(cell) for cell in row] for row in rows]
        for line in table(cells, ["NAME", "BYTES", "SHA-256", "FROM"]):
            out(line)
        command = session.command("files", "save", session.short(execution))
        err(f"to save them in the current directory: {command}")
    return 0
