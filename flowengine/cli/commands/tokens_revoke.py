"""`flowengine tokens revoke`: revoke a token of the server."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from functools import partial
from typing import Any

from flowengine.cli.session import CliSession
from flowengine.cli.terminal.output import err, out_json

HELP = "revoke a token for the API: a running server refuses it from then on"
EXAMPLE = "flowengine tokens revoke ci"


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("name", metavar="NAME", help="name of the token")


def run(arguments: Namespace) -> int:
    """Revoke it.

    Returns:
        The exit code.
    """
    with CliSession(arguments) as session:
        served: Any = session.engine
        revoke = served.revoke_token if session.is_served else partial(_revoked_here, session)
        view = revoke(arguments.name)
    if arguments.json:
        out_json(view)
    elif not arguments.quiet:
        err(f"revoked {arguments.name}")
    return 0


def _revoked_here(session: CliSession, name: str) -> Any:
    """Revoke the token of a server over this store."""
    from flowengine.server.records import ServerRecords, server_folder, token_view

    now = int(time.time() * 1000)
    records = ServerRecords(server_folder(session.engine.store.location))
    try:
        return token_view(records.revoke_token(name, now), now)
    finally:
        records.close()
