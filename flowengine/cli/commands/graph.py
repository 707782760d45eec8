"""`flowengine graph`: the compiled graph as a picture, or as data."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from contextlib import nullcontext
from os.path import isfile
from typing import TYPE_CHECKING

from flowengine.cli.session import Session
from flowengine.cli.terminal.output import as_json, print_or_write
from flowengine.drawing.data import Statuses, graphml, node_link, statuses_of
from flowengine.drawing.picture import Picture, draw
from flowengine.errors import NotFound
from flowengine.journal.shapes import Sound

if TYPE_CHECKING:
    from flowengine.engines.flows import LoadedFlow

HELP = "draw the compiled graph of a file, or of an execution with its state"
EXAMPLE = """\
flowengine graph expense.yaml
flowengine graph 01k8xq7mf4jb --format svg -o expense.svg
flowengine graph expense.yaml --format dot | dot -Tpng > expense.png
flowengine graph expense.yaml --format graphml -o expense.graphml"""


def configure(parser: ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("what", metavar="FILE|ID", help="a flow file, or an execution")
    parser.add_argument(
        "--format",
        choices=["mermaid", "dot", "svg", "graphml", "json"],
        default="mermaid",
        help="as a picture: mermaid (default), dot, svg, or as data: graphml, json",
    )
    parser.add_argument(
        "--plumbing",
        action="store_true",
        help="include the plumbing: steps that only connect the parts of a generated flow",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write to this file")


def run(arguments: Namespace) -> int:
    """Draw it.

    Returns:
        The exit code.
    """
    flow, statuses = _found(arguments)
    format = "json" if arguments.json else arguments.format
    with nullcontext() if statuses is None else Sound(f"flow {flow.form}"):
        picture = draw(flow.compiled, statuses, plumbing=arguments.plumbing)
        if format == "json":
            text = as_json(node_link(flow, picture, statuses)) + "\n"
        elif format == "graphml":
            text = graphml(flow, statuses)
        else:
            text = _drawn(picture, format)
    return print_or_write(text, arguments.output, quiet=arguments.quiet)


def _drawn(picture: Picture, format: str) -> str:
    if format == "mermaid":
        from flowengine.drawing.mermaid import mermaid

        return mermaid(picture)
    if format == "dot":
        from flowengine.drawing.dot import dot

        return dot(picture)
    from flowengine.drawing.svg import svg

    return svg(picture).text


def _found(arguments: Namespace) -> tuple[LoadedFlow, Statuses | None]:
    """Return the flow of a file, or that of an execution with the statuses of its steps.

    Raises:
        NotFound: Such a file or execution does not exist.
    """
    what = arguments.what
    if isfile(what):
        from flowengine.engines.flows import load

        return load(what), None
    try:
        with Session(arguments) as session:
            found = session.engine.show(session.engine.find(what))
            return session.flow_of(found["execution"]), statuses_of(found["steps"])
    except NotFound as error:
        raise NotFound(f"there is no file {what}, and {error.message}", hint=error.hint) from None
