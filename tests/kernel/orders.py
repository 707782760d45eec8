"""Runs graphs in every possible order of events."""

from __future__ import annotations

from typing import Any

from flowengine.kernel import Graph
from flowengine.testing.explorer import explore
from flowengine.testing.simulator import Simulator


def in_every_order(flow: Graph, script: Any = None, **inputs: Any) -> list[Simulator]:
    """Return a run for each order, after checking the invariants in all of them."""
    found = explore(flow, script, inputs)
    assert found.complete, found
    return found.runs
