"""Types of steps and flows for the keyword arguments of a step."""

from __future__ import annotations


class StepHandle:
    """A step, or a piece of the graph that begins with one."""


class FlowHandle:
    """A flow built in Python."""
