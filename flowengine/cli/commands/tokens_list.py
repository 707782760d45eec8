"""`flowengine tokens list`: the tokens of the server."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from typing import Any

from flowengine.cli.session import CliSession
from flowengine.cli.terminal.output import err, out, out_json, table, when
from flowengine.sdk.visible_text import printable

HELP = "list the tokens for the API, without their secrets"
EXAMPLE = "flowengine tokens list"


def configure(parser: ArgumentParser) -> None:
    """Add no arguments."""


def run(arguments: Namespace) -> int:
    """List them.

    Returns:
        The exit code.
    """
    with CliSession(arguments) as session:
        served: Any = session.engine
        views: list[Any] = served.tokens() if session.is_served else _tokens_here(session)
    if arguments.json:
        out_json(views)
        return 0
    if not views:
        err("there are no tokens: flowengine tokens create NAME")
        return 0
    rows = [
        [
            printable(view["name"]),
            printable(view["user"]),
            view["status"],
            view.get("role", "-"),
            printable(" ".join(view["flows"])),
            when(view.get("expires_at", "-")),
            when(view.get("used_at", "-")),
        ]
        for view in views
    ]
    for line in table(rows, ["NAME", "USER", "STATUS", "ROLE", "FLOWS", "EXPIRES", "LAST USED"]):
        out(line)
    return 0


def _tokens_here(session: CliSession) -> list[Any]:
    """Return the tokens of a server over this store."""
    from flowengine.server.records import ServerRecords, server_folder, token_view

    now = int(time.time() * 1000)
    records = ServerRecords(server_folder(session.engine.store.location))
    try:
        return [token_view(token, now) for token in records.tokens()]
    finally:
        records.close()
