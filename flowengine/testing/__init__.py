"""Tools for tests of flows, steps and environments. See docs/testing.md."""

from flowengine.testing.model_replies import call, scripted

__all__ = ["call", "scripted"]
