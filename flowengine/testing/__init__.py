"""Tools for tests of flows, steps and environments. See docs/testing.md."""

from __future__ import annotations

from flowengine.testing.model_replies import call, scripted

__all__ = ["call", "scripted"]
