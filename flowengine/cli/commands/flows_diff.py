"""`flowengine flows diff`: how two versions of a flow differ."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from difflib import unified_diff
from typing import TYPE_CHECKING

from flowengine.cli.commands.run import load
from flowengine.cli.session import Session
from flowengine.cli.terminal.output import clean, out, out_json

if TYPE_CHECKING:
    from flowengine.engines.flows import LoadedFlow

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
    with Session(arguments) as session:
        one, other = (load(session, name) for name in names)
        lines = list(_lines(names, one, other))
    if arguments.json:
        out_json({"same": not lines, "hashes": [one.form, other.form], "lines": lines})
    else:
        for line in lines:
            out(clean(line))
    return DIFFER if lines else SAME


def _lines(names: tuple[str, str], one: LoadedFlow, other: LoadedFlow) -> Iterator[str]:
    """Yield the differing lines of the definitions, with those around them."""
    from flowengine.flow.export.definition import definition

    before, after = (definition(flow.compiled).splitlines() for flow in (one, other))
    return unified_diff(before, after, names[0], names[1], lineterm="")
