"""Strategies for Hypothesis: random flows and schedules that shrink to small ones.

Hypothesis is not installed with flowengine, so import this module only in tests that have it.

    @given(flows(), schedules())
    def test_mine(flow, schedule):
        ...
"""

from __future__ import annotations

import random
from typing import Any

from hypothesis import strategies as st

from flowengine.kernel import Graph
from tests.testing.random_flows import Author
from tests.testing.random_graphs import random_graph
from tests.testing.random_tangles import tangled_flow


def graphs() -> st.SearchStrategy[Graph]:
    """Return random graphs for the kernel, including those that no file can express."""
    return _randoms().map(random_graph)


def flows(*, wild: bool = False) -> st.SearchStrategy[dict[str, Any]]:
    """Return random flow files, as data, many of which the checker accepts.

    Args:
        wild: With races: counting joins, timeouts, cancelling, errors without handlers.
    """
    return _randoms().map(lambda draw: {**_HEAD, **Author(draw, wild=wild).flow()})


def tangled_flows() -> st.SearchStrategy[dict[str, Any]]:
    """Return random flow files with any splits and joins, most of which the checker refuses."""
    return _randoms().map(tangled_flow)


def schedules() -> st.SearchStrategy[random.Random]:
    """Return sources of randomness for the order of happenings."""
    return _randoms()


_HEAD = {"flowengine": 1, "id": "flow"}


def _randoms() -> st.SearchStrategy[random.Random]:
    return st.randoms(use_true_random=False)
