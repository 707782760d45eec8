"""Sandboxes: places where programs run."""
