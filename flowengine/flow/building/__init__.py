"""Flows built in Python. `Flow` holds the steps and is converted to the data of a flow file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.util.lazy_names import exports

if TYPE_CHECKING:
    from flowengine.flow.building.expressions import Expr, cel
    from flowengine.flow.building.flow import Flow
    from flowengine.flow.building.steps import Chain, Scope, Step, step

__all__ = ["Chain", "Expr", "Flow", "Scope", "Step", "cel", "step"]

_HOMES = {"Expr": ".expressions", "cel": ".expressions", "Flow": ".flow"}

__getattr__, __dir__ = exports(__name__, __all__, _HOMES, ".steps")
