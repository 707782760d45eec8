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
        reaped = session.engine.environments.reap()
    failed = any("error" in outcome for outcome in reaped)
    if arguments.json:
        out_json(reaped)
        return 1 if failed else 0
    for outcome in reaped:
        name = outcome.get("resource_key")
        which = f"{name} ({outcome['id']})" if name else outcome.get("id") or outcome.get("path")
        if "error" in outcome:
            err(f"{outcome['what']} {which} could not be ended: {outcome['error']}")
        else:
            done = "set aside" if outcome["what"] == "damaged entry" else "ended"
            out(f"{done} {outcome['what']} {which}")
    if not reaped:
        err("nothing was left open")
    return 1 if failed else 0
