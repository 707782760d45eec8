"""Flows that Python builds: `Flow` holds steps, and comes to the same data as a flow file."""

from flowengine.flow.building.expressions import Expr, cel
from flowengine.flow.building.flow import Flow
from flowengine.flow.building.steps import Chain, Scope, Step, step

__all__ = ["Chain", "Expr", "Flow", "Scope", "Step", "cel", "step"]
