"""Reachability in a directed graph, as sets of bits."""

from __future__ import annotations

from collections.abc import Sequence


def components(graph: list[list[int]]) -> list[list[int]]:
    """Return the strongly connected components in reverse topological order.

    Args:
        graph: Successors by node.

    Returns:
        Components. Every edge between two components leads from a later one to an earlier one.
    """
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    result: list[list[int]] = []
    for root in range(len(graph)):
        if root in index:
            continue
        work = [(root, iter(graph[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, rest = work[-1]
            ahead = next(rest, None)
            if ahead is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    result.append(_pop_component(stack, on_stack, node))
            elif ahead not in index:
                index[ahead] = low[ahead] = len(index)
                stack.append(ahead)
                on_stack.add(ahead)
                work.append((ahead, iter(graph[ahead])))
            elif ahead in on_stack:
                low[node] = min(low[node], index[ahead])
    return result


def _pop_component(stack: list[int], on_stack: set[int], root: int) -> list[int]:
    """Remove a finished component from the stack."""
    component = []
    while True:
        node = stack.pop()
        on_stack.discard(node)
        component.append(node)
        if node == root:
            return component


def reach(graph: list[list[int]], marks: Sequence[int] = ()) -> list[int]:
    """Return, for each node, the set of nodes that one or more edges lead to, as bits.

    Args:
        graph: Successors by node.
        marks: The bit of each node, or 0 for nodes to ignore. Default: bit number n for node n.

    Returns:
        Bit sets by node.
    """
    own = marks or [1 << node for node in range(len(graph))]
    bits = [0] * len(graph)
    for component in components(graph):
        union = 0
        for node in component:
            for ahead in graph[node]:
                union |= bits[ahead] | own[ahead]
        if len(component) > 1:
            for node in component:
                union |= own[node]
        for node in component:
            bits[node] = union
    return bits
