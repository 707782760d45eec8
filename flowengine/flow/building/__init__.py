"""Flows built in Python. `Flow` holds the steps and is converted to the data of a flow file."""

from flowengine.flow.building.expressions import Expr, cel
from flowengine.flow.building.flow import Flow
from flowengine.flow.building.steps import Chain, Scope, Step, step

__all__ = ["Chain", "Expr", "Flow", "Scope", "Step", "cel", "step"]
