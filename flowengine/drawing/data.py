"""A flow and its picture as data for other programs, with the state of an execution."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from flowengine.drawing.picture import Arrow, Box, Frame, Picture, standing
from flowengine.engines.executions.subjects import wholes
from flowengine.printable import printable

if TYPE_CHECKING:
    from networkx import MultiDiGraph

    from flowengine.engines.flows import LoadedFlow
    from flowengine.engines.infos import StepInfo

Statuses = Mapping[str, Iterable[str]]
"""Step id → status of each of its activations."""


def statuses_of(steps: list[StepInfo]) -> Statuses:
    """Return the statuses to count for each step: the items of a map, the rounds of a loop."""
    whole = {one for step in steps for one in wholes(step["address"])}
    counted: dict[str, list[str]] = {}
    for step in sorted(steps, key=lambda step: step["address"] in whole):
        statuses = counted.setdefault(step["step"], [])
        if step["address"] not in whole or step["status"] not in statuses:
            statuses.append(step["status"])
    return dict(counted)


def node_link(flow: LoadedFlow, picture: Picture, statuses: Statuses | None) -> dict[str, Any]:
    """Return the graph in the node-link format of networkx, with the picture."""
    from networkx import node_link_data

    return {**_plain(picture), **node_link_data(_marked(flow, statuses), edges="edges")}


def graphml(flow: LoadedFlow, statuses: Statuses | None) -> str:
    """Return the graph as GraphML, without the characters that are invalid in XML."""
    from networkx import generate_graphml

    graph = _marked(flow, statuses)
    parts = [graph.graph, *graph.nodes.values(), *graph.edges.values()]
    for part in parts:
        part.update({key: printable(text) for key, text in part.items() if isinstance(text, str)})
    return "\n".join(generate_graphml(graph)) + "\n"


def _marked(flow: LoadedFlow, statuses: Statuses | None) -> MultiDiGraph[str]:
    """Return the graph of a flow, with the status of the nodes of an execution's steps."""
    graph = flow.to_networkx()
    steps = {name: data["step"] for name, data in graph.nodes.items() if data["type"] == "step"}
    named = Counter(steps.values())
    for name, step in steps.items():
        if named[step] == 1 or name == step:  # otherwise: a step of another flow with the same id
            status, told = standing(Counter((statuses or {}).get(step, ())))
            if status is not None:
                graph.nodes[name].update(status=status, activations=told)
    return graph


def _plain(picture: Any) -> Any:
    """Return a picture or a part of it as plain data."""
    if isinstance(picture, list):
        return [_plain(part) for part in picture]
    if isinstance(picture, Picture | Frame | Box | Arrow):
        return {name: _plain(part) for name, part in picture._asdict().items()}
    return picture
