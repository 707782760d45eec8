"""A flow and its picture as data for other programs, with the state of an execution."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine.drawing.picture import Arrow, Box, Picture, ScopeFrame, Statuses, draw, standing
from flowengine.engines.flows import LoadedFlow
from flowengine.engines.folds import Folds
from flowengine.engines.infos import StepInfo
from flowengine.sdk.texts.visible_text import printable

if TYPE_CHECKING:
    from networkx import MultiDiGraph


def statuses_of(steps: list[StepInfo]) -> Statuses:
    """Return the statuses to count for each step: the items of a map, the rounds of a loop."""
    return Folds.of(steps).statuses()


class Drawn(NamedTuple):
    """A flow, to be drawn or to be written as data."""

    picture: Picture
    graph: Callable[[], MultiDiGraph[str]]
    """Returns its graph. Pictures do not need it."""


def drawn(flow: LoadedFlow, statuses: Statuses | None = None) -> Drawn:
    """Return a flow, with the state of an execution if it is given."""
    picture = draw(flow.compiled, statuses)
    return Drawn(picture, partial(_marked, flow, statuses))


def node_link(flow: Drawn) -> dict[str, Any]:
    """Return the graph in the node-link format of networkx, with the picture."""
    from networkx import node_link_data

    return {**_plain(flow.picture), **node_link_data(flow.graph(), edges="edges")}


def read_node_link(data: Any) -> Drawn:
    """Return a flow from the data that `node_link` made elsewhere.

    Args:
        data: Not trusted.

    Raises:
        ValueError: It is something else, or a name in it could be more than text in a drawing. The
            same when its graph is made.
    """
    from pydantic import TypeAdapter

    if not isinstance(data, dict):
        raise ValueError("it is not a map")
    parts = {name: data.get(name) for name in Picture._fields}
    picture = TypeAdapter(Picture).validate_python(parts)
    _check(picture.frame)
    return Drawn(picture, partial(_read_graph, data))


def _read_graph(data: dict[str, Any]) -> MultiDiGraph[str]:
    from networkx import MultiDiGraph, NetworkXError, node_link_graph

    try:
        graph: Any = node_link_graph(data, directed=True, multigraph=True, edges="edges")
    except (LookupError, TypeError, AttributeError, NetworkXError) as error:
        raise ValueError(f"it is not a graph: {error}") from None
    if not isinstance(graph, MultiDiGraph):
        raise ValueError("its edges have no direction")
    parts = [graph.graph, *graph.nodes.values(), *graph.edges.values()]
    if not all(isinstance(item, str | int | float) for part in parts for item in part.values()):
        raise ValueError("a node or an edge has an attribute that is not a text, number or boolean")
    return graph


def _check(frame: ScopeFrame) -> None:
    """Check the names in a frame, which drawings contain unescaped.

    Raises:
        ValueError: A name is not one that `draw` gives, or an arrow has no box.
    """
    ids = {box.id for box in frame.boxes}
    for box in frame.boxes:
        names = f"{box.id}{box.status or ''}"
        is_part = box.shape == "finally" and box.frame is None
        if re.fullmatch("[A-Za-z0-9_]+", names) is None or is_part:
            raise ValueError(f"{box.id!r} is not a box")
        if box.frame is not None:
            _check(box.frame)
    for arrow in frame.arrows:
        if not {arrow.source, arrow.target} <= ids:
            raise ValueError(f"{arrow.source!r} to {arrow.target!r} is not an arrow")


def graphml(flow: Drawn) -> str:
    """Return the graph as GraphML, without the characters that are invalid in XML."""
    from networkx import generate_graphml

    graph = flow.graph()
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
            status, count = standing(Counter((statuses or {}).get(step, {})))
            if status is not None:
                graph.nodes[name].update(status=status, activations=count)
    return graph


def _plain(picture: Any) -> Any:
    """Return a picture or a part of it as plain data."""
    if isinstance(picture, list):
        return [_plain(part) for part in picture]
    if isinstance(picture, Picture | ScopeFrame | Box | Arrow):
        return {name: _plain(part) for name, part in picture._asdict().items()}
    return picture
