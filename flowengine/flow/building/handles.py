"""What keyword arguments of a step may name: other steps, and flows."""

from __future__ import annotations


class StepHandle:
    """A step, or a piece of the graph that begins with one."""


class FlowHandle:
    """A flow that Python builds."""
