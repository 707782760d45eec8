"""What the checker's graph work costs with its own functions, and with networkx."""

from __future__ import annotations

import random
import time

import networkx

from flowengine.kernel.graph import linked

Graph = list[list[int]]


def tangled(steps: int) -> Graph:
    """Return a graph as flows have it: mostly forward, two ways out of a step, some back."""
    draw = random.Random(1)
    graph: Graph = []
    for step in range(steps):
        far = draw.randrange(steps) if step % 9 == 0 else min(step + 3, steps - 1)
        graph.append(sorted({min(step + 1, steps - 1), far}))
    return graph


def components(graph: Graph) -> tuple[float, float]:
    """Return the seconds for the strongly connected components: own, and networkx's."""
    began = time.process_time()
    own = linked.components(graph)
    middle = time.process_time()
    theirs = list(networkx.strongly_connected_components(_theirs(graph)))
    end = time.process_time()
    assert {frozenset(one) for one in own} == {frozenset(one) for one in theirs}
    return middle - began, end - middle


def reach(graph: Graph) -> tuple[float, float]:
    """Return the seconds for what each node leads to: own, and networkx's."""
    began = time.process_time()
    own = linked.reach(graph)
    middle = time.process_time()
    theirs = _reach(graph)
    end = time.process_time()
    assert own == theirs
    return middle - began, end - middle


def _reach(graph: Graph) -> list[int]:
    """Collect what is ahead along the condensation; its own closure would be slower by far."""
    parts = networkx.condensation(_theirs(graph))
    ahead: dict[int, int] = {}
    own: dict[int, int] = {}
    for part in reversed(list(networkx.topological_sort(parts))):
        members = parts.nodes[part]["members"]
        own[part] = sum(1 << node for node in members)
        ahead[part] = 0
        for other in parts.successors(part):
            ahead[part] |= ahead[other] | own[other]
        if len(members) > 1 or any(node in graph[node] for node in members):
            ahead[part] |= own[part]
    return [ahead[parts.graph["mapping"][node]] for node in range(len(graph))]


def _theirs(graph: Graph) -> networkx.DiGraph[int]:
    made: networkx.DiGraph[int] = networkx.DiGraph()
    made.add_nodes_from(range(len(graph)))
    made.add_edges_from((node, ahead) for node, to in enumerate(graph) for ahead in to)
    return made
