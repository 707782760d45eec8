"""Components and reachability, compared with networkx."""

from __future__ import annotations

import networkx
from hypothesis import given
from hypothesis import strategies as st

from flowengine.kernel.graph.linked import components, reach
from tests.sliced_examples import sliced


@st.composite
def graphs(draw: st.DrawFn) -> list[list[int]]:
    size = draw(st.integers(0, 12))
    ahead = st.lists(st.integers(0, size - 1), max_size=4, unique=True)
    return [draw(ahead) for _ in range(size)]


def as_networkx(graph: list[list[int]]) -> networkx.DiGraph[int]:
    made: networkx.DiGraph[int] = networkx.DiGraph()
    made.add_nodes_from(range(len(graph)))
    made.add_edges_from((node, ahead) for node, to in enumerate(graph) for ahead in to)
    return made


@sliced(examples=20)
@given(graphs())
def test_components_are_those_of_networkx_and_edges_lead_to_earlier_ones(
    graph: list[list[int]],
) -> None:
    found = components(graph)

    known = networkx.strongly_connected_components(as_networkx(graph))
    assert {frozenset(one) for one in found} == {frozenset(one) for one in known}
    of = {node: number for number, one in enumerate(found) for node in one}
    assert all(of[ahead] <= of[node] for node, to in enumerate(graph) for ahead in to)


@sliced(examples=20)
@given(graphs())
def test_what_one_or_more_edges_lead_to(graph: list[list[int]]) -> None:
    whole = networkx.transitive_closure(as_networkx(graph), reflexive=False)

    assert reach(graph) == [sum(1 << ahead for ahead in whole[node]) for node in range(len(graph))]


@given(graphs())
def test_only_what_is_asked_for_is_marked(graph: list[list[int]]) -> None:
    marks = [1 << node if node % 3 == 0 else 0 for node in range(len(graph))]

    assert reach(graph, marks) == [bits & sum(marks) for bits in reach(graph)]
