"""`flowengine flows diff`: how two versions of a flow differ."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from difflib import unified_diff
from typing import Any, NamedTuple

from flowengine.cli.commands.run import load
from flowengine.cli.parsing.arguments import is_deployed
from flowengine.cli.session import CliSession
from flowengine.cli.terminal.output import out, out_json
from flowengine.engines.flows import load as load_here

HELP = "compare the definitions of two deployed versions or files"
EXAMPLE = """\
flowengine flows diff report@1 report@2
flowengine flows diff report report.yaml"""
SAME, DIFFER = 0, 1


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.epilog = f"exit code: {SAME} if they are the same, {DIFFER} if not\n\n{parser.epilog}"
    parser.add_argument("flow", metavar="FLOW", help="a deployed flow, ID or ID@VERSION, or a file")
    parser.add_argument("other", metavar="OTHER", help="the one to compare it with")


def run(arguments: Namespace) -> int:
    """Compare them.

    Returns:
        The exit code: 0 if they are the same, 1 if not.
    """
    names = arguments.flow, arguments.other
    with CliSession(arguments) as session:
        one, other = (_defined(session, name) for name in names)
    before, after = (definition.text.splitlines() for definition in (one, other))
    lines = list(unified_diff(before, after, *names, lineterm=""))
    if arguments.json:
        out_json({"same": not lines, "hashes": [one.hash, other.hash], "lines": lines})
    else:
        for line in lines:
            out(line)
    return DIFFER if lines else SAME


class _Defined(NamedTuple):
    """A flow as text."""

    text: str
    hash: str


def _defined(session: CliSession, name: str) -> _Defined:
    """Return a deployed flow, which a server may have, or that of a file."""
    if session.is_served and is_deployed(name):
        client: Any = session.engine
        found = client.definition(name)
        return _Defined(found["definition"], found["hash"])
    from flowengine.flow.export.definition import definition

    flow = load_here(name) if session.is_served else load(session, name)
    return _Defined(definition(flow.compiled), flow.form)
