"""`flowengine graph`: the compiled graph as a picture, or as data."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from os.path import isfile
from typing import TYPE_CHECKING, Any

from flowengine.cli.drawing.picture import Arrow, Box, Frame, Picture, draw, standing
from flowengine.cli.session import Session
from flowengine.cli.terminal.output import as_json, clean, print_or_write
from flowengine.engines.executions.subjects import wholes
from flowengine.errors import NotFound
from flowengine.journal.shapes import Sound

if TYPE_CHECKING:
    from networkx import MultiDiGraph

    from flowengine.engines.flows import LoadedFlow
    from flowengine.engines.infos import StepInfo

Statuses = Mapping[str, Iterable[str]]
"""Step id → status of each of its activations."""
DATA = ("graphml", "json")

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
        text = _data(flow, picture, statuses, format) if format in DATA else _drawn(picture, format)
    return print_or_write(text, arguments.output, quiet=arguments.quiet)


def _data(flow: LoadedFlow, picture: Picture, statuses: Statuses | None, format: str) -> str:
    """Return the graph for other programs. JSON includes the picture."""
    graph = flow.to_networkx()
    _mark(graph, statuses or {})
    if format == "graphml":
        return _graphml(graph)
    from networkx import node_link_data

    return as_json({**_plain(picture), **node_link_data(graph, edges="edges")}) + "\n"


def _mark(graph: MultiDiGraph[str], statuses: Statuses) -> None:
    """Set the status of the nodes of an execution's steps."""
    steps = {name: data["step"] for name, data in graph.nodes.items() if data["type"] == "step"}
    named = Counter(steps.values())
    for name, step in steps.items():
        if named[step] == 1 or name == step:  # otherwise: a step of another flow with the same id
            status, told = standing(Counter(statuses.get(step, ())))
            if status is not None:
                graph.nodes[name].update(status=status, activations=told)


def _graphml(graph: MultiDiGraph[str]) -> str:
    """Return the graph as GraphML, without the characters that are invalid in XML."""
    from networkx import generate_graphml

    parts = [graph.graph, *graph.nodes.values(), *graph.edges.values()]
    for part in parts:
        part.update({key: clean(text) for key, text in part.items() if isinstance(text, str)})
    return "\n".join(generate_graphml(graph)) + "\n"


def _plain(picture: Any) -> Any:
    """Return a picture or a part of it as plain data."""
    if isinstance(picture, list):
        return [_plain(part) for part in picture]
    if isinstance(picture, Picture | Frame | Box | Arrow):
        return {name: _plain(part) for name, part in picture._asdict().items()}
    return picture


def _drawn(picture: Picture, format: str) -> str:
    if format == "mermaid":
        from flowengine.cli.drawing.mermaid import mermaid

        return mermaid(picture)
    if format == "dot":
        from flowengine.cli.drawing.dot import dot

        return dot(picture)
    from flowengine.cli.drawing.svg import svg

    return svg(picture)


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
            return session.flow_of(found["execution"]), _statuses(found["steps"])
    except NotFound as error:
        raise NotFound(f"there is no file {what}, and {error.message}", hint=error.hint) from None


def _statuses(steps: list[StepInfo]) -> Statuses:
    """Return the statuses to count for each step: the items of a map, the rounds of a loop."""
    whole = {one for step in steps for one in wholes(step["address"])}
    counted: dict[str, list[str]] = {}
    for step in sorted(steps, key=lambda step: step["address"] in whole):
        statuses = counted.setdefault(step["step"], [])
        if step["address"] not in whole or step["status"] not in statuses:
            statuses.append(step["status"])
    return dict(counted)
