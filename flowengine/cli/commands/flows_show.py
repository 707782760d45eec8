"""`flowengine flows show`: a deployed flow, its versions and what starts it."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from flowengine.cli.commands.flows_list import show
from flowengine.cli.session import Session
from flowengine.cli.terminal.output import clean, out, out_json
from flowengine.yaml_text import inline

HELP = "show a deployed flow: its versions, what starts it, its inputs and Python modules"
EXAMPLE = """\
flowengine flows show report
flowengine flows show report@1"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("name", metavar="NAME", help="a deployed flow: ID, ID@VERSION or hash")


def run(arguments: Namespace) -> int:
    """Show it.

    Returns:
        The exit code.
    """
    with Session(arguments) as session:
        engine = session.engine
        flow = engine.deployed_flow(arguments.name)
        versions = engine.deployed(flow.id)
        facts: dict[str, Any] = {
            "title": flow.compiled.get("title", ""),
            "hash": flow.form,
            "inputs": flow.inputs,
            "modules": flow.modules,
        }
        if arguments.json:
            starts = engine.starts(flow.id)
            out_json({"flow": flow.id, "version": flow.version, **facts, "starts": starts,
                      "versions": versions})  # fmt: skip
            return 0
        for name, fact in facts.items():
            if fact:
                out(clean(f"{name:8}  {fact if isinstance(fact, str) else inline(fact)}"))
        return show(session, versions)
