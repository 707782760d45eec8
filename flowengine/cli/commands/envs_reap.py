"""`flowengine envs reap`: end all environments that dead processes left open."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from flowengine.cli.session import CliSession
from flowengine.cli.terminal.output import err, out, out_json
from flowengine.engines.inspection.open_environments import failures

HELP = "end all environments that dead processes left open"
EXAMPLE = "flowengine envs reap"


def configure(parser: ArgumentParser) -> None:
    """Add no arguments."""


def run(arguments: Namespace) -> int:
    """End it.

    Returns:
        The exit code.
    """
    with CliSession(arguments) as session, failures():
        found = session.engine.environments.reap()
    failed = any("error" in one for one in found)
    if arguments.json:
        out_json(found)
        return 1 if failed else 0
    for one in found:
        name = one.get("resource_key")
        which = f"{name} ({one['id']})" if name else one.get("id") or one.get("path")
        if "error" in one:
            err(f"{one['what']} {which} could not be ended: {one['error']}")
        else:
            done = "set aside" if one["what"] == "damaged entry" else "ended"
            out(f"{done} {one['what']} {which}")
    if not found:
        err("nothing was left open")
    return 1 if failed else 0
