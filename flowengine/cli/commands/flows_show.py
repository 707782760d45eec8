"""`flowengine flows show`: a deployed flow, its versions and what starts it."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from flowengine.cli.commands.flows_list import show
from flowengine.cli.session import CliSession
from flowengine.cli.terminal.output import out, out_json
from flowengine.yaml_text import inline

HELP = "show a deployed flow: its versions, what starts it, its inputs and Python modules"
EXAMPLE = """\
flowengine flows show report
flowengine flows show report@1"""
_FACTS = ("flow", "version", "title", "hash", "inputs", "modules")


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("name", metavar="NAME", help="a deployed flow: ID, ID@VERSION or hash")


def run(arguments: Namespace) -> int:
    """Show it.

    Returns:
        The exit code.
    """
    with CliSession(arguments) as session:
        engine = session.engine
        facts = _facts(session, arguments.name)
        versions = engine.deployed(facts["flow"])
        if arguments.json:
            out_json({**facts, "starts": engine.starts(facts["flow"]), "versions": versions})
            return 0
        for name in ("title", "hash", "inputs", "modules"):
            if fact := facts[name]:
                out(f"{name:8}  {fact if isinstance(fact, str) else inline(fact)}")
        return show(session, versions)


def _facts(session: CliSession, name: str) -> dict[str, Any]:
    """Return the flow, its inputs and what it imports."""
    if session.is_served:
        client: Any = session.engine
        item = client.flow(name)
        return {fact: item[fact] for fact in _FACTS}
    flow = session.engine.deployed_flow(name)
    title = flow.compiled.get("title", "")
    parts = (flow.id, flow.version, title, flow.form, flow.inputs, flow.modules)
    return dict(zip(_FACTS, parts, strict=True))
