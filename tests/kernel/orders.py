"""Graphs played in every order in which things can happen."""

from __future__ import annotations

from typing import Any

from flowengine.kernel import Graph
from flowengine.testing.explorer import explore
from flowengine.testing.simulator import Simulator


def in_every_order(flow: Graph, script: Any = None, **inputs: Any) -> list[Simulator]:
    """Return a run for each order; what must always hold is checked on the way."""
    found = explore(flow, script, inputs)
    assert found.complete, found
    return found.runs
