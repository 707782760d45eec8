"""`flowengine mcp`: deployed flows as tools of an MCP server, by standard input and output."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from io import TextIOWrapper

from flowengine.cli.session import CliSession
from flowengine.cli.terminal.result_stream import results
from flowengine.errors import UsageError

HELP = "offer deployed flows as tools of an MCP server, over standard input and output"
EXAMPLE = """\
flowengine deploy expense.yaml && flowengine mcp
flowengine mcp --store /srv/expense/.flowengine"""


def configure(parser: ArgumentParser) -> None:
    """Add no arguments."""


def run(arguments: Namespace) -> int:
    """Serve until standard input ends.

    Returns:
        The exit code.

    Raises:
        UsageError: Packages of the extras `mcp` and `serve` are missing.
    """
    try:
        from flowengine.server.mcp.stdio import serve_stdio
    except ModuleNotFoundError as error:
        raise UsageError(
            f"'flowengine mcp' needs the package {error.name}",
            hint="pip install 'flowengine[mcp,serve]'",
        ) from None
    output = results()
    if isinstance(output, TextIOWrapper):
        output.reconfigure(encoding="utf-8")  # whatever the locale says
    with CliSession(arguments) as session:
        serve_stdio(
            session.engine,
            output,
            lambda id: session.command("show", id),
            lambda id: session.command("approvals", "show", id),
        )
    return 0
